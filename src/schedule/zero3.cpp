#include "schedule/zero3.hpp"

#include <algorithm>
#include <limits>

#include "fsdplan/base.hpp"

namespace fsdplan::zero {
namespace {

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::min();

std::size_t at(std::int32_t row) {
    return static_cast<std::size_t>(row);
}

bool contains(const std::vector<std::int32_t>& rows, std::int32_t row) {
    return std::ranges::find(rows, row) != rows.end();
}

void add_once(std::vector<std::int32_t>& rows, std::int32_t row) {
    if (!contains(rows, row)) {
        rows.push_back(row);
    }
}

Pass pass_of(const Hook& hook) {
    return hook.backward ? Pass::backward : Pass::forward;
}

/// Gathers one parameter after the other.
void gather_alone(std::span<const std::int32_t> rows, const Layout3& layout, const Options& options,
                  Pass pass, Purpose purpose, std::vector<Event>& out) {
    if (options.ranks == 1) {
        return;
    }
    for (const std::int32_t row : rows) {
        const std::int64_t part = layout.partition_numel[at(row)];
        out.push_back({.pass = pass,
                       .purpose = purpose,
                       .call = world_call(options, CollectiveKind::all_gather, options.dtype, part,
                                          part * options.ranks),
                       .parameters = {row}});
    }
}

}  // namespace

Layout3 layout3(std::span<const Parameter> parameters, const Options& options) {
    Layout3 layout;
    std::int64_t kept = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const std::int64_t numel = parameters[i].numel;
        layout.partition_numel.push_back(ceil_div(numel, options.ranks));
        if (numel <= options.param_persistence_threshold &&
            numel <= options.model_persistence_threshold - kept) {
            layout.persistent.push_back(static_cast<std::int32_t>(i));
            kept += numel;
        }
    }
    for (std::int32_t g = 0; g < group_count(parameters); ++g) {
        const std::vector<std::int32_t> members = group_members(parameters, g);
        std::vector<std::int32_t> sub_group;
        std::int64_t numel = 0;
        for (const std::int32_t row : members) {
            sub_group.push_back(row);
            numel += layout.partition_numel[at(row)];
            if (numel >= options.sub_group_size || row == members.back()) {
                layout.sub_groups.push_back(std::move(sub_group));
                layout.sub_group_numel.push_back(numel);
                sub_group.clear();
                numel = 0;
            }
        }
    }
    return layout;
}

GradientBucket::GradientBucket(std::vector<Parameter> parameters, const Options& options)
    : parameters_(std::move(parameters)), layout_(layout3(parameters_, options)), options_(options) {}

std::vector<Event> GradientBucket::add(std::int32_t row) {
    const std::int64_t numel = parameters_[at(row)].numel;
    std::vector<Event> out;
    if (numel_ + numel > options_.reduce_bucket_size && numel_ > 0) {
        out = flush();
    }
    rows_.push_back(row);
    numel_ += numel;
    return out;
}

std::vector<Event> GradientBucket::flush() {
    if (rows_.empty()) {
        return {};
    }
    Event event{.pass = Pass::backward};
    // A buffer of its own holds the bucket only as long as it fits.
    if (options_.contiguous_gradients && !options_.reduce_scatter && numel_ <= options_.reduce_bucket_size) {
        event.purpose = Purpose::undivided_gradients;
        event.call = world_call(options_, CollectiveKind::all_reduce, options_.wire_dtype(), numel_, numel_,
                                Reduction::sum);
    } else {
        std::ranges::sort(rows_, {}, [&](std::int32_t row) { return parameters_[at(row)].created; });
        std::int64_t part = 0;
        for (const std::int32_t row : rows_) {
            part += layout_.partition_numel[at(row)];
        }
        event.purpose = Purpose::scattered_gradients;
        event.call = world_call(options_, CollectiveKind::reduce_scatter, options_.wire_dtype(),
                                part * options_.ranks, part, Reduction::sum);
    }
    event.parameters = std::move(rows_);
    rows_.clear();
    numel_ = 0;
    return {std::move(event)};
}

std::vector<Event> zero3_construction(std::span<const Parameter> parameters, const Options& options) {
    std::vector<Event> events = broadcast_parameters(parameters, options);
    std::vector<Event> again = events;
    for (Event& event : again) {
        event.purpose = Purpose::partition_parameter;
        events.push_back(std::move(event));
    }
    const Layout3 layout = layout3(parameters, options);
    for (const std::vector<std::int32_t>& sub_group : layout.sub_groups) {
        gather_alone(sub_group, layout, options, Pass::forward, Purpose::check_partition, events);
    }
    return events;
}

std::vector<GradientReady> place_gradients(std::span<const Module> modules, std::span<const Hook> hooks,
                                           std::span<const std::int32_t> ready) {
    std::map<std::int32_t, std::vector<std::int32_t>> owners;
    for (std::size_t m = 0; m < modules.size(); ++m) {
        for (const std::int32_t row : modules[m].leaf ? modules[m].below : modules[m].parameters) {
            owners[row].push_back(static_cast<std::int32_t>(m));
        }
    }
    std::map<std::int32_t, std::size_t> last_entry;
    for (std::size_t h = 0; h < hooks.size(); ++h) {
        if (hooks[h].backward && hooks[h].enter) {
            last_entry[hooks[h].module] = h;
        }
    }
    std::vector<GradientReady> places;
    for (const std::int32_t row : ready) {
        std::size_t place = 0;  // of the owner that comes last
        std::int32_t owner = -1;
        for (const std::int32_t module : owners[row]) {
            const auto entry = last_entry.find(module);
            if (entry != last_entry.end() && entry->second >= place) {
                place = entry->second;
                owner = module;
            }
        }
        if (owner < 0) {
            place = hooks.size();
        } else {
            // Its backward may lack an end: that of a module whose inputs need no gradient.
            std::size_t end = place + 1;
            while (end < hooks.size() && (hooks[end].module != owner || hooks[end].enter)) {
                ++end;
            }
            place = end < hooks.size() ? end : place + 1;
        }
        places.push_back({.hook = place, .parameter = row});
    }
    std::ranges::stable_sort(places, {}, &GradientReady::hook);
    return places;
}

Coordinator::Coordinator(std::vector<Parameter> parameters, std::vector<Module> modules,
                         const Options& options)
    : parameters_(std::move(parameters)),
      modules_(std::move(modules)),
      options_(options),
      layout_(layout3(parameters_, options_)),
      persistent_(parameters_.size(), 0),
      external_(modules_.size()),
      status_(parameters_.size(), Status::away),
      flight_(parameters_.size(), -1),
      active_(parameters_.size()),
      last_fetched_for_(parameters_.size(), never) {
    for (const std::int32_t row : layout_.persistent) {
        persistent_[at(row)] = 1;
    }
    if (options_.allgather_sequential) {
        options_.prefetch_bucket_size = 1;
    }
}

/// In the order of creation.
std::vector<std::int32_t> Coordinator::parameters_of(std::int32_t module, bool whole_subtree) const {
    const Module& m = modules_[at(module)];
    std::vector<std::int32_t> rows;
    for (const std::int32_t row : whole_subtree ? m.below : m.parameters) {
        add_once(rows, row);
    }
    for (const std::int32_t row : external_[at(module)]) {
        add_once(rows, row);
    }
    std::ranges::sort(rows, {}, [&](std::int32_t row) { return parameters_[at(row)].created; });
    return rows;
}

std::vector<std::int32_t> Coordinator::own(std::int32_t module) const {
    return parameters_of(module, modules_[at(module)].leaf);
}

void Coordinator::check_trace(std::size_t length, std::vector<Event>& out) const {
    const auto numel = static_cast<std::int64_t>(length);
    out.push_back({.purpose = Purpose::trace_length,
                   .call = world_call(options_, CollectiveKind::broadcast, DType::int64, 1, 1)});
    out.push_back({.purpose = Purpose::trace_list,
                   .call = world_call(options_, CollectiveKind::broadcast, DType::int64, numel, numel)});
}

void Coordinator::begin_forward(std::vector<Event>& out) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (flight_[i] >= 0) {
            wait_for(static_cast<std::int32_t>(i));
            release(static_cast<std::int32_t>(i));
        }
    }
    if (trace_ != Trace::complete) {
        check_trace(order_.size(), out);
        if (trace_ == Trace::recording) {
            for (std::size_t step = 0; step < order_.size(); ++step) {
                for (const std::int32_t row : own(order_[step])) {
                    uses_.push_back({.parameter = row, .step = static_cast<std::int64_t>(step)});
                }
            }
            check_trace(uses_.size(), out);  // the parameters …
            check_trace(uses_.size(), out);  // … and the steps that use them
        }
        trace_ = trace_ == Trace::recording ? Trace::complete : Trace::recording;
    }
    next_use_ = 0;
    std::ranges::fill(last_fetched_for_, never);
    step_ = 0;
    live_numel_ = 0;
}

void Coordinator::hook(const Hook& hook, std::vector<Event>& out) {
    if (hook.enter) {
        enter(hook, out);
    } else {
        leave(hook);
    }
}

void Coordinator::read(const ExternalRead& read, std::vector<Event>& out) {
    if (status_[at(read.parameter)] != Status::away) {
        return;
    }
    add_once(external_[at(read.reader)], read.parameter);
    gather_alone(std::span(&read.parameter, 1), layout_, options_, Pass::forward, Purpose::external_parameter,
                 out);
    status_[at(read.parameter)] = Status::here;
}

void Coordinator::gather(std::vector<std::int32_t> rows, const Hook& hook, bool prefetched,
                         std::vector<Event>& out) {
    std::ranges::sort(rows, {}, [&](std::int32_t row) { return parameters_[at(row)].created; });
    std::int64_t part = 0;
    for (const std::int32_t row : rows) {
        part += layout_.partition_numel[at(row)];
        live_numel_ += parameters_[at(row)].numel;
        status_[at(row)] = Status::in_flight;
        flight_[at(row)] = flights_;
    }
    ++flights_;
    if (options_.ranks == 1) {
        return;
    }
    Event event{.pass = pass_of(hook),
                .purpose = Purpose::fetch,
                .module = hook.module,
                .prefetched = prefetched,
                .parameters = rows};
    const auto gather_of = [&](std::int64_t numel) {
        event.call =
            world_call(options_, CollectiveKind::all_gather, options_.dtype, numel, numel * options_.ranks);
        out.push_back(event);
    };
    if (options_.allgather_sequential || rows.size() == 1) {
        for (const std::int32_t row : rows) {
            gather_of(layout_.partition_numel[at(row)]);
        }
    } else if (options_.use_all_reduce_for_fetch_params) {
        event.call = world_call(options_, CollectiveKind::all_reduce, options_.dtype, part * options_.ranks,
                                part * options_.ranks, Reduction::sum);
        out.push_back(event);
    } else {
        gather_of(part);
    }
}

/// A set travels as one: whoever waits for one of its parameters has them all.
void Coordinator::wait_for(std::int32_t parameter) {
    const std::int64_t flight = flight_[at(parameter)];
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (flight_[i] == flight && status_[i] == Status::in_flight) {
            status_[i] = Status::here;
        }
    }
    flight_[at(parameter)] = -1;
}

void Coordinator::enter(const Hook& hook, std::vector<Event>& out) {
    if (trace_ == Trace::recording) {
        order_.push_back(hook.module);
    }
    if (hook.backward && !hook.recompute) {
        std::erase(active_backward_, hook.module);
        active_backward_.push_back(hook.module);
    }
    const std::vector<std::int32_t> mine = own(hook.module);
    std::vector<std::int32_t> missing;
    std::int64_t missing_numel = 0;
    for (const std::int32_t row : mine) {
        if (status_[at(row)] == Status::away) {
            missing.push_back(row);
            missing_numel += layout_.partition_numel[at(row)];
        }
    }
    if (missing_numel > 0) {
        gather(std::move(missing), hook, false, out);
    }
    for (const std::int32_t row : mine) {
        active_[at(row)].insert(hook.module);
        if (hook.recompute && !active_backward_.empty() && !parameters_[at(row)].trainable) {
            recomputed_[active_backward_.back()].insert(row);
            active_[at(row)].insert(active_backward_.back());
        }
        if (flight_[at(row)] >= 0) {
            wait_for(row);
        }
    }
    if (trace_ == Trace::complete) {
        drop_used(mine);
        if (options_.prefetch_bucket_size > 0) {
            prefetch(hook, out);
        }
    }
    ++step_;
}

/// What a module is using now need not be prefetched for it any more.
void Coordinator::drop_used(const std::vector<std::int32_t>& mine) {
    const auto expected = static_cast<std::size_t>(
        std::ranges::count_if(mine, [&](std::int32_t row) { return last_fetched_for_[at(row)] < step_; }));
    std::set<std::int32_t> dropped;
    while (next_use_ < uses_.size() && dropped.size() < expected) {
        const Use& use = uses_[next_use_++];
        last_fetched_for_[at(use.parameter)] = use.step;
        dropped.insert(use.parameter);
    }
}

void Coordinator::prefetch(const Hook& hook, std::vector<Event>& out) {
    const std::int64_t room =
        std::min(options_.max_live_parameters - live_numel_, options_.prefetch_bucket_size);
    std::vector<std::int32_t> rows;
    std::int64_t numel = 0;
    while (next_use_ < uses_.size() && numel < room) {
        const Use& use = uses_[next_use_++];
        // Remembering the use of one that is there already keeps it from being released before that.
        std::int64_t& last = last_fetched_for_[at(use.parameter)];
        last = std::max(last, use.step);
        if (status_[at(use.parameter)] == Status::away && !contains(rows, use.parameter)) {
            rows.push_back(use.parameter);
            numel += parameters_[at(use.parameter)].numel;
        }
    }
    if (numel > 0) {
        gather(std::move(rows), hook, true, out);
    }
}

/// DeepSpeed remembers its first answer for a module at a step for good.
const std::vector<std::int32_t>& Coordinator::released_after(std::int32_t module) {
    const auto [found, is_new] = release_cache_.try_emplace({module, step_});
    std::vector<std::int32_t>& rows = found->second;
    if (!is_new) {
        return rows;
    }
    for (const std::int32_t row : own(module)) {
        if (persistent_[at(row)] == 0 && last_fetched_for_[at(row)] <= step_) {
            rows.push_back(row);
        }
    }
    const bool whole = modules_[at(module)].leaf;
    std::int64_t traversed = 0;
    for (std::size_t i = static_cast<std::size_t>(step_); i < order_.size(); ++i) {
        if (traversed >= options_.max_reuse_distance) {
            break;
        }
        for (const std::int32_t row : parameters_of(order_[i], whole)) {
            std::erase(rows, row);
            traversed += parameters_[at(row)].numel;
        }
    }
    return rows;
}

void Coordinator::release(std::int32_t parameter) {
    if (status_[at(parameter)] == Status::here && active_[at(parameter)].empty()) {
        status_[at(parameter)] = Status::away;
        live_numel_ -= parameters_[at(parameter)].numel;
    }
}

void Coordinator::leave(const Hook& hook) {
    std::vector<std::int32_t> mine = own(hook.module);
    std::vector<std::int32_t> released = trace_ == Trace::complete ? released_after(hook.module) : mine;
    if (hook.backward && !hook.recompute) {
        for (const std::int32_t row : recomputed_[hook.module]) {
            add_once(mine, row);
            if (persistent_[at(row)] == 0) {
                add_once(released, row);
            }
        }
        recomputed_.erase(hook.module);
        std::erase(active_backward_, hook.module);
    }
    for (const std::int32_t row : mine) {
        active_[at(row)].erase(hook.module);
        if (contains(released, row)) {
            release(row);
        }
    }
}

void Coordinator::end_backward() {
    // Modules whose backward never ended: nothing that they were given needs a gradient.
    while (!active_backward_.empty()) {
        const std::int32_t module = active_backward_.back();
        active_backward_.pop_back();
        std::vector<std::int32_t> rows = own(module);
        for (const std::int32_t row : recomputed_[module]) {
            add_once(rows, row);
        }
        recomputed_.erase(module);
        for (const std::int32_t row : rows) {
            active_[at(row)].erase(module);
            if (persistent_[at(row)] == 0) {
                release(row);
            }
        }
    }
}

void Coordinator::partition_all() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const auto row = static_cast<std::int32_t>(i);
        if (flight_[i] >= 0) {
            wait_for(row);
        }
        active_[i].clear();
        release(row);
    }
}

void Coordinator::gather_persistent(std::vector<Event>& out) {
    gather_alone(layout_.persistent, layout_, options_, Pass::optimizer, Purpose::persistent_parameters, out);
    for (const std::int32_t row : layout_.persistent) {
        status_[at(row)] = Status::here;
    }
}

std::vector<std::vector<Event>> zero3_training(std::span<const Parameter> parameters,
                                               std::span<const Module> modules, const Options& options,
                                               const MicroBatch& micro_batch, std::int64_t iterations) {
    const Layout3 layout = layout3(parameters, options);
    Coordinator coordinator({parameters.begin(), parameters.end()}, {modules.begin(), modules.end()},
                            options);
    GradientBucket bucket({parameters.begin(), parameters.end()}, options);
    std::vector<std::vector<Event>> training;
    for (std::int64_t i = 0; i < iterations; ++i) {
        std::vector<Event>& out = training.emplace_back();
        const auto append = [&](const std::vector<Event>& more) {
            out.insert(out.end(), more.begin(), more.end());
        };
        for (std::int64_t micro = 0; micro < options.accumulate; ++micro) {
            coordinator.begin_forward(out);
            auto gradient = micro_batch.gradients.begin();
            auto read = micro_batch.reads.begin();
            for (std::size_t h = 0; h <= micro_batch.hooks.size(); ++h) {
                for (; gradient != micro_batch.gradients.end() && gradient->hook == h; ++gradient) {
                    append(bucket.add(gradient->parameter));
                }
                for (; read != micro_batch.reads.end() && read->hook == h; ++read) {
                    coordinator.read(*read, out);
                }
                if (h < micro_batch.hooks.size()) {
                    coordinator.hook(micro_batch.hooks[h], out);
                }
            }
            append(bucket.flush());
            coordinator.end_backward();
            if (micro + 1 < options.accumulate) {
                out.push_back({.kind = Event::Kind::microbatch_end, .pass = Pass::optimizer});
            }
        }
        coordinator.partition_all();
        if (options.dtype == DType::float16) {
            out.push_back({.pass = Pass::optimizer,
                           .purpose = Purpose::overflow,
                           .call = world_call(options, CollectiveKind::all_reduce, DType::uint8, 1, 1,
                                              Reduction::maximum)});
        }
        for (std::size_t g = 0; g < layout.sub_groups.size(); ++g) {
            out.push_back({.pass = Pass::optimizer,
                           .purpose = Purpose::norm,
                           .call = world_call(options, CollectiveKind::all_reduce, DType::float64, 1, 1,
                                              Reduction::sum)});
        }
        coordinator.gather_persistent(out);
    }
    return training;
}

}  // namespace fsdplan::zero
