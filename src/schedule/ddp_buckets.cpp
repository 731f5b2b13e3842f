#include "schedule/ddp_buckets.hpp"

#include <algorithm>

namespace fsdplan::ddp {
namespace {

constexpr std::int64_t default_cap = std::int64_t{25} << 20U;
constexpr std::int64_t default_first_cap = std::int64_t{1} << 20U;
constexpr std::int64_t broadcast_chunk = std::int64_t{250} << 20U;

std::size_t at(std::int32_t row) {
    return static_cast<std::size_t>(row);
}

CollectiveCall world_call(CollectiveKind kind, DType dtype, std::int64_t numel, std::int64_t ranks) {
    return {.kind = kind,
            .group = RankGroup::world,
            .dtype = dtype,
            .reduction = kind == CollectiveKind::all_reduce ? Reduction::sum : Reduction::none,
            .ranks = ranks,
            .input_numel = numel,
            .output_numel = kind == CollectiveKind::all_gather ? numel * ranks : numel};
}

std::vector<std::int32_t> all_rows(std::size_t count) {
    std::vector<std::int32_t> rows(count);
    for (std::size_t i = 0; i < count; ++i) {
        rows[i] = static_cast<std::int32_t>(i);
    }
    return rows;
}

// Where c10d is given no indices of its own it sorts the buckets by their first tensor.
void sort_by_first(std::vector<Bucket>& buckets) {
    std::ranges::sort(buckets, {}, [](const Bucket& bucket) { return std::ranges::min(bucket.parameters); });
}

/// What dist._broadcast_coalesced sends for a list of tensors.
std::vector<CollectiveCall> broadcast_coalesced(std::span<const Parameter> tensors, std::int64_t ranks) {
    std::vector<Bucket> buckets =
        assign_buckets(tensors, all_rows(tensors.size()), std::span(&broadcast_chunk, 1));
    sort_by_first(buckets);
    std::vector<CollectiveCall> calls;
    for (const Bucket& bucket : buckets) {
        calls.push_back(world_call(CollectiveKind::broadcast, bucket.dtype, bucket.numel, ranks));
    }
    return calls;
}

std::vector<Parameter> as_tensors(std::span<const ModuleBuffer> buffers) {
    std::vector<Parameter> tensors;
    for (const ModuleBuffer& buffer : buffers) {
        tensors.push_back({.dtype = buffer.dtype, .numel = buffer.numel});
    }
    return tensors;
}

}  // namespace

std::vector<Bucket> assign_buckets(std::span<const Parameter> parameters, std::span<const std::int32_t> order,
                                   std::span<const std::int64_t> limits) {
    FSDPLAN_ASSERT(!limits.empty(), "buckets have a limit, if only no_limit");
    struct Open {
        Bucket bucket;
        std::size_t limit = 0;
    };
    std::vector<Open> open;  // one of each dtype, as they appear
    std::vector<Bucket> closed;
    for (const std::int32_t row : order) {
        const Parameter& parameter = parameters[at(row)];
        if (parameter.sparse) {
            closed.push_back({.dtype = parameter.dtype, .numel = parameter.numel, .parameters = {row}});
            continue;
        }
        auto found = std::ranges::find(open, parameter.dtype, [](const Open& o) { return o.bucket.dtype; });
        if (found == open.end()) {
            open.push_back({.bucket = {.dtype = parameter.dtype}});
            found = open.end() - 1;
        }
        Bucket& bucket = found->bucket;
        bucket.parameters.push_back(row);
        bucket.numel += parameter.numel;
        if (bytes_of(bucket.numel, bucket.dtype).count >= limits[found->limit]) {
            closed.push_back(std::move(bucket));
            bucket = {.dtype = parameter.dtype};
            found->limit = std::min(found->limit + 1, limits.size() - 1);
        }
    }
    for (auto rest = open.rbegin(); rest != open.rend(); ++rest) {
        if (!rest->bucket.parameters.empty()) {
            closed.push_back(std::move(rest->bucket));
        }
    }
    return closed;
}

std::vector<std::int32_t> reduced_parameters(std::span<const Parameter> parameters) {
    std::vector<std::int32_t> rows;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].trainable && !parameters[i].ignored) {
            rows.push_back(static_cast<std::int32_t>(i));
        }
    }
    return rows;
}

std::int64_t bucket_cap(const Options& options) {
    return options.bucket_cap_list.empty() ? options.bucket_cap_bytes.value_or(default_cap)
                                           : std::ranges::max(options.bucket_cap_list);
}

namespace {

/// Limits once buckets count at all. The small first bucket is there only while nobody has named a cap.
std::vector<std::int64_t> usual_limits(const Options& options) {
    if (!options.bucket_cap_list.empty()) {
        return options.bucket_cap_list;
    }
    if (options.bucket_cap_bytes) {
        return {*options.bucket_cap_bytes};
    }
    return {default_first_cap, default_cap};
}

}  // namespace

std::vector<std::int64_t> initial_limits(const Options& options) {
    const bool unlimited =
        options.bucket_cap_list.empty() && (options.static_graph || !options.find_unused_parameters);
    return unlimited ? std::vector{no_limit} : usual_limits(options);
}

std::vector<Bucket> initial_buckets(std::span<const Parameter> parameters, const Options& options) {
    std::vector<Bucket> buckets =
        assign_buckets(parameters, reduced_parameters(parameters), initial_limits(options));
    sort_by_first(buckets);
    std::ranges::reverse(buckets);  // gradients of the last parameters tend to be ready first
    return buckets;
}

bool rebuilds(const Options& options) {
    return options.static_graph || !options.find_unused_parameters;
}

std::vector<Bucket> rebuilt_buckets(std::span<const Parameter> parameters, const Options& options,
                                    std::span<const std::int32_t> ready) {
    std::vector<std::int32_t> order(ready.begin(), ready.end());
    for (const std::int32_t row : reduced_parameters(parameters)) {
        if (std::ranges::find(ready, row) == ready.end()) {
            order.push_back(row);
        }
    }
    return assign_buckets(parameters, order, usual_limits(options));
}

std::vector<CollectiveCall> construction(std::span<const Parameter> parameters,
                                         std::span<const ModuleBuffer> buffers, const Options& options) {
    if (!options.init_sync) {
        return {};
    }
    std::vector<CollectiveCall> calls{
        world_call(CollectiveKind::all_gather, DType::int64, 1, options.ranks),
        world_call(CollectiveKind::broadcast, DType::int64, options.shape_numbers, options.ranks)};
    std::vector<Parameter> states;
    for (const Parameter& parameter : parameters) {
        if (!parameter.ignored) {
            states.push_back({.dtype = parameter.dtype, .numel = parameter.numel});
        }
    }
    if (options.broadcast_buffers) {
        std::ranges::copy(as_tensors(buffers), std::back_inserter(states));
    }
    std::ranges::copy(broadcast_coalesced(states, options.ranks), std::back_inserter(calls));
    return calls;
}

Reducer::Reducer(std::vector<Parameter> parameters, std::vector<ModuleBuffer> buffers, Options options)
    : parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      options_(std::move(options)),
      reduced_(reduced_parameters(parameters_)),
      awaited_(parameters_.size(), 0) {
    use(initial_buckets(parameters_, options_));
}

void Reducer::use(std::vector<Bucket> buckets) {
    buckets_ = std::move(buckets);
    bucket_of_.assign(parameters_.size(), -1);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        for (const std::int32_t row : buckets_[b].parameters) {
            bucket_of_[at(row)] = static_cast<std::int32_t>(b);
        }
    }
}

Event Reducer::small(CollectiveKind kind, DType dtype, std::int64_t numel) const {
    return {.kind = Event::Kind::collective, .call = world_call(kind, dtype, numel, options_.ranks)};
}

std::vector<Event> Reducer::forward(bool synchronised) {
    std::vector<Event> out;
    started_ = false;
    if (rebuilds(options_) && !rebuilt_ && !ready_.empty()) {
        use(rebuilt_buckets(parameters_, options_, ready_));
        rebuilt_ = true;
        // Rank 0's assignment: a row for every parameter, with its own length, then each bucket's.
        out.push_back(
            small(CollectiveKind::broadcast, DType::int32, static_cast<std::int64_t>(reduced_.size()) + 1));
        out.push_back(
            small(CollectiveKind::broadcast, DType::int32, static_cast<std::int64_t>(buckets_.size())));
    }
    // A rank that has just accumulated on its own has not changed its parameters.
    if (synchronise_buffers_ && options_.broadcast_buffers) {
        for (const CollectiveCall& call : broadcast_coalesced(as_tensors(buffers_), options_.ranks)) {
            out.push_back({.kind = Event::Kind::collective, .call = call});
        }
    }
    synchronise_buffers_ = synchronised;
    synchronised_ = synchronised;
    rounds_ += synchronised ? 1 : 0;
    return out;
}

void Reducer::backward(std::span<const std::int32_t> gradients) {
    std::ranges::fill(awaited_, 0);
    for (const std::int32_t row : gradients) {
        ++awaited_[at(row)];
    }
    if (!synchronised_) {
        return;
    }
    next_ = 0;
    missing_.clear();
    for (const Bucket& bucket : buckets_) {
        missing_.push_back(static_cast<std::int64_t>(bucket.parameters.size()));
    }
    // Unused parameters are known beforehand: from the graph, or, when it is static, from the first
    // iteration.
    if (options_.find_unused_parameters || (options_.static_graph && rounds_ > 1)) {
        for (const std::int32_t row : reduced_) {
            if (awaited_[at(row)] == 0) {
                mark_ready(row);
            }
        }
    }
}

void Reducer::mark_ready(std::int32_t parameter) {
    --missing_[at(bucket_of_[at(parameter)])];
}

void Reducer::start_buckets(std::vector<Event>& out) {
    for (; next_ < buckets_.size() && missing_[next_] == 0; ++next_) {
        Event event = small(CollectiveKind::all_reduce, options_.hook_dtype.value_or(buckets_[next_].dtype),
                            buckets_[next_].numel);
        event.bucket = static_cast<std::int32_t>(next_);
        out.push_back(event);
    }
}

std::vector<Event> Reducer::gradient(std::int32_t parameter) {
    std::vector<Event> out;
    const bool last = --awaited_[at(parameter)] == 0;
    const bool first_static = options_.static_graph && rounds_ == 1;
    if (!synchronised_ || !last || bucket_of_[at(parameter)] < 0 || first_static) {
        return out;
    }
    started_ = true;
    if (!rebuilt_) {
        ready_.push_back(parameter);
    }
    const bool complete = next_ == buckets_.size();
    mark_ready(parameter);
    start_buckets(out);
    if (options_.find_unused_parameters && !options_.static_graph && !complete && next_ == buckets_.size()) {
        out.push_back(
            small(CollectiveKind::all_reduce, DType::int32, static_cast<std::int64_t>(reduced_.size())));
    }
    return out;
}

std::vector<Event> Reducer::backward_end() {
    std::vector<Event> out;
    // The first backward learns a static graph: nothing is sent before its end, which parameters were used
    // first of all. It does so under no_sync too, and then fails.
    if (options_.static_graph && (synchronised_ ? rounds_ == 1 : rounds_ == 0)) {
        out.push_back(
            small(CollectiveKind::all_reduce, DType::int32, static_cast<std::int64_t>(reduced_.size())));
        missing_.assign(buckets_.size(), 0);
        start_buckets(out);
    }
    return out;
}

Training train(std::span<const Parameter> parameters, std::span<const ModuleBuffer> buffers,
               const Options& options, std::span<const std::int32_t> ready, std::int64_t iterations) {
    Training training;
    Reducer reducer({parameters.begin(), parameters.end()}, {buffers.begin(), buffers.end()}, options);
    std::vector<std::int64_t> reported;
    std::int64_t reductions = 0;
    for (std::int64_t i = 0; i < iterations; ++i) {
        std::vector<Event>& events = training.iterations.emplace_back();
        const auto add = [&](const std::vector<Event>& more) {
            events.insert(events.end(), more.begin(), more.end());
        };
        const auto mark = [&](Event::Kind kind) { events.push_back({.kind = kind}); };
        for (std::int64_t micro = 0; micro < options.accumulate; ++micro) {
            const bool synchronised = micro + 1 == options.accumulate;
            mark(Event::Kind::forward_begin);
            if (synchronised) {  // the logger looks before anything else happens
                training.reported_reductions = reductions;
                if (reducer.rebuilt() && reported.empty()) {
                    for (const Bucket& bucket : reducer.buckets()) {
                        reported.push_back(bytes_of(bucket.numel, bucket.dtype).count);
                    }
                }
            }
            if (reducer.stuck()) {
                training.refusal = Refusal{.reason = Refusal::Reason::unfinished, .iteration = i};
                break;
            }
            add(reducer.forward(synchronised));
            mark(Event::Kind::backward_begin);
            reducer.backward(ready);
            std::int64_t started = 0;
            const auto count = [&](const std::vector<Event>& more) {
                started += std::ranges::count_if(more, [](const Event& e) { return e.bucket >= 0; });
                add(more);
            };
            for (const std::int32_t row : ready) {
                events.push_back({.kind = Event::Kind::gradient, .parameter = row});
                count(reducer.gradient(row));
            }
            count(reducer.backward_end());
            if (options.static_graph && !synchronised) {
                training.refusal = Refusal{.reason = Refusal::Reason::static_accumulation, .iteration = i};
                break;
            }
            mark(Event::Kind::backward_end);
            reductions = synchronised ? started : reductions;
        }
        training.reported_buckets.push_back(reported);
        if (training.refusal) {
            break;
        }
    }
    return training;
}

}  // namespace fsdplan::ddp
