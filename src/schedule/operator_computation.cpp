#include "schedule/operator_computation.hpp"

#include <algorithm>
#include <utility>

namespace fsdplan {
namespace {

using Kind = MemoryEvent::Kind;

Category category_of(Storage::Use use) {
    switch (use) {
        case Storage::Use::activation:
            return Category::activation;
        case Storage::Use::logits:
            return Category::logits;
        case Storage::Use::temporary:
            return Category::temporary;
    }
    return Category::temporary;
}

std::size_t index(std::int32_t i) {
    return static_cast<std::size_t>(i);
}

/// What the model returns beside the loss: the last storage in front of the loss that the graph calls logits,
/// else the first of the last leaf, the head's. -1: none.
std::int32_t output_of(const OperatorGraph& graph) {
    if (!graph.returns_logits) {
        return -1;
    }
    for (std::size_t part = graph.calls.size(); part-- > 0;) {
        std::int32_t first = -1;
        std::int32_t logits = -1;
        for (const MemoryEvent& event : graph.forward_of(part)) {
            if (event.kind == Kind::allocate) {
                first = first < 0 ? event.index : first;
                logits =
                    graph.storages[index(event.index)].use == Storage::Use::logits ? event.index : logits;
            }
        }
        if (first >= 0) {
            return logits >= 0 ? logits : first;
        }
    }
    return -1;
}

/// Storages that autograd saves and never releases, and those of backward that nobody drops: what takes
/// gradients of its own, and these.
std::vector<char> outliving(const OperatorGraph& graph) {
    std::vector<std::int32_t> held(graph.storages.size(), 0);
    const auto count = [&](const std::vector<MemoryEvent>& events, Kind taken, Kind let_go) {
        for (const MemoryEvent& event : events) {
            if (event.kind == taken) {
                ++held[index(event.index)];
            } else if (event.kind == let_go) {
                --held[index(event.index)];
            }
        }
    };
    count(graph.forward, Kind::save, Kind::release);
    count(graph.backward, Kind::save, Kind::release);
    count(graph.backward, Kind::allocate, Kind::drop);
    std::vector<char> out;
    for (const std::int32_t holders : held) {
        out.push_back(holders > 0 ? 1 : 0);
    }
    return out;
}

}  // namespace

OperatorComputation::OperatorComputation(const LoweringInput& input, const ForwardProgram& program,
                                         Emitter& emit)
    : graph_(*input.operators),
      program_(program),
      emit_(emit),
      buffer_(input.operators->storages.size(), -1),
      holders_(input.operators->storages.size(), 0),
      kept_(kept_operators(*input.operators, program, input.tree, input.job.activation_checkpointing)),
      outlives_(outliving(*input.operators)),
      workspaces_(input.workspace_bytes, emit),
      output_storage_(output_of(*input.operators)) {
    emit.shapes(graph_.shapes);
}

void OperatorComputation::allocate(std::int32_t storage) {
    std::int32_t& buffer = buffer_[index(storage)];
    if (recomputing_ && kept_.storages[index(storage)] != 0 && holders_[index(storage)] > 0) {
        recomputed_.push_back(storage);  // handed out: the program holds it now
        return;
    }
    if (holders_[index(storage)] > 0) {
        replaced_.push_back(buffer);
        buffer = -1;
    }
    if (buffer < 0) {
        const Storage& of = graph_.storages[index(storage)];
        buffer = emit_.buffer({.bytes = of.bytes, .category = category_of(of.use), .module = module_});
    }
    emit_.allocate(buffer);
    holders_[index(storage)] = 1;
    if (keeping_ && kept_.storages[index(storage)] != 0) {
        hold(storage);
    }
    if (recomputing_) {
        recomputed_.push_back(storage);
    } else if (storage == output_storage_) {
        hold(storage);
        output_.push_back(buffer);
    }
}

void OperatorComputation::hold(std::int32_t storage) {
    if (holders_[index(storage)] > 0) {
        ++holders_[index(storage)];
    }
}

void OperatorComputation::let_go(std::int32_t storage) {
    if (holders_[index(storage)] > 0 && --holders_[index(storage)] == 0) {
        emit_.release(buffer_[index(storage)]);
    }
}

void OperatorComputation::release(std::int32_t storage) {
    const auto gone = std::ranges::find(unpacked_, storage);
    if (gone != unpacked_.end()) {
        unpacked_.erase(gone);
    } else {
        let_go(storage);
    }
}

void OperatorComputation::compute(std::int32_t row) {
    const Operator& op = graph_.operators[index(row)];
    if (recomputing_ && kept_.operators[index(row)] != 0) {
        return;
    }
    workspaces_.before_product(op.flops);
    const std::int32_t module =
        op.call < 0 ? -1 : static_cast<std::int32_t>(graph_.calls.module[index(op.call)]);
    const bool attention = op.kind != Operator::Kind::other;
    emit_.add(
        {.kind = OpKind::compute,
         .pass = emit_.pass,
         .detail = static_cast<std::uint8_t>(attention ? ComputeKind::attention : ComputeKind::products),
         .module = module,
         .target = op.shape,
         .launches = 1,
         .bytes = op.bytes,
         .flops = op.kind == Operator::Kind::causal_attention ? op.flops / 2 : op.flops});
}

void OperatorComputation::play(Events events, bool saves, const OnGradient& on_gradient) {
    for (const MemoryEvent& event : events) {
        switch (event.kind) {
            case Kind::allocate:
                allocate(event.index);
                break;
            case Kind::run:
                compute(event.index);
                break;
            case Kind::save:
                if (saves) {
                    hold(event.index);
                }
                break;
            case Kind::drop:
                let_go(event.index);
                if (recomputing_) {
                    std::erase(recomputed_, event.index);
                }
                break;
            case Kind::unpack:
                if (unpacking_) {
                    let_go(event.index);
                    unpacked_.push_back(event.index);
                }
                break;
            case Kind::release:
                release(event.index);
                break;
            case Kind::gradient:
                on_gradient(static_cast<TensorIndex>(event.index));
                break;
        }
    }
}

/// Where a recomputation has all that backward needs: in front of the last operator that saves anything, or
/// behind it when it saves what it computes.
OperatorComputation::Stop OperatorComputation::stop_of(Events events) {
    const auto is_save = [](const MemoryEvent& event) { return event.kind == Kind::save; };
    Stop stop;
    stop.saves_end = events.size();
    while (stop.saves_end > 0 && !is_save(events[stop.saves_end - 1])) {
        --stop.saves_end;
    }
    stop.saves_begin = stop.saves_end;
    while (stop.saves_begin > 0 && is_save(events[stop.saves_begin - 1])) {
        --stop.saves_begin;
    }
    const Events saves = events.subspan(stop.saves_begin, stop.saves_end - stop.saves_begin);
    stop.before = stop.saves_begin;
    for (std::size_t i = stop.saves_begin; i-- > 0;) {
        if (events[i].kind == Kind::allocate) {
            if (std::ranges::find(saves, MemoryEvent{Kind::save, events[i].index}) != saves.end()) {
                stop.before = stop.saves_begin;
                return stop;
            }
            stop.before = stop.before == stop.saves_begin ? i : stop.before;
        } else if (events[i].kind != Kind::run) {
            break;
        }
    }
    return stop;
}

void OperatorComputation::forward(std::int32_t call, Forward how) {
    const Events events = graph_.forward_of(index(call));
    module_ = static_cast<std::int32_t>(program_.calls[index(call)].module);
    keeping_ = how == Forward::plain;
    recomputing_ = how == Forward::recomputing || how == Forward::stopping;
    if (how != Forward::stopping) {
        play(events, how != Forward::plain);
    } else {
        const Stop stop = stop_of(events);
        play(events.first(stop.before), true);
        play(events.subspan(stop.saves_begin, stop.saves_end - stop.saves_begin), true);
        // The exception that ends a recomputation takes the frames with it.
        drop_recomputed();
    }
    recomputing_ = false;
    keeping_ = false;
}

void OperatorComputation::backward(std::int32_t call, const Unpacking& unpacking,
                                   const OnGradient& on_gradient) {
    module_ = static_cast<std::int32_t>(program_.calls[index(call)].module);
    unpacking_ = unpacking.active;
    const Events events = graph_.backward_of(index(call));
    std::size_t rest = 0;
    if (unpacking.last_of >= 0) {
        // A checkpoint goes with the last tensor that it stood in for, and lets go of the inputs.
        const auto last = std::find_if(events.rbegin(), events.rend(),
                                       [](const MemoryEvent& e) { return e.kind == Kind::release; });
        rest = static_cast<std::size_t>(events.rend() - last);
        play(events.first(rest), false, on_gradient);
        release_inputs(unpacking.last_of);
    }
    play(events.subspan(rest), false, on_gradient);
    unpacking_ = false;
}

// As the model's forward returns, the loop forgets what the one before returned.
void OperatorComputation::loss() {
    const auto forget = [&] {
        while (output_.size() > 1) {
            drop_oldest_output();
        }
    };
    if (!graph_.loss_in_model) {
        forget();
    }
    module_ = -1;
    play(graph_.forward_of(graph_.calls.size()), true);
    forget();
}

void OperatorComputation::loss_backward(const OnGradient& on_gradient) {
    module_ = -1;
    play(graph_.backward_of(graph_.calls.size()), false, on_gradient);
}

void OperatorComputation::drop_output() {
    while (!output_.empty()) {
        drop_oldest_output();
    }
}

void OperatorComputation::drop_oldest_output() {
    const std::int32_t buffer = output_.front();
    output_.erase(output_.begin());
    if (buffer_[index(output_storage_)] == buffer) {
        let_go(output_storage_);
    } else if (std::erase(replaced_, buffer) > 0) {
        emit_.release(buffer);
    }
}

void OperatorComputation::keep_inputs(std::int32_t call) {
    for (const std::int32_t storage : graph_.inputs_of(index(call))) {
        hold(storage);
    }
}

void OperatorComputation::release_inputs(std::int32_t call) {
    for (const std::int32_t storage : graph_.inputs_of(index(call))) {
        let_go(storage);
    }
}

void OperatorComputation::drop_recomputed() {
    for (const std::int32_t storage : recomputed_) {
        let_go(storage);
    }
    recomputed_.clear();
}

std::optional<Computation::Saving> OperatorComputation::saving(std::int32_t call) const {
    std::optional<Saving> found;
    for (std::int32_t c = call; c < program_.calls[index(call)].end; ++c) {
        const Events events = graph_.forward_of(index(c));
        if (std::ranges::any_of(events, [](const MemoryEvent& e) { return e.kind == Kind::save; })) {
            found = Saving{.first = found ? found->first : c, .last = c};
        }
    }
    return found;
}

void OperatorComputation::leave_graph() {
    for (std::size_t s = 0; s < holders_.size(); ++s) {
        const bool held_by_loop = std::ranges::find(output_, buffer_[s]) != output_.end();
        if (holders_[s] > 0 && !held_by_loop) {
            if (outlives_[s] != 0) {
                left_.push_back(std::exchange(buffer_[s], -1));
            } else {
                emit_.release(buffer_[s]);
            }
        }
        holders_[s] = holders_[s] > 0 && held_by_loop ? 1 : 0;
    }
    for (const std::int32_t buffer : replaced_) {
        emit_.release(buffer);
    }
    replaced_.clear();
    recomputed_.clear();
}

void OperatorComputation::drop_graph() {
    for (const std::int32_t buffer : left_) {
        emit_.release(buffer);
    }
    left_.clear();
}

}  // namespace fsdplan
