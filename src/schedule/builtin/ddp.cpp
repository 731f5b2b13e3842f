#include <array>

#include "schedule/ddp_buckets.hpp"
#include "schedule/whole_model.hpp"

// DistributedDataParallel: buckets of gradients are all-reduced while backward goes on.
namespace fsdplan {
namespace {

class Ddp final : public WholeModel {
public:
    Ddp(const LoweringInput& input, Schedule& out)
        : WholeModel(input, one_unit(input.tree), out), reducer_(parameters(), buffers(), options()) {}

    void begin() override {
        for (Row& r : parameter_rows) {
            r.stored = buffer(r.bytes(), Category::shard);
            emit.allocate(r.stored);
        }
        WholeModel::begin();
        for (const CollectiveCall& call : ddp::construction(parameters(), buffers(), options())) {
            send(call);
        }
        wait_for_sent();
        buckets_ = new_buckets();
    }

    void begin_microbatch(bool last) override {
        WholeModel::begin_microbatch(last);
        synchronised_ = last || !job.no_sync;
        const bool rebuilt = reducer_.rebuilt();
        const std::vector<ddp::Event> events = reducer_.forward(synchronised_);
        if (reducer_.rebuilt() != rebuilt) {
            for (const std::int32_t bucket : buckets_) {
                emit.release(bucket);
            }
            buckets_ = new_buckets();
        }
        issue(events);
        if (!events.empty()) {
            wait_for_sent();
        }
        reducer_.backward(trained_rows());
    }

    void end_of_backward() override {
        issue(reducer_.backward_end());
        if (!synchronised_) {
            return;
        }
        wait_for_sent();
        for (const ddp::Bucket& bucket : reducer_.buckets()) {  // back into the gradients
            emit.copy(bytes_of(bucket.numel, bucket.dtype).count, 0, Stream::compute);
        }
        for (const Row& r : parameter_rows) {
            if (!job.gradient_as_bucket_view) {
                emit.relabel(r.gradient, Category::gradient_shard);  // the optimizer reads them as they are
            }
        }
    }

    void optimizer_step() override { step_over_rows(); }

protected:
    void gradient_ready(std::int32_t r) override {
        if (synchronised_) {
            emit.copy(row(r).bytes(), 0, Stream::compute);  // into its bucket
            if (job.gradient_as_bucket_view) {
                emit.release(row(r).gradient);  // which becomes a view of it
            }
        }
        issue(reducer_.gradient(r));
    }

private:
    std::vector<ddp::Parameter> parameters() const {
        std::vector<ddp::Parameter> out;
        for (const Row& r : parameter_rows) {
            out.push_back({.dtype = r.dtype, .numel = r.numel, .trainable = r.trainable});
        }
        return out;
    }

    std::vector<ddp::ModuleBuffer> buffers() const {
        std::vector<ddp::ModuleBuffer> out;
        const ModuleTree& tree = loop.tree;
        std::vector<char> seen(tree.tensors.size(), 0);
        for (const TensorIndex t : tree.buffer) {
            if (seen[at(t)] == 0) {
                seen[at(t)] = 1;
                out.push_back({.dtype = tree.tensors[at(t)].dtype, .numel = tree.tensors[at(t)].numel});
            }
        }
        return out;
    }

    ddp::Options options() const {
        ddp::Options options{.ranks = job.mesh.ranks(), .accumulate = job.accumulate};
        for (const Row& r : parameter_rows) {
            if (r.trainable) {
                options.shape_numbers +=
                    2 * static_cast<std::int64_t>(loop.tree.tensors[at(r.tensor)].shape.size());
                // Without it the second forward of such a model would be refused.
                options.find_unused_parameters = options.find_unused_parameters || !r.read;
            }
        }
        return options;
    }

    std::vector<std::int32_t> new_buckets() {
        std::vector<std::int32_t> out;
        for (const ddp::Bucket& bucket : reducer_.buckets()) {
            out.push_back(buffer(bytes_of(bucket.numel, bucket.dtype).count, Category::reduce_input));
            emit.allocate(out.back());
        }
        return out;
    }

    void issue(const std::vector<ddp::Event>& events) {
        for (const ddp::Event& event : events) {
            if (event.kind == ddp::Event::Kind::collective) {
                send(event.call, event.bucket >= 0 ? 0 : -1);
            }
        }
    }

    ddp::Reducer reducer_;
    std::vector<std::int32_t> buckets_;
    bool synchronised_ = true;
};

Schedule lower_ddp(const LoweringInput& input) {
    Schedule out;
    out.stream_names = one_communicator;
    Ddp(input, out).run();
    return out;
}

constexpr std::array strategies{Strategy::no_shard};

}  // namespace

namespace builtin::runtime {

extern const RuntimeInfo ddp;
constinit const RuntimeInfo ddp{
    .name = "ddp",
    .help = "torch.nn.parallel.DistributedDataParallel",
    .wraps_by_policy = false,
    .has_units = false,
    .strategies = strategies,
    .lower = lower_ddp,
};

}  // namespace builtin::runtime
}  // namespace fsdplan
