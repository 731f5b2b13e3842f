#include <gtest/gtest.h>

#include "base/file.hpp"
#include "base/json.hpp"
#include "model/blocks.hpp"
#include "operators/losses.hpp"
#include "support/requests.hpp"

// tests/golden/losses: what heads with their losses asked of the allocator.
namespace fsdplan {
namespace {

/// Without the head's input, which is the first storage.
std::vector<test::Request> described(const OperatorGraph& graph, const ModuleTree& tree, DType dtype) {
    test::Requests out;
    std::vector<int> holders(graph.storages.size(), 0);
    std::int64_t let_go_last = 0;  // just before: a gradient takes this memory over
    const auto hold = [&](std::size_t storage) { ++holders[storage]; };
    const auto let_go = [&](std::size_t storage) {
        let_go_last = 0;
        if (--holders[storage] == 0 && storage > 0) {
            let_go_last = graph.storages[storage].bytes;
            out.free(let_go_last);
        }
    };
    const auto play = [&](const std::vector<MemoryEvent>& events) {
        for (const MemoryEvent& event : events) {
            const auto index = static_cast<std::size_t>(event.index);
            switch (event.kind) {
                case MemoryEvent::Kind::allocate:
                    hold(index);
                    if (index > 0) {
                        out.allocate(graph.storages[index].bytes);
                    }
                    break;
                case MemoryEvent::Kind::save:
                    hold(index);
                    break;
                case MemoryEvent::Kind::drop:
                case MemoryEvent::Kind::release:
                    let_go(index);
                    break;
                case MemoryEvent::Kind::gradient: {
                    const std::int64_t bytes = bytes_of(tree.tensors[index].numel, dtype).count;
                    bytes == let_go_last ? out.keep(bytes) : out.allocate(bytes);
                    break;
                }
                case MemoryEvent::Kind::run:
                case MemoryEvent::Kind::unpack:
                    break;
            }
        }
    };
    play(graph.forward);
    play(graph.backward);
    return out.all;
}

TEST(RecordedLosses, AskForWhatPyTorchAsksFor) {
    const json::Document document(read_file(FSDPLAN_TEST_DATA "/golden/losses/recordings.json"),
                                  "recordings.json");
    int cases = 0;
    for (const json::Value row : document.root().elements()) {
        const auto size = [&](std::string_view key) { return row.at(key).integer(1, 1 << 20); };
        const std::string_view loss = row.at("loss").string();
        const DType dtype = *dtype_from_name(row.at("dtype").string());
        SCOPED_TRACE(std::string(loss) + " " + std::string(name(dtype)) + " of " +
                     std::to_string(size("batch")));
        GraphBuilder builder("head", "hand");
        const Scope root = builder.root({.name = "Model"});
        root.parameter("hidden", {size("batch"), size("sequence"), size("width")});
        linear(root, "lm_head", size("width"), size("vocabulary"), false);
        const ModuleTree tree = flatten(builder.graph());

        Workload workload{.batch = size("batch"), .sequence = size("sequence"), .compute = dtype};
        const std::string_view kind = loss.substr(0, loss.find(':'));
        workload.loss.kind = kind == "chunked"         ? Loss::Kind::chunked
                             : kind == "fused"         ? Loss::Kind::fused
                             : kind == "cce"           ? Loss::Kind::cut
                             : kind == "low-precision" ? Loss::Kind::low_precision
                                                       : Loss::Kind::cross_entropy;
        workload.loss.chunks = kind == "chunked" ? 4 : 0;
        Eager f(tree, workload);
        Value result = f.call(ModuleIndex{0}, {}, [&] {
            const Value hidden = op::mul_scalar(f, f.parameter(ModuleIndex{0}, "hidden"));
            return head_and_loss(f, layer::child(f, ModuleIndex{0}, "lm_head"), hidden);
        });
        const OperatorGraph graph = f.finish(std::move(result));
        EXPECT_EQ(first_fault(graph), "");
        EXPECT_EQ(described(graph, tree, dtype), test::recorded_requests(row.at("requests").string()));
        ++cases;
    }
    EXPECT_GE(cases, 18);
}

}  // namespace
}  // namespace fsdplan
