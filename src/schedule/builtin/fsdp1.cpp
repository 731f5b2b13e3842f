#include <algorithm>
#include <array>
#include <deque>

#include "schedule/fsdp1_handle.hpp"
#include "schedule/gradient_norm.hpp"
#include "schedule/optimizer_step.hpp"

// FullyShardedDataParallel: one flat parameter a unit, gathered in one piece.
// Source: torch/distributed/fsdp/_runtime_utils.py, _flat_param.py and _exec_order_utils.py of PyTorch 2.13.
namespace fsdplan {
namespace {

using namespace fsdp1;

enum Action : std::int32_t { pre_backward_hook, frozen_hook };

class Fsdp1 final : public UnitRuntime {
public:
    Fsdp1(const LoweringInput& input, Schedule& out)
        : plan_(input.plan), job_(input.job), loop_(input, out), emit_(loop_.emit) {
        handles_ = handles_of(loop_, input.rank);
        gradient_of_.resize(loop_.tree.tensors.size(), -1);
        for (const Handle& h : handles_) {
            for (const Handle::Member& member : h.members) {
                gradient_of_[at(member.tensor)] = member.gradient;
            }
        }
    }

    void run() { loop_.run(*this); }

    void begin() override {
        for (const std::int32_t u : construction_order()) {
            Handle& h = handle(u);
            if (!h.exists) {
                continue;
            }
            if (job_.fsdp1.built_on_device) {
                construct(h, u);
            } else {
                emit_.allocate(h.shard);
            }
        }
    }

    void begin_microbatch(bool last) override { sync_gradients_ = last || !job_.no_sync; }

    void pre_forward(std::int32_t unit, std::int32_t call) override {
        Handle& h = handle(unit);
        if (unit == root && !loop_.in_backward()) {
            root_pre_forward();
        }
        if (h.exists && h.state == Handle::State::backward_pre) {
            return;  // recomputed between its own pre- and post-backward
        }
        if (!h.exists) {
            return;
        }
        emit_.host(HostWork::unit_hook, unit);
        record_pre_forward(h, unit);
        h.state = Handle::State::forward;
        if (!h.prefetched) {
            unshard(unit);
        }
        h.needs_pre_forward_unshard = false;
        emit_.after(Stream::compute, unshard_stream);
        if (job_.forward_prefetch) {
            prefetch_forward(h);
        }
        register_post_backward(h, unit, call);
    }

    void post_forward(std::int32_t unit, std::int32_t call) override {
        Handle& h = handle(unit);
        if (h.exists && h.state == Handle::State::backward_pre) {
            return;
        }
        if (h.exists) {
            emit_.host(HostWork::unit_hook, unit);
            record_post_forward(h, unit);
            const bool keeps_views =
                job_.use_orig_params && loop_.grad_enabled() && keeps_after_forward(h.settings.strategy);
            reshard(unit, unit != root && frees_after_forward(h.settings.strategy));
            h.skipped_views = keeps_views;
            if (loop_.grad_enabled()) {
                h.needs_pre_backward_unshard = loop_.output_requires_grad(call);
                h.ran_pre_backward = false;
            }
        }
        if (loop_.grad_enabled() && loop_.output_node(call) >= 0) {
            loop_.tape.hook(loop_.output_node(call), pre_backward_hook, unit);
        }
        h.state = Handle::State::idle;
    }

    void hook(const Tape::Hook& hook) override {
        if (hook.action == pre_backward_hook) {
            pre_backward(hook.subject);
        } else if (--handle(hook.subject).frozen_waits == 0) {
            emit_.mark(Mark::post_backward_frozen, hook.subject);
            handle(hook.subject).state = Handle::State::backward_post;
            reshard_in_backward(hook.subject, Stream::compute);
        }
    }

    void node(const Tape::Node& node) override {
        Handle& h = handle(node.subject);
        if (node.kind == Tape::Kind::split) {
            assemble(h);
        } else {
            post_backward(h, node.subject);
        }
    }

    void end_of_backward() override {
        emit_.after(Stream::compute, views_stream);  // autograd joins the streams of its leaves
        emit_.mark(Mark::final_begin);
        if (sync_gradients_) {
            emit_.after(Stream::compute, post_backward_stream);
            if (std::ranges::any_of(handles_, &Handle::hybrid)) {
                emit_.after(Stream::compute, Stream::all_reduce);
            }
            if (job_.offload) {
                emit_.block(emit_.record(Stream::compute));
            }
        }
        first_iteration_ = false;
        post_forward_order_.clear();
        for (std::size_t u = 0; u < handles_.size(); ++u) {
            Handle& h = handles_[u];
            if (!h.exists) {
                continue;
            }
            if (!h.points_to_shard || h.skipped_views) {
                reshard(static_cast<std::int32_t>(u), frees_in_backward(h));
            }
            keep_low_precision(h);
            if (job_.offload && sync_gradients_) {
                emit_.release(h.shard_gradient);
                h.has_shard_gradient = false;
            }
            h.ran_pre_backward = false;
            h.needs_pre_backward_unshard = false;
            h.post_forward_index = -1;
            h.state = Handle::State::idle;
            h.prefetched = false;
            h.hook_registered = false;
            h.frozen_waits = 0;
            h.split = -1;
            h.accumulator = -1;
        }
        emit_.mark(Mark::final_end);
    }

    void clip() override {
        if (!clipped_) {
            // The first call sends a zero from pageable memory, and the host waits for it.
            emit_.copy(bytes_of(1, DType::float32).count, -1, Stream::compute, OpKind::to_device);
            emit_.block(emit_.record(Stream::compute));
            clipped_ = true;
        }
        norms_one_by_one(emit_, local_gradients());
        if (norm_ < 0) {
            norm_ = add_buffer(emit_, -1, 1, DType::float32, Category::temporary, Stream::compute);
            emit_.allocate(norm_);  // stays: each step replaces it
        }
        if (std::ranges::none_of(handles_, [](const Handle& h) { return h.exists && h.sharded(); })) {
            return;
        }
        exchange_norms(emit_, job_, DType::float32, 1);  // of all local shards together
    }

    void optimizer_step() override {
        emit_.host(HostWork::optimizer, -1);
        LocalParameters local;
        for (Handle& h : handles_) {
            if (h.ever_reduced) {
                step_over(h, local);
            }
        }
        emit_optimizer(emit_, job_, local);
    }

    void zero_grad() override {
        // With use_orig_params only the original parameters forget their gradients; the flat one's goes when
        // the next forward starts.
        if (!job_.use_orig_params) {
            drop_gradients();
        }
        gradients_zeroed_ = true;
    }

    bool tracks(TensorIndex t) const override {
        const std::int32_t unit = loop_.unit_of(t);
        return unit >= 0 ? handles_[static_cast<std::size_t>(unit)].requires_grad
                         : loop_.tree.tensors[at(t)].requires_grad;
    }

    std::int32_t gradient_node(TensorIndex t) override {
        const std::int32_t unit = loop_.unit_of(t);
        if (unit < 0) {
            return -1;  // an ignored parameter's own .grad
        }
        Handle& h = handle(unit);
        if (h.split < 0) {
            add_split(h, unit);
        }
        return h.split;
    }

    void gradient_computed(TensorIndex t) override {
        const std::int32_t unit = loop_.unit_of(t);
        if (unit < 0) {
            return;
        }
        const std::int32_t gradient = gradient_of_[at(t)];
        if (!emit_.is_live(gradient)) {
            emit_.allocate(gradient);
        }
    }

private:
    static constexpr std::int32_t root = 0;

    Handle& handle(std::int32_t unit) { return handles_[static_cast<std::size_t>(unit)]; }

    /// Units as numbered here, in the order in which the plan constructs them.
    std::vector<std::int32_t> construction_order() const {
        std::vector<std::int32_t> order;
        for (const std::int32_t constructed : plan_.construction_order) {
            const Unit* unit = &plan_.units[static_cast<std::size_t>(constructed)];
            const auto found = std::ranges::find(loop_.units, unit, &LoopUnit::plan);
            order.push_back(static_cast<std::int32_t>(found - loop_.units.begin()));
        }
        return order;
    }

    // FlatParamHandle: the parameters are concatenated, the shard is cloned from that, and only then do the
    // whole ones go.
    void construct(const Handle& h, std::int32_t unit) {
        std::vector<std::int32_t> whole;
        const auto hold = [&](std::int64_t numel) {
            whole.push_back(
                add_buffer(emit_, unit, numel, h.settings.orig, Category::unsharded, Stream::compute));
            emit_.allocate(whole.back());
        };
        for (const Handle::Member& member : h.members) {
            hold(member.numel);
        }
        if (h.sharded()) {
            hold(h.numel);
        }
        if (job_.offload) {
            hold(h.shard_numel);  // moved to the host at the end
        }
        emit_.allocate(h.shard);
        for (const std::int32_t buffer : whole) {
            emit_.release(buffer);
        }
    }

    static bool keeps_after_forward(Strategy strategy) {
        return strategy == Strategy::shard_grad_op || strategy == Strategy::hybrid_shard_zero2;
    }

    // Lazy initialisation, when the first forward starts.
    void initialize() {
        initialized_ = true;
        for (std::size_t u = 0; u < handles_.size(); ++u) {
            Handle& h = handles_[u];
            probe(h, static_cast<std::int32_t>(u));
            if (h.host_gradient >= 0) {
                emit_.allocate(h.host_gradient);
            }
        }
        if (job_.buffer_dtype) {
            loop_.cast_buffers(*job_.buffer_dtype);
        }
    }

    // The first forward tries every buffer once, one unit at a time, and gives it back.
    void probe(Handle& h, std::int32_t unit) {
        if (!h.exists) {
            return;
        }
        const auto once = [&](std::int64_t numel, DType dtype, Category category) {
            const std::int32_t b = add_buffer(emit_, unit, numel, dtype, category, Stream::compute);
            emit_.allocate(b);
            emit_.free(b);
        };
        if (h.mixed()) {
            once(h.shard_numel, h.settings.param, Category::low_precision_shard);
        }
        if (h.sharded()) {
            const std::int64_t padded = h.shard_numel * h.settings.ranks;
            once(padded, h.settings.param, Category::unsharded);
            if (h.mixed()) {
                once(padded, h.settings.orig, Category::unsharded);
            }
        }
    }

    void root_pre_forward() {
        if (!initialized_) {
            initialize();
        }
        if (job_.forward_prefetch) {
            for (Handle& h : handles_) {
                h.needs_pre_forward_unshard = true;
                h.prefetched = false;
            }
        }
        emit_.after(unshard_stream, Stream::compute);
        emit_.after(pre_unshard_stream, Stream::compute);
        if (gradients_zeroed_) {
            drop_gradients();
        }
        if (job_.param_dtype) {
            loop_.user_code();  // the inputs are cast
        }
    }

    std::vector<LocalGradient> local_gradients() const {
        std::vector<LocalGradient> gradients;
        for (const Handle& h : handles_) {
            if (!h.ever_reduced) {
                continue;
            }
            if (!job_.use_orig_params) {
                gradients.push_back({.numel = h.shard_numel});
                continue;
            }
            for (const Handle::Member& member : h.members) {
                if (member.trainable && member.local_numel > 0) {
                    gradients.push_back({.numel = member.local_numel});
                }
            }
        }
        return gradients;
    }

    void drop_gradients() {
        for (Handle& h : handles_) {
            if (h.exists) {
                emit_.release(h.shard_gradient);
                emit_.release(h.low_precision_gradient);
                emit_.release(h.flat_gradient);
                h.has_shard_gradient = false;
                h.has_gradient = false;
            }
        }
        gradients_zeroed_ = false;
    }

    void record_pre_forward(Handle& h, std::int32_t unit) {
        if (job_.fsdp1.debug_detail && first_iteration_) {
            const std::int32_t check = emit_.collective({.kind = CollectiveKind::all_gather,
                                                         .dtype = DType::int32,
                                                         .ranks = h.settings.ranks,
                                                         .input_numel = 1,
                                                         .output_numel = h.settings.ranks});
            const std::int64_t bytes = bytes_of(1 + h.settings.ranks, DType::int32).count;
            const std::array tensors{add_buffer(emit_, -1, 1 + h.settings.ranks, DType::int32,
                                                Category::temporary, Stream::compute),
                                     add_buffer(emit_, -1, 1 + h.settings.ranks, DType::int32,
                                                Category::temporary, Stream::compute)};
            for (const std::int32_t b : tensors) {
                emit_.allocate(b);
                emit_.issue(check, -1, Stream::compute);
                emit_.copy(bytes, -1, Stream::compute, OpKind::to_host);
                emit_.block(emit_.record(Stream::compute));
            }
            emit_.free(tensors[0]);
            emit_.free(tensors[1]);
        }
        if (first_iteration_ && h.pre_forward_index < 0) {
            h.pre_forward_index = static_cast<std::int32_t>(pre_forward_order_.size());
            pre_forward_order_.push_back(unit);
        }
    }

    // The index is only kept when it is not 0: a unit that ran first counts again when it runs a second time.
    void record_post_forward(Handle& h, std::int32_t unit) {
        if (h.post_forward_index <= 0) {
            h.post_forward_index = static_cast<std::int32_t>(post_forward_order_.size());
        }
        post_forward_order_.push_back(unit);
    }

    void add_split(Handle& h, std::int32_t unit) {
        if (!h.requires_grad) {
            return;
        }
        h.split = loop_.tape.add(Tape::Kind::split, unit);
        if (h.accumulator < 0) {
            h.accumulator = loop_.tape.add(Tape::Kind::accumulate, unit);
        }
        loop_.tape.edge(h.split, h.accumulator);
    }

    void unshard(std::int32_t unit, bool prefetched = false) {
        Handle& h = handle(unit);
        const bool needs_gather = h.sharded() && !h.gathered;
        if (job_.offload && loop_.in_backward() && !h.has_shard_gradient) {
            // Checking the original parameters for changes leaves an empty sharded gradient, to be added to.
            emit_.allocate(h.shard_gradient);
            h.has_shard_gradient = true;
        }
        bool ran_pre_unshard = false;
        if (h.mixed() && (!h.sharded() || needs_gather || job_.offload)) {
            if (job_.offload) {
                emit_.allocate(h.device_shard);
                emit_.copy(bytes_of(h.shard_numel, h.settings.orig).count, unit, pre_unshard_stream,
                           OpKind::to_device);
            }
            if (!emit_.is_live(h.low_precision_shard)) {
                emit_.allocate(h.low_precision_shard);
            }
            emit_.copy(bytes_of(h.shard_numel, h.settings.orig).count, unit, pre_unshard_stream);
            emit_.release(h.device_shard);
            ran_pre_unshard = true;
        } else if (job_.offload) {
            emit_.allocate(h.device_shard);
            emit_.copy(bytes_of(h.shard_numel, h.settings.orig).count, unit, pre_unshard_stream,
                       OpKind::to_device);
            ran_pre_unshard = true;
        }
        if (ran_pre_unshard) {
            emit_.after(unshard_stream, pre_unshard_stream);
        }
        limit();
        if (needs_gather) {
            emit_.allocate(h.unsharded);
            h.gathered = true;
            emit_.issue(h.gather, unit, unshard_stream, prefetched);
        }
        if (h.sharded() && h.mixed() && emit_.is_live(h.low_precision_shard)) {
            emit_.use(h.low_precision_shard, unshard_stream);
            emit_.free(h.low_precision_shard);
        }
        emit_.release(h.device_shard);
        use_unsharded(h, unit);
    }

    // New views of the flat parameter. Backward goes through those that a computation used.
    void use_unsharded(Handle& h, std::int32_t unit) {
        h.points_to_shard = !h.sharded() && !h.mixed();
        const bool in_forward = h.state == Handle::State::forward;
        const bool in_pre_backward = h.state == Handle::State::backward_pre;
        if (job_.use_orig_params) {
            if (h.skipped_views && in_pre_backward) {
                return;
            }
            if (in_forward || in_pre_backward) {
                h.skipped_views = false;
                add_split(h, unit);
            }
        } else if (in_forward) {
            add_split(h, unit);
        }
    }

    // The rate limiter: the host waits for the oldest of two freed units that the device has not left behind.
    void limit() {
        constexpr std::size_t most_in_flight = 2;
        if (job_.limit_all_gathers && free_events_.size() >= most_in_flight) {
            emit_.block(free_events_.front());
            free_events_.pop_front();
        }
    }

    void reshard(std::int32_t unit, bool frees, Stream current = Stream::compute) {
        Handle& h = handle(unit);
        h.points_to_shard = true;
        h.skipped_views = false;
        if (frees && h.gathered) {
            emit_.use(h.unsharded, current);
            emit_.free(h.unsharded);
            h.gathered = false;
        }
        if (frees && job_.limit_all_gathers) {
            free_events_.push_back(emit_.record(current));
        }
        if (!h.sharded() && h.mixed()) {
            emit_.use(h.low_precision_shard, current);
            emit_.release(h.low_precision_shard);
        }
        h.prefetched = false;
        emit_.mark(Mark::reshard, unit, frees ? 1 : 0);
    }

    bool frees_in_backward(const Handle& h) const {
        return h.sharded() && (sync_gradients_ || frees_after_forward(h.settings.strategy));
    }

    void reshard_in_backward(std::int32_t unit, Stream current) {
        reshard(unit, frees_in_backward(handle(unit)), current);
        if (job_.backward_prefetch == BackwardPrefetch::post) {
            prefetch_backward(unit);
        }
    }

    void prefetch(std::int32_t target, Handle::State as) {
        Handle& t = handle(target);
        const Handle::State state = t.state;
        t.state = as;
        unshard(target, true);
        t.state = state;
        t.prefetched = true;
    }

    void prefetch_forward(const Handle& h) {
        const auto next = static_cast<std::size_t>(h.pre_forward_index) + 1;
        if (h.pre_forward_index < 0 || next >= pre_forward_order_.size()) {
            return;
        }
        const std::int32_t target = pre_forward_order_[next];
        if (handle(target).needs_pre_forward_unshard && !handle(target).prefetched) {
            prefetch(target, Handle::State::forward);
        }
    }

    void prefetch_backward(std::int32_t unit) {
        const std::int32_t index = handle(unit).post_forward_index;
        if (index <= 0) {
            return;
        }
        const std::int32_t target = post_forward_order_[static_cast<std::size_t>(index) - 1];
        if (handle(target).needs_pre_backward_unshard && !handle(target).prefetched) {
            prefetch(target, Handle::State::backward_pre);
        }
    }

    // A frozen unit has no gradient whose arrival could reshard it: it goes when the gradients of its inputs
    // are there.
    void register_post_backward(Handle& h, std::int32_t unit, std::int32_t call) {
        if (!loop_.grad_enabled() || h.hook_registered) {
            return;
        }
        h.hook_registered = true;
        if (h.requires_grad) {
            return;
        }
        const std::vector<std::int32_t> inputs = loop_.input_nodes(call);
        h.frozen_waits = static_cast<std::int32_t>(inputs.size());
        for (const std::int32_t node : inputs) {
            loop_.tape.hook(node, frozen_hook, unit);
        }
    }

    void pre_backward(std::int32_t unit) {
        Handle& h = handle(unit);
        if (!h.exists || h.ran_pre_backward) {
            return;
        }
        emit_.mark(Mark::pre_backward, unit);
        emit_.host(HostWork::unit_hook, unit);
        h.state = Handle::State::backward_pre;
        if (h.needs_pre_backward_unshard) {
            if (!h.prefetched) {
                unshard(unit);
            }
            emit_.after(Stream::compute, unshard_stream);
        }
        h.needs_pre_backward_unshard = false;
        if (job_.backward_prefetch == BackwardPrefetch::pre) {
            prefetch_backward(unit);
        }
        h.ran_pre_backward = true;
    }

    // The gradients of the members are concatenated into that of the flat parameter.
    void assemble(Handle& h) {
        emit_.after(views_stream, Stream::compute);
        const std::int32_t into = emit_.is_live(h.flat_gradient) ? h.fresh_gradient : h.flat_gradient;
        if (!emit_.is_live(into)) {
            emit_.allocate(into);
        }
        std::int64_t bytes = 0;
        for (const Handle::Member& member : h.members) {
            if (emit_.is_live(member.gradient)) {
                bytes += bytes_of(member.numel, h.settings.param).count;
            }
        }
        emit_.copy(bytes, -1, views_stream);
        for (const Handle::Member& member : h.members) {
            emit_.use(member.gradient, views_stream);  // by autograd, which has changed streams
            emit_.release(member.gradient);
        }
        h.has_gradient = true;
    }

    void post_backward(Handle& h, std::int32_t unit) {
        // A second flat gradient has been added to the first.
        emit_.release(h.fresh_gradient);
        emit_.mark(Mark::post_backward, unit, h.has_gradient ? 1 : 0);
        emit_.host(HostWork::unit_hook, unit);
        h.state = Handle::State::backward_post;
        if (!h.has_gradient) {
            return;
        }
        reshard_in_backward(unit, views_stream);
        if (!sync_gradients_) {
            return;
        }
        emit_.after(post_backward_stream, views_stream);
        if (h.cast_gradient >= 0) {
            emit_.allocate(cast_stays(h) ? h.shard_gradient : h.cast_gradient);
            emit_.copy(bytes_of(h.numel, h.settings.param).count, unit, post_backward_stream);
        }
        if (h.sharded()) {
            reduce(h, unit);
        } else {
            reduce_unsharded(h, unit);
        }
        h.ever_reduced = true;
    }

    // Unsharded, and reduced in the dtype that is kept: what was cast becomes the gradient.
    bool cast_stays(const Handle& h) const {
        return !h.sharded() && !emit_.is_live(h.shard_gradient) &&
               (h.settings.reduce == h.settings.orig || job_.fsdp1.keep_low_precision_gradients);
    }

    void divide(double factor, std::int64_t numel, DType dtype, std::int32_t unit, Stream stream) {
        if (factor > 1) {
            emit_.copy(bytes_of(numel, dtype).count, unit, stream);
        }
    }

    void reduce(Handle& h, std::int32_t unit) {
        if (h.padded_gradient >= 0) {
            emit_.allocate(h.padded_gradient);
            emit_.copy(bytes_of(h.numel, h.settings.reduce).count, unit, post_backward_stream);
        }
        // Without a cast and a sum the output of the reduction is the gradient itself.
        const bool becomes_gradient = h.settings.reduce == h.settings.orig && !h.has_shard_gradient;
        const std::int32_t output = becomes_gradient ? h.shard_gradient : h.reduced;
        emit_.allocate(output);
        divide(h.predivide, h.numel, h.settings.reduce, unit, post_backward_stream);
        emit_.issue(h.scatter, unit, post_backward_stream);
        Stream last = post_backward_stream;
        if (h.hybrid()) {
            emit_.after(Stream::all_reduce, post_backward_stream);
            emit_.use(output, Stream::all_reduce);
            emit_.issue(h.all_reduce, unit, Stream::all_reduce);
            last = Stream::all_reduce;
        }
        divide(h.postdivide, h.shard_numel, h.settings.reduce, unit, last);
        if (!becomes_gradient) {
            emit_.copy(bytes_of(h.shard_numel, h.settings.reduce).count, unit, last);
            if (!h.has_shard_gradient) {
                emit_.allocate(h.shard_gradient);
            }
            emit_.free(output);
        }
        h.has_shard_gradient = true;
        if (job_.offload) {
            emit_.copy(bytes_of(h.shard_numel, h.settings.orig).count, unit, last, OpKind::to_host);
        }
        emit_.release(h.padded_gradient);
        emit_.release(h.cast_gradient);
        emit_.use(h.flat_gradient, post_backward_stream);
        emit_.free(h.flat_gradient);
        h.has_gradient = false;
    }

    void reduce_unsharded(Handle& h, std::int32_t unit) {
        divide(h.predivide, h.numel, h.settings.reduce, unit, post_backward_stream);
        emit_.issue(h.all_reduce, unit, post_backward_stream);
        divide(h.postdivide, h.numel, h.settings.reduce, unit, post_backward_stream);
        if (h.cast_gradient >= 0 || h.settings.reduce != h.settings.orig) {
            if (!emit_.is_live(h.shard_gradient)) {
                emit_.allocate(h.shard_gradient);
            }
            if (emit_.is_live(h.cast_gradient)) {
                emit_.copy(bytes_of(h.numel, h.settings.reduce).count, unit, post_backward_stream);
                emit_.release(h.cast_gradient);
            }
            emit_.use(h.flat_gradient, post_backward_stream);
            emit_.free(h.flat_gradient);
            h.has_shard_gradient = true;
        } else {
            emit_.relabel(h.flat_gradient, Category::gradient_shard);
        }
    }

    // keep_low_precision_grads: what was raised for accumulation goes back to the compute dtype.
    void keep_low_precision(Handle& h) {
        if (!job_.fsdp1.keep_low_precision_gradients || !sync_gradients_ || !h.sharded() || !h.mixed() ||
            !emit_.is_live(h.shard_gradient)) {
            return;
        }
        emit_.allocate(h.low_precision_gradient);
        emit_.copy(bytes_of(h.shard_numel, h.settings.orig).count, -1, Stream::compute);
        emit_.free(h.shard_gradient);
        h.has_shard_gradient = false;
    }

    void step_over(Handle& h, LocalParameters& local) {
        const auto add = [&](std::int64_t numel, bool& has_states) {
            local.add(numel, h.settings.orig);
            if (!has_states && numel > 0) {
                create_states(emit_, job_, numel, h.settings.orig);
                has_states = true;
            }
        };
        if (!job_.use_orig_params) {
            add(h.shard_numel, h.has_flat_states);
            return;
        }
        for (Handle::Member& member : h.members) {
            if (member.trainable) {
                add(member.local_numel, member.has_states);
            }
        }
    }

    const WrapPlan& plan_;
    const TrainingJob& job_;
    TrainingLoop loop_;
    Emitter& emit_;
    std::vector<Handle> handles_;
    std::vector<std::int32_t> gradient_of_;  // buffer of each parameter's part of its unit's gradient
    std::vector<std::int32_t> pre_forward_order_;
    std::vector<std::int32_t> post_forward_order_;
    std::deque<std::int32_t> free_events_;
    std::int32_t norm_ = -1;
    bool clipped_ = false;
    bool initialized_ = false;
    bool first_iteration_ = true;
    bool sync_gradients_ = true;
    bool gradients_zeroed_ = false;
};

Schedule lower_fsdp1(const LoweringInput& input) {
    Schedule out;
    out.stream_names = {"compute", "pre_unshard", "unshard", "post_backward", "all_reduce", "transfer"};
    Fsdp1(input, out).run();
    return out;
}

constexpr std::array strategies{Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard,
                                Strategy::hybrid_shard, Strategy::hybrid_shard_zero2};

}  // namespace

namespace builtin::runtime {

extern const RuntimeInfo fsdp1;
constinit const RuntimeInfo fsdp1{
    .name = "fsdp1",
    .help = "torch.distributed.fsdp.FullyShardedDataParallel",
    .wraps_by_policy = true,
    .has_units = true,
    .strategies = strategies,
    .lower = lower_fsdp1,
    .tracks_whole_units = true,
};

}  // namespace builtin::runtime
}  // namespace fsdplan
