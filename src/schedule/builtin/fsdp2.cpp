#include <algorithm>
#include <array>
#include <deque>

#include "schedule/gradient_division.hpp"
#include "schedule/gradient_norm.hpp"
#include "schedule/optimizer_step.hpp"
#include "schedule/reshard_ranks.hpp"
#include "schedule/training_loop.hpp"

// fully_shard: parameters are sharded one by one and travel together, a unit at a time.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _fsdp_state.py, _fsdp_collectives.py and
// _fsdp_param.py of PyTorch 2.13.
namespace fsdplan {
namespace {

constexpr Stream copy_in_stream = Stream::pre_gather;
constexpr Stream gather_stream = Stream::gather;
constexpr Stream reduce_scatter_stream = Stream::reduce;
constexpr std::int32_t pre_backward_hook = 0;

struct Member {
    TensorIndex tensor{};
    std::int64_t numel = 0;
    std::int64_t bytes = 0;         // of them, gathered
    std::int64_t padded_numel = 0;  // of the shard that every rank stores
    std::int64_t owned_numel = 0;   // of this rank, without padding
    bool trainable = false;
    bool along_rows = true;  // sharded on dimension 0
    DType orig{};
    DType gather{};
    std::int32_t shard = -1;
    std::int32_t unsharded = -1;
    std::int32_t staging = -1;             // copy-out of other dimensions goes through it
    std::int32_t post_forward_shard = -1;  // slice of a smaller group
    std::vector<std::int32_t> post_forward_shards;
    std::int32_t gradient = -1;     // .grad of the unsharded parameter
    std::int32_t incoming = -1;     // what arrives while there is one already
    std::int32_t kept = -1;         // the buffer of .grad: gradient, or accumulated where that widens
    std::int32_t accumulated = -1;  // unsharded_accumulated_grad, in the reduce dtype
    std::int32_t rearranged = -1;   // gradient with the sharded dimension in front
    bool has_gradient = false;
    bool has_accumulated = false;
    bool has_states = false;
    std::int32_t accumulator = -1;  // node of its .grad in this graph
};

/// A parameter group with its state.
struct Group {
    enum class Training : std::uint8_t { idle, forward, pre_backward, post_backward };
    enum class Sharded : std::uint8_t { sharded, post_forward, unsharded };

    // What it is.
    std::vector<Member> members;
    std::vector<std::int32_t> forward_prefetch;
    std::vector<std::int32_t> backward_prefetch;
    std::optional<double> divide_factor;
    std::int64_t post_forward_ranks = 0;  // after forward to groups of so many ranks; 0: to shards
    std::int64_t gather_numel = 0;        // input of the gather from shards
    std::int64_t gather_bytes = 0;        // its output
    std::int64_t copy_out_bytes = 0;
    std::int64_t staging_numel = 0;  // of the input, cast first

    // Buffers and collectives.
    std::vector<std::int32_t>
        gather_buffers;  // a unit that runs again gathers while its last one still lives
    std::vector<std::int32_t> reduce_buffers;  // inputs and outputs of reductions, reused
    std::int32_t gather_buffer = -1;           // of the gather under way
    std::int32_t gather_input = -1;
    std::int32_t gather_input_slice = -1;  // the same from a slice kept after forward
    std::int32_t sharded_gradient = -1;
    std::int32_t partial = -1;      // reduced inside the shard group only
    std::int32_t held_output = -1;  // input of an all-reduce, kept until the end of backward
    std::int32_t gather = -1;
    std::int32_t gather_post_forward = -1;

    // What it is doing.
    std::int32_t gather_event = -1;
    std::vector<std::int32_t> post_forward_indices;
    Training training = Training::idle;
    Training state_training = Training::idle;  // of the FSDPState, which hooks go by
    Sharded sharded = Sharded::sharded;
    bool pending = false;  // a gather that has not been copied out
    bool pending_async = false;
    bool has_sharded_gradient = false;
    bool ever_gathered = false;

    bool exists = false;   // with parameters
    bool reshards = true;  // after forward
    bool unshards_in_backward = true;
    bool force_sum = false;
    DType gather_dtype{};
    DType staging_dtype{};
    DType orig{};  // of the trainable members
    std::optional<DType> reduce;
};

class Fsdp2 final : public UnitRuntime {
public:
    Fsdp2(const LoweringInput& input, Schedule& out)
        : job_(input.job),
          torch_(torch_behaviour(input.job.torch)),
          rank_(input.rank.value_or(0) % input.job.mesh.shard),  // the first one owns most
          loop_(input, out),
          emit_(loop_.emit) {
        groups_.resize(loop_.units.size());
        for (std::size_t u = 0; u < groups_.size(); ++u) {
            set_up(static_cast<std::int32_t>(u));
        }
        prefetch_lists(job_.fsdp2.forward_prefetch, &Group::forward_prefetch);
        prefetch_lists(job_.fsdp2.backward_prefetch, &Group::backward_prefetch);
        for (const std::string& path : job_.fsdp2.no_unshard_in_backward) {
            if (const std::int32_t u = unit_at(path); u >= 0) {
                group(u).unshards_in_backward = false;
            }
        }
    }

    void run() { loop_.run(*this); }

    void begin() override {
        for (Group& g : groups_) {
            for (const Member& m : g.members) {
                emit_.allocate(m.shard);
            }
        }
    }

    void begin_microbatch(bool last) override {
        reduce_gradients_ = last || !job_.no_sync;
        reshard_after_backward_ = last || !(job_.no_sync && job_.fsdp2.keep_unsharded);
        last_backward_ = last || !(job_.no_sync && job_.fsdp2.not_last_backward);
        all_reduce_gradients_ = last || !job_.fsdp2.no_all_reduce;
    }

    void pre_forward(std::int32_t unit, std::int32_t call) override {
        Group& g = group(unit);
        if (g.state_training == Group::Training::pre_backward) {
            if (g.exists && g.sharded != Group::Sharded::unsharded) {
                unshard(unit, false, false);
                wait_for_unshard(unit);
            }
            return;
        }
        const bool first_in_pass = g.state_training != Group::Training::forward;
        g.state_training = Group::Training::forward;
        if (first_in_pass && forward_root_ < 0) {
            forward_root_ = unit;
            if (job_.param_dtype) {
                loop_.user_code();  // the inputs are cast
            }
            emit_.after(copy_in_stream, Stream::compute);
            emit_.after(gather_stream, Stream::compute);
        }
        if (g.exists) {
            emit_.host(HostWork::unit_hook, unit);
            const bool entering = g.training != Group::Training::forward;
            g.training = Group::Training::forward;
            unshard(unit, job_.fsdp2.unshard_async_op, false);
            wait_for_unshard(unit);
            if (entering && loop_.grad_enabled() && loop_.has_grad_inputs(call)) {
                loop_.set_inputs_node(call, loop_.tape.add(Tape::Kind::inputs, unit));
            }
        }
        if (first_in_pass) {
            for (const std::int32_t target : g.forward_prefetch) {
                prefetch(target, Group::Training::forward);
            }
        }
    }

    void post_forward(std::int32_t unit, std::int32_t call) override {
        Group& g = group(unit);
        if (g.state_training == Group::Training::pre_backward) {
            return;
        }
        if (g.exists) {
            emit_.host(HostWork::unit_hook, unit);
            if (!loop_.in_backward()) {
                reshard(unit);
                g.post_forward_indices.push_back(static_cast<std::int32_t>(post_forward_order_.size()));
                post_forward_order_.push_back(unit);
            }
            g.training = Group::Training::idle;
        }
        if (loop_.grad_enabled() && loop_.output_node(call) >= 0) {
            loop_.tape.hook(loop_.output_node(call), pre_backward_hook, unit);
        }
        g.state_training = Group::Training::idle;
        if (forward_root_ == unit) {
            release_gather_state();
            forward_root_ = -1;
        }
    }

    void hook(const Tape::Hook& hook) override {
        Group& g = group(hook.subject);
        g.state_training = Group::Training::pre_backward;
        final_callback_ = true;
        if (g.exists) {
            pre_backward(hook.subject);
        }
        for (const std::int32_t target : g.backward_prefetch) {
            prefetch(target, Group::Training::pre_backward);
        }
    }

    void node(const Tape::Node& node) override {
        if (node.kind == Tape::Kind::inputs) {
            post_backward(node.subject);
            return;
        }
        accumulate(node.subject);
    }

    void end_of_backward() override {
        if (!final_callback_) {
            return;
        }
        emit_.mark(Mark::final_begin);
        forward_root_ = -1;
        for (std::size_t u = 0; u < groups_.size(); ++u) {
            Group& g = groups_[u];
            const auto unit = static_cast<std::int32_t>(u);
            if (g.exists) {
                if (g.training != Group::Training::post_backward) {
                    post_backward(unit);
                }
                g.training = Group::Training::idle;
            }
            g.state_training = Group::Training::idle;
            if (last_backward_ && g.exists) {
                finalize(g);
            }
        }
        if (last_backward_) {
            post_forward_order_.clear();
            while (!reduce_scatter_states_.empty()) {
                release_oldest_input();
            }
            for (const std::int32_t gather : stray_gathers_) {
                emit_.release(gather);
            }
            stray_gathers_.clear();
        }
        final_callback_ = false;
        for (Group& g : groups_) {
            for (Member& m : g.members) {
                m.accumulator = -1;
            }
        }
        emit_.mark(Mark::final_end);
    }

    void clip() override {
        std::vector<LocalGradient> gradients;
        for (const Group& g : groups_) {
            for (const Member& m : g.members) {
                if (m.trainable && g.has_sharded_gradient && reduced_[at(m.tensor)] != 0) {
                    gradients.push_back({.numel = m.owned_numel, .dtype = m.orig});
                }
            }
        }
        if (gradients.empty()) {
            return;
        }
        if (!job_.offload) {
            norms_by_foreach(emit_, gradients, true);
        }
        exchange_norms(emit_, job_, gradients.back().dtype, static_cast<std::int64_t>(gradients.size()));
    }

    void optimizer_step() override {
        emit_.host(HostWork::optimizer, -1);
        LocalParameters local;
        for (Group& g : groups_) {
            for (Member& m : g.members) {
                if (reduced_[at(m.tensor)] != 0) {
                    if (!m.has_states) {
                        create_states(emit_, job_, m.owned_numel, m.orig);
                        m.has_states = true;
                    }
                    local.add(m.owned_numel, m.orig);
                }
            }
        }
        emit_optimizer(emit_, job_, local);
    }

    void zero_grad() override {
        for (Group& g : groups_) {
            emit_.release(g.sharded_gradient);
            g.has_sharded_gradient = false;
        }
        std::ranges::fill(reduced_, char{0});
    }

    bool tracks(TensorIndex t) const override { return loop_.tree.tensors[at(t)].requires_grad; }

    std::int32_t gradient_node(TensorIndex t) override {
        Member* m = member(t);
        if (m == nullptr) {
            return -1;  // an ignored parameter's own .grad
        }
        if (m->accumulator < 0) {
            m->accumulator = loop_.tape.add(Tape::Kind::accumulate, static_cast<std::int32_t>(t));
        }
        return m->accumulator;
    }

    void gradient_computed(TensorIndex t) override {
        Member* m = member(t);
        if (m == nullptr) {
            return;
        }
        const std::int32_t into = m->has_gradient ? m->incoming : m->gradient;
        if (!emit_.is_live(into)) {
            emit_.allocate(into);
        }
    }

private:
    Group& group(std::int32_t unit) { return groups_[static_cast<std::size_t>(unit)]; }

    Member* member(TensorIndex t) {
        const std::int32_t unit = loop_.unit_of(t);
        if (unit < 0) {
            return nullptr;
        }
        std::vector<Member>& members = group(unit).members;
        return &members[static_cast<std::size_t>(place_[at(t)])];
    }

    std::int32_t unit_at(const std::string& path) const {
        for (std::size_t u = 0; u < loop_.units.size(); ++u) {
            for (const ModuleIndex m : loop_.units[u].modules) {
                if (loop_.tree.path(m) == path) {
                    return static_cast<std::int32_t>(u);
                }
            }
        }
        return -1;
    }

    void prefetch_lists(const Fsdp2Options::PrefetchLists& lists, std::vector<std::int32_t> Group::*list) {
        for (const auto& [path, targets] : lists) {
            const std::int32_t u = unit_at(path);
            for (const std::string& target : targets) {
                if (const std::int32_t t = unit_at(target); u >= 0 && t >= 0) {
                    (group(u).*list).push_back(t);
                }
            }
        }
    }

    std::int32_t buffer(std::int32_t unit, std::int64_t bytes, Category category, Stream stream,
                        bool on_host = false) {
        return emit_.buffer(
            {.bytes = bytes, .category = category, .stream = stream, .on_host = on_host, .unit = unit});
    }

    /// A buffer like `wanted` that is free now.
    std::int32_t pooled(std::vector<std::int32_t>& pool, const Buffer& wanted) {
        for (const std::int32_t b : pool) {
            if (!emit_.is_live(b) && emit_.at(b) == wanted) {
                return b;
            }
        }
        pool.push_back(emit_.buffer(wanted));
        return pool.back();
    }

    std::int32_t reduce_buffer(Group& g, std::int32_t unit, std::int64_t bytes, Category category,
                               Stream stream) {
        return pooled(g.reduce_buffers,
                      {.bytes = bytes, .category = category, .stream = stream, .unit = unit});
    }

    struct Overrides {
        std::optional<std::int64_t> reshard;
        std::optional<DType> param;
        std::optional<DType> reduce;
    };

    Overrides overrides(const Unit& plan) const {
        const auto own = [&](std::string_view argument, std::optional<DType> otherwise) {
            const std::string* value = find_argument(plan.arguments, argument);
            const auto dtype = value ? dtype_from_name(unquoted(*value)) : std::nullopt;
            return dtype ? dtype : otherwise;
        };
        const std::optional<std::int64_t> reshard = own_reshard(plan);
        return {.reshard = reshard ? reshard : job_.reshard_after_forward,
                .param = own("param_dtype", job_.param_dtype),
                .reduce = own("reduce_dtype", job_.reduce_dtype)};
    }

    // What is stored, gathered and reduced.
    void set_up(std::int32_t unit) {
        Group& g = group(unit);
        const Unit& plan = *loop_.units[static_cast<std::size_t>(unit)].plan;
        place_.resize(loop_.tree.tensors.size(), -1);
        reduced_.resize(loop_.tree.tensors.size(), 0);
        if (plan.parameters.empty()) {
            return;
        }
        g.exists = true;
        const Overrides given = overrides(plan);
        const std::int64_t ranks = job_.mesh.shard;
        set_reshard(g, unit, given, ranks);
        bool one_dtype = true;
        std::int64_t gather_bytes = 0;
        g.members.reserve(plan.parameters.size());
        for (const TensorIndex t : plan.parameters) {
            const Tensor& tensor = loop_.tree.tensors[at(t)];
            Member m{
                .tensor = t, .numel = tensor.numel, .trainable = tensor.requires_grad, .orig = tensor.dtype};
            m.gather = given.param && is_floating_point(tensor.dtype) ? *given.param : tensor.dtype;
            m.bytes = bytes_of(m.numel, m.gather).count;
            m.along_rows = job_.fsdp2.shard_dim == 0 ||
                           static_cast<std::int64_t>(tensor.shape.size()) <= job_.fsdp2.shard_dim;
            if (m.along_rows) {
                const RowShard rows = row_shard(tensor.shape, ranks, rank_);
                m.padded_numel = rows.padded_numel();
                m.owned_numel = rows.owned_numel();
            } else {
                m.padded_numel = m.owned_numel = tensor.numel / ranks;
            }
            place_[at(t)] = static_cast<std::int32_t>(g.members.size());
            one_dtype = one_dtype && (g.members.empty() || m.gather == g.gather_dtype);
            g.gather_dtype = m.gather;
            g.gather_numel += m.padded_numel;
            gather_bytes += bytes_of(m.padded_numel, m.gather).count;
            if (m.gather != m.orig) {
                g.staging_numel += m.padded_numel;
                g.staging_dtype = m.gather;
            }
            if (m.trainable) {
                g.orig = m.orig;
                set_reduce(g, given, m);
            }
            add_buffers(m, unit, ranks, g);
            g.members.push_back(std::move(m));
        }
        if (!one_dtype) {
            g.gather_dtype = DType::uint8;
            g.gather_numel = gather_bytes;
        }
        if (unit == 0) {
            g.divide_factor = job_.fsdp2.gradient_divide_factor;
            g.force_sum = job_.fsdp2.force_sum_reduction;
        }
        add_gathers(g, unit, ranks, gather_bytes);
    }

    void set_reshard(Group& g, std::int32_t unit, const Overrides& given, std::int64_t ranks) const {
        // The root is about to be needed again: torch keeps it unless told otherwise.
        const std::int64_t after =
            given.reshard.value_or(unit == 0 || !frees_after_forward(job_.strategy) ? 0 : 1);
        g.reshards = after != 0;
        if (after > 1 && after < ranks) {
            g.post_forward_ranks = after;
        }
    }

    void set_reduce(Group& g, const Overrides& given, const Member& m) const {
        if (given.reduce && *given.reduce != m.gather) {
            g.reduce = given.reduce;
        } else if (!given.reduce && given.param && torch_.reduces_in_original_dtype && m.gather != m.orig) {
            g.reduce = m.orig;
        }
    }

    void add_buffers(Member& m, std::int32_t unit, std::int64_t ranks, Group& g) {
        const auto bytes = [](std::int64_t numel, DType dtype) { return bytes_of(numel, dtype).count; };
        const std::int64_t unsharded = bytes(m.padded_numel * ranks, m.gather);
        g.copy_out_bytes += unsharded;
        m.shard = buffer(unit, bytes(m.padded_numel, m.orig), Category::shard, Stream::compute, job_.offload);
        m.unsharded = buffer(unit, unsharded, Category::unsharded, Stream::compute);
        if (!m.along_rows) {
            m.staging = buffer(unit, unsharded, Category::unsharded, Stream::compute);
            m.rearranged = buffer(unit, m.bytes, Category::gradient, Stream::compute);
        }
        if (g.post_forward_ranks > 0) {
            m.post_forward_shard =
                buffer(unit, unsharded / g.post_forward_ranks, Category::post_forward_shard, Stream::compute);
            m.post_forward_shards.push_back(m.post_forward_shard);
        }
        if (m.trainable) {
            m.gradient = buffer(unit, m.bytes, Category::gradient, Stream::compute);
            m.incoming = buffer(unit, m.bytes, Category::gradient, Stream::compute);
            m.accumulated = buffer(unit, bytes(m.numel, g.reduce.value_or(m.gather)), Category::gradient,
                                   Stream::compute);
        }
    }

    void add_gathers(Group& g, std::int32_t unit, std::int64_t ranks, std::int64_t gather_bytes) {
        g.gather_bytes = gather_bytes * ranks;
        g.gather_input = buffer(unit, bytes_of(g.staging_numel, g.staging_dtype).count,
                                Category::gather_input, copy_in_stream);
        if (g.post_forward_ranks > 0) {
            g.gather_input_slice =
                buffer(unit, bytes_of(g.staging_numel, g.staging_dtype).count * ranks / g.post_forward_ranks,
                       Category::gather_input, copy_in_stream);
        }
        if (ranks == 1) {
            return;
        }
        CollectiveCall call{.kind = CollectiveKind::all_gather,
                            .dtype = g.gather_dtype,
                            .ranks = ranks,
                            .input_numel = g.gather_numel,
                            .output_numel = g.gather_numel * ranks};
        g.gather = emit_.collective(call);
        if (g.post_forward_ranks > 0) {
            call.group = RankGroup::post_forward;
            call.ranks = g.post_forward_ranks;
            call.input_numel = call.output_numel / call.ranks;
            g.gather_post_forward = emit_.collective(call);
        }
    }

    void unshard(std::int32_t unit, bool async, bool prefetched) {
        Group& g = group(unit);
        if (g.pending || g.sharded == Group::Sharded::unsharded) {
            return;
        }
        if (!g.unshards_in_backward && g.training == Group::Training::pre_backward) {
            return;
        }
        g.pending = true;
        g.pending_async = async;
        if (job_.mesh.shard == 1) {
            return;
        }
        const bool separate =
            !async && (g.training == Group::Training::forward || g.training == Group::Training::pre_backward);
        const Stream copies = separate ? copy_in_stream : Stream::compute;
        const Stream gathers = separate ? gather_stream : Stream::compute;
        const bool from_slice = g.sharded == Group::Sharded::post_forward;
        if (from_slice) {
            emit_.after(copies, Stream::compute);
        }
        // From a slice the cast has been done, but the copy is made all the same.
        const std::int32_t input = from_slice ? g.gather_input_slice : g.gather_input;
        const std::int64_t staged = bytes_of(g.staging_numel, g.staging_dtype).count *
                                    (from_slice ? job_.mesh.shard / g.post_forward_ranks : 1);
        if (job_.offload) {
            emit_.copy(bytes_of(g.gather_numel, g.gather_dtype).count, unit, copies, OpKind::to_device);
        }
        emit_.allocate(input);
        emit_.copy(staged, unit, copies);
        g.gather_buffer = pooled(
            g.gather_buffers,
            {.bytes = g.gather_bytes, .category = Category::gather_buffer, .stream = copies, .unit = unit});
        emit_.allocate(g.gather_buffer);
        emit_.copy(bytes_of(g.gather_numel, g.gather_dtype).count, unit, copies);
        if (copies != gathers) {
            emit_.after(gathers, copies);
        }
        emit_.issue(from_slice ? g.gather_post_forward : g.gather, unit, gathers, prefetched);
        g.gather_event = emit_.record(gathers);
        emit_.release(input);
        g.ever_gathered = true;
    }

    void wait_for_unshard(std::int32_t unit) {
        Group& g = group(unit);
        if (!g.pending) {
            return;
        }
        const bool in_forward = g.training == Group::Training::forward;
        std::int32_t left_behind = -1;
        if (in_forward && gather_state_ >= 0) {
            gather_streams_wait(gather_state_event_);
            std::swap(left_behind, gather_state_);
            if (torch_.releases_gather_before_copy_out) {
                emit_.release(left_behind);
            }
        }
        if (job_.mesh.shard > 1) {
            emit_.wait(Stream::compute, g.gather_event);
        }
        for (const Member& m : g.members) {
            emit_.allocate(m.unsharded);
            if (m.staging >= 0) {
                emit_.allocate(m.staging);
            }
        }
        emit_.copy(g.copy_out_bytes, unit, Stream::compute);
        for (const Member& m : g.members) {
            emit_.release(m.staging);
            if (g.sharded == Group::Sharded::post_forward) {
                emit_.release(m.post_forward_shard);
            }
        }
        g.sharded = Group::Sharded::unsharded;
        const bool held = !g.pending_async && in_forward && job_.mesh.shard > 1;
        const std::int32_t copied_out = emit_.record(Stream::compute);
        if (held) {
            gather_state_ = g.gather_buffer;
            gather_state_event_ = copied_out;
        } else {
            gather_streams_wait(copied_out);
            emit_.release(g.gather_buffer);
        }
        // A local variable keeps it so long.
        emit_.release(left_behind);
        g.pending = false;
        emit_.mark(Mark::copy_out, unit);
    }

    void gather_streams_wait(std::int32_t event) {
        emit_.wait(copy_in_stream, event);
        emit_.wait(gather_stream, event);
    }

    // In forward a gather's buffer lives until the next unit is about to copy out.
    void release_gather_state() {
        if (gather_state_ >= 0) {
            gather_streams_wait(gather_state_event_);
            emit_.release(gather_state_);
            gather_state_ = -1;
        }
    }

    void reshard(std::int32_t unit) {
        Group& g = group(unit);
        if (g.training == Group::Training::forward) {
            if (!g.reshards) {
                return;
            }
            if (g.post_forward_ranks > 0) {
                to_post_forward(g, unit);
                return;
            }
        }
        if (g.sharded == Group::Sharded::sharded) {
            return;
        }
        for (const Member& m : g.members) {
            emit_.release(m.unsharded);
        }
        g.sharded = Group::Sharded::sharded;
        emit_.mark(Mark::reshard, unit, 1);
    }

    void to_post_forward(Group& g, std::int32_t unit) {
        if (g.sharded == Group::Sharded::post_forward) {
            return;
        }
        for (Member& m : g.members) {
            // A slice that no backward has gathered is replaced.
            const std::int32_t old = m.post_forward_shard;
            m.post_forward_shard = pooled(m.post_forward_shards, emit_.at(old));
            emit_.allocate(m.post_forward_shard);
            if (m.post_forward_shard != old) {
                emit_.release(old);
            }
            emit_.release(m.unsharded);
        }
        g.sharded = Group::Sharded::post_forward;
        emit_.mark(Mark::reshard_post_forward, unit, 1);
    }

    void prefetch(std::int32_t target, Group::Training as) {
        Group& t = group(target);
        if (!t.exists) {
            return;
        }
        const Group::Training before = t.training;
        t.training = as;
        unshard(target, job_.fsdp2.unshard_async_op, true);
        t.training = before;
    }

    void pre_backward(std::int32_t unit) {
        Group& g = group(unit);
        if (g.training == Group::Training::pre_backward) {
            return;
        }
        emit_.mark(Mark::pre_backward, unit);
        emit_.host(HostWork::unit_hook, unit);
        g.training = Group::Training::pre_backward;
        unshard(unit, job_.fsdp2.unshard_async_op, false);
        wait_for_unshard(unit);
        if (g.backward_prefetch.empty() && !g.post_forward_indices.empty()) {
            const std::int32_t index = g.post_forward_indices.back();
            g.post_forward_indices.pop_back();
            if (index > 0) {
                prefetch(post_forward_order_[static_cast<std::size_t>(index) - 1],
                         Group::Training::pre_backward);
            }
        }
    }

    void accumulate(std::int32_t tensor) {
        Member& m = *member(TensorIndex{tensor});
        emit_.release(m.incoming);
        m.has_gradient = true;
        m.kept = m.gradient;
        const Group& g = group(loop_.unit_of(m.tensor));
        if (torch_.widens_gradients_early && g.reduce && *g.reduce != m.gather &&
            changes_on_arrival(m, *g.reduce)) {
            if (!emit_.is_live(m.accumulated)) {
                emit_.allocate(m.accumulated);
            }
            emit_.copy(m.bytes, loop_.unit_of(m.tensor), Stream::compute);
            emit_.free(m.gradient);
            m.kept = m.accumulated;
        }
    }

    // A wider dtype is only taken on arrival where the gradient stays; before a reduction the copy-in widens.
    bool changes_on_arrival(const Member& m, DType reduce) const {
        return !reduce_gradients_ || m.has_accumulated || bits(reduce) < bits(m.gather);
    }

    void post_backward(std::int32_t unit) {
        Group& g = group(unit);
        std::int64_t found = 0;
        for (const Member& m : g.members) {
            found += (m.has_gradient ? 1 : 0) + (m.has_accumulated ? 1 : 0);
        }
        emit_.mark(Mark::post_backward, unit, found);
        emit_.host(HostWork::unit_hook, unit);
        g.training = Group::Training::post_backward;
        for (Member& m : g.members) {
            if (m.has_accumulated && m.has_gradient) {
                emit_.copy(m.bytes, unit, Stream::compute);
                if (m.kept != m.accumulated) {
                    emit_.free(m.kept);
                }
                m.has_gradient = false;
            }
        }
        if (!reduce_gradients_) {
            if (reshard_after_backward_) {
                reshard(unit);
            }
            for (Member& m : g.members) {
                keep_unreduced(g, m, unit);
            }
        } else {
            reduce(unit);
        }
        emit_.mark(Mark::post_backward_end, unit);
        emit_.release(kept_by_caller_);
        kept_by_caller_ = -1;
    }

    // no_sync: gradients stay whole, in the dtype of the reduction.
    void keep_unreduced(const Group& g, Member& m, std::int32_t unit) {
        if (!g.reduce || !m.has_gradient || *g.reduce == m.gather) {
            return;
        }
        if (m.kept != m.accumulated) {
            emit_.allocate(m.accumulated);
            emit_.copy(m.bytes, unit, Stream::compute);
            emit_.free(m.gradient);
        }
        m.has_gradient = false;
        m.has_accumulated = true;
    }

    /// A gradient that goes into a reduction: its member and the buffer that holds it.
    struct Gradient {
        Member* member = nullptr;
        std::int32_t buffer = -1;
        std::int32_t source = -1;       // what is copied: that, or its rearranged copy
        std::int64_t padded_numel = 0;  // on all ranks
    };

    void collect(Group& g) {
        gradients_.clear();
        const auto add = [&](Member& m, std::int32_t from) {
            gradients_.push_back({&m, from, from, m.padded_numel * job_.mesh.shard});
        };
        for (Member& m : g.members) {
            if (m.has_accumulated) {
                add(m, m.accumulated);
                m.has_accumulated = false;
                if (&m == &g.members.back()) {
                    kept_by_caller_ = m.accumulated;
                }
            } else if (m.has_gradient) {
                add(m, m.kept);
                m.has_gradient = false;
                if (m.kept == m.accumulated && &m == &g.members.back()) {
                    kept_by_caller_ = m.kept;
                }
            } else if (job_.fsdp2.reduce_scatter_unused_params && g.ever_gathered && m.trainable) {
                emit_.allocate(m.gradient);
                add(m, m.gradient);
            }
        }
    }

    void reduce(std::int32_t unit) {
        Group& g = group(unit);
        collect(g);
        if (reshard_after_backward_) {
            reshard(unit);
        }
        while (!reduce_scatter_states_.empty() && static_cast<std::int64_t>(reduce_scatter_states_.size()) >=
                                                      job_.fsdp2.reduce_scatter_max_input_buffers) {
            release_oldest_input();
        }
        if (gradients_.empty()) {
            return;
        }
        emit_.release(g.held_output);
        reduce_gradients(g, unit);
    }

    void reduce_gradients(Group& g, std::int32_t unit) {
        const std::int64_t ranks = job_.mesh.shard;
        const DType dtype = g.reduce.value_or(gradients_.front().member->gather);
        std::int32_t held = -1;  // what a local variable keeps until the end
        std::int64_t numel = 0;
        std::int64_t bytes = 0;
        for (Gradient& gradient : gradients_) {
            numel += gradient.padded_numel;
            bytes += gradient.member->bytes;
            if (ranks > 1 && !gradient.member->along_rows) {
                emit_.allocate(gradient.member->rearranged);
                gradient.source = gradient.member->rearranged;
                emit_.release(held);
                held = gradient.buffer;
            }
        }
        const std::int32_t input =
            reduce_buffer(g, unit, bytes_of(numel, dtype).count, Category::reduce_input, Stream::compute);
        emit_.allocate(input);
        emit_.copy(bytes, unit, Stream::compute);
        // The last gradient stays in a loop variable.
        const bool of_last_member = gradients_.back().member == &g.members.back();
        const bool early = torch_.widens_gradients_early;
        const std::int32_t last = ranks > 1 && !early ? gradients_.back().buffer : -1;
        if (early && of_last_member) {
            kept_by_caller_ = gradients_.back().buffer;
        }
        for (const Gradient& gradient : gradients_) {
            if (gradient.source != last && gradient.source != kept_by_caller_) {
                emit_.release(gradient.source);
            }
        }
        emit_.after(reduce_scatter_stream, Stream::compute);
        const std::int32_t output = reduce_buffer(g, unit, bytes_of(numel / ranks, dtype).count,
                                                  Category::reduce_output, reduce_scatter_stream);
        emit_.allocate(output);
        const Factors factors = divide_factors(g, dtype);
        divide(factors.before, numel, dtype, unit, reduce_scatter_stream);
        if (ranks > 1) {
            emit_.issue(emit_.collective({.kind = CollectiveKind::reduce_scatter,
                                          .dtype = dtype,
                                          .reduction = factors.scatter,
                                          .ranks = ranks,
                                          .input_numel = numel,
                                          .output_numel = numel / ranks}),
                        unit, reduce_scatter_stream);
        } else {
            emit_.copy(bytes_of(numel, dtype).count, unit, reduce_scatter_stream);
        }
        reduce_scatter_states_.push_back({input, emit_.record(reduce_scatter_stream)});
        finish_reduction(g, unit, output, dtype, numel / ranks, factors);
        emit_.release(held);
        if (last != kept_by_caller_) {
            emit_.release(last);
        }
    }

    struct Factors {
        double before = 1;
        double after = 1;
        Reduction scatter = Reduction::average;
        Reduction all_reduce = Reduction::average;
    };

    Factors divide_factors(const Group& g, DType dtype) const {
        const std::int64_t data_parallel = job_.mesh.ranks();
        const bool may_overflow = dtype != DType::float32 && dtype != DType::bfloat16;
        if (!may_overflow && !g.force_sum) {
            if (!g.divide_factor) {
                const Reduction op = data_parallel == 1 ? Reduction::sum : Reduction::average;
                return {.scatter = op, .all_reduce = op};
            }
            const bool plain = *g.divide_factor == static_cast<double>(job_.mesh.shard);
            return {.scatter = plain ? Reduction::average : Reduction::premultiplied_sum,
                    .all_reduce = Reduction::sum};
        }
        const double factor = g.divide_factor.value_or(static_cast<double>(data_parallel));
        Factors out{.after = factor, .scatter = Reduction::sum, .all_reduce = Reduction::sum};
        if (may_overflow) {
            out.before = predivide_factor(factor);
            out.after = factor / out.before;
        }
        return out;
    }

    void divide(double factor, std::int64_t numel, DType dtype, std::int32_t unit, Stream stream) {
        if (factor != 1) {
            emit_.copy(bytes_of(numel, dtype).count, unit, stream);
        }
    }

    void finish_reduction(Group& g, std::int32_t unit, std::int32_t output, DType dtype, std::int64_t numel,
                          const Factors& factors) {
        Stream last = reduce_scatter_stream;
        const bool replicated = is_hybrid(job_.strategy) || has_replicas();
        if (replicated) {
            if (!all_reduce_gradients_) {
                if (g.partial >= 0) {
                    emit_.copy(bytes_of(numel, dtype).count, unit, reduce_scatter_stream);
                    emit_.free(output);
                } else {
                    g.partial = output;
                }
                return;
            }
            if (g.partial >= 0) {
                emit_.copy(bytes_of(numel, dtype).count, unit, reduce_scatter_stream);
            }
            emit_.after(Stream::all_reduce, reduce_scatter_stream);
            emit_.issue(emit_.collective({.kind = CollectiveKind::all_reduce,
                                          .group = RankGroup::replicate,
                                          .dtype = dtype,
                                          .reduction = factors.all_reduce,
                                          .ranks = job_.mesh.replicate,
                                          .input_numel = numel,
                                          .output_numel = numel}),
                        unit, Stream::all_reduce);
            last = Stream::all_reduce;
        }
        divide(factors.after, numel, dtype, unit, last);
        std::int32_t result = output;
        if (dtype != g.orig) {
            result = reduce_buffer(g, unit, bytes_of(numel, g.orig).count, Category::gradient_shard, last);
            emit_.allocate(result);
            emit_.copy(bytes_of(numel, dtype).count, unit, last);
            if (replicated) {
                g.held_output = output;
            } else {
                emit_.free(output);
            }
        }
        if (job_.offload) {
            result = to_host(g, unit, result, numel, last);
        }
        if (g.has_sharded_gradient) {
            emit_.copy(bytes_of(numel, g.orig).count, unit, last);
            if (replicated && result == output) {
                g.held_output = output;
            } else {
                emit_.release(result);
            }
        } else {
            g.sharded_gradient = result;
            g.has_sharded_gradient = true;
            emit_.relabel(result, Category::gradient_shard);
        }
        for (const Gradient& gradient : gradients_) {
            reduced_[at(gradient.member->tensor)] = 1;
        }
        emit_.release(g.partial);
        g.partial = -1;
        post_reduce_ = last;
    }

    // The stream's later work runs behind the copy, so that the device's gradient goes at once.
    std::int32_t to_host(Group& g, std::int32_t unit, std::int32_t gradient, std::int64_t numel,
                         Stream stream) {
        const std::int64_t bytes = bytes_of(numel, g.orig).count;
        const std::int32_t host = pooled(g.reduce_buffers, {.bytes = bytes,
                                                            .category = Category::gradient_shard,
                                                            .stream = Stream::compute,
                                                            .on_host = true,
                                                            .unit = unit});
        emit_.allocate(host);
        emit_.copy(bytes, unit, stream, OpKind::to_host);
        emit_.release(gradient);
        return host;
    }

    bool has_replicas() const { return job_.mesh.replicate > 1; }

    void release_oldest_input() {
        const auto [input, event] = reduce_scatter_states_.front();
        reduce_scatter_states_.pop_front();
        emit_.wait(Stream::compute, event);
        emit_.free(input);
    }

    void finalize(Group& g) {
        emit_.after(Stream::compute, post_reduce_);
        emit_.release(g.held_output);
        if (job_.offload) {
            emit_.block(emit_.record(Stream::compute));
        }
        // A gather for nothing: its buffer was kept until now.
        if (g.pending) {
            if (torch_.keeps_stray_gathers) {
                stray_gathers_.push_back(g.gather_buffer);
            } else {
                emit_.release(g.gather_buffer);
            }
            g.pending = false;
        }
        g.post_forward_indices.clear();
    }

    struct ReduceScatterState {
        std::int32_t input;
        std::int32_t event;
    };

    const TrainingJob& job_;
    const TorchBehaviour& torch_;
    const std::int64_t rank_;
    TrainingLoop loop_;
    Emitter& emit_;
    std::vector<Group> groups_;
    std::vector<Gradient> gradients_;  // of the reduction under way
    std::vector<std::int32_t> place_;  // of each tensor among the members of its group
    std::vector<char> reduced_;        // tensors whose sharded gradient is there
    std::vector<std::int32_t> post_forward_order_;
    std::deque<ReduceScatterState> reduce_scatter_states_;
    std::int32_t gather_state_ = -1;  // buffer that the last copy-out left behind
    std::int32_t gather_state_event_ = -1;
    std::int32_t forward_root_ = -1;
    std::vector<std::int32_t> stray_gathers_;
    std::int32_t kept_by_caller_ = -1;  // gradient that outlives its post-backward
    Stream post_reduce_ = reduce_scatter_stream;
    bool final_callback_ = false;
    bool reduce_gradients_ = true;
    bool reshard_after_backward_ = true;
    bool last_backward_ = true;
    bool all_reduce_gradients_ = true;
};

Schedule lower_fsdp2(const LoweringInput& input) {
    Schedule out;
    out.stream_names = {"compute",        "all_gather_copy_in", "all_gather",
                        "reduce_scatter", "all_reduce",         "transfer"};
    Fsdp2(input, out).run();
    return out;
}

constexpr std::array strategies{Strategy::full_shard, Strategy::shard_grad_op, Strategy::hybrid_shard,
                                Strategy::hybrid_shard_zero2};

}  // namespace

namespace builtin::runtime {

extern const RuntimeInfo fsdp2;
constinit const RuntimeInfo fsdp2{
    .name = "fsdp2",
    .help = "torch.distributed.fsdp.fully_shard",
    .wraps_by_policy = false,
    .has_units = true,
    .strategies = strategies,
    .lower = lower_fsdp2,
};

}  // namespace builtin::runtime
}  // namespace fsdplan
