#include "verify/memory_tracker_case.hpp"

#include "base/file.hpp"
#include "model/read_shape.hpp"
#include "verify/traffic.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t most_ranks = 1 << 24U;
constexpr const char* recorded_torch = "2.13";

std::vector<std::int64_t> batch_of(const std::string& exported) {
    const json::Document document(read_text(exported), exported);
    std::vector<std::int64_t> out;
    for (const json::Value input : document.root().at("operators").at("inputs").elements()) {
        if (input.size() != 2) {
            input.fail("a shape and a dtype");
        }
        Tensor tensor;
        read_shape(*input.elements().begin(), tensor);
        out.push_back(bytes_of(tensor.numel, recorded_dtype(*++input.elements().begin())).count);
    }
    return out;
}

OperatorGraph operators_of(const ModelGraph& model, const ModuleTree& tree, const std::string& exported) {
    if (!model.operators || !model.recorded_batch) {
        throw Error(ErrorKind::input, exported, "no operators are in it; expected an export with them");
    }
    return model.operators(tree,
                           {.batch = *model.recorded_batch, .sequence = model.longest_sequence.value_or(1)});
}

}  // namespace

TrackerHooks MemoryTrackerCase::hooks() const {
    using Placement = ActivationCheckpointing::Placement;
    return {.recompute_units = run.job.activation_checkpointing.placement == Placement::outside,
            .explicit_backward_prefetch = !run.job.fsdp2.backward_prefetch.empty()};
}

std::string export_name(const json::Value& recorded_case) {
    const auto mp = recorded_case.given("mp");
    const auto dtype = mp ? mp->given("param_dtype") : std::nullopt;
    std::string out(recorded_case.at("model").string());
    out += "@" + recorded_name(dtype ? recorded_dtype(*dtype) : DType::float32);
    if (const auto input = recorded_case.given("input")) {
        for (const json::Value size : input->members()) {
            out += "_" + std::string(size.key()) + std::to_string(size.integer(0, largest_total));
        }
    }
    return out;
}

MemoryTrackerCase memory_tracker_case(const json::Value& recording, const std::string& exported) {
    const json::Value recorded_case = recording.at("case");
    // The parameters of an export have the dtype that they are computed with; stored they are float32.
    const ModelGraph model = import_model(exported, {.dtype = DType::float32});
    MemoryTrackerCase out;
    out.tree = flatten(model);
    out.run = runtime_case(recorded_case, out.tree,
                           {.runtime = "fsdp2",
                            .torch = recorded_torch,
                            .world = recorded_case.at("world").integer(1, most_ranks)});
    out.operators = operators_of(model, out.tree, exported);
    out.input_bytes = batch_of(exported);
    out.iterations = static_cast<int>(recording.at("iterations").size());
    const auto fake = recorded_case.given("fake");
    out.is_fake = fake && fake->boolean();
    return out;
}

}  // namespace fsdplan
