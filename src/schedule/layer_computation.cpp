#include "schedule/layer_computation.hpp"

namespace fsdplan {
namespace {

void add(CallWork& sum, const CallWork& part) {
    sum.flops += part.flops;
    sum.backward_flops += part.backward_flops;
    sum.recompute_flops += part.recompute_flops;
    sum.bytes += part.bytes;
    sum.backward_bytes += part.backward_bytes;
    sum.saved_bytes += part.saved_bytes;
    sum.temporary_bytes += part.temporary_bytes;
    sum.launches += part.launches;
    sum.backward_launches += part.backward_launches;
}

}  // namespace

LayerComputation::LayerComputation(const LoweringInput& input, const ForwardProgram& program, Emitter& emit)
    : program_(program),
      loss_(input.loss),
      emit_(emit),
      saved_(program.calls.size(), -1),
      inputs_kept_(program.calls.size(), -1),
      workspaces_(input.workspace_bytes, emit) {
    add_up(input.work);
    for (std::size_t c = 0; c < program.calls.size(); ++c) {
        const auto module = static_cast<std::int32_t>(program.calls[c].module);
        if (program.calls[c].leaf) {
            saved_[c] = emit.buffer(
                {.bytes = work_[c].saved_bytes, .category = Category::activation, .module = module});
        }
        if (work_[c].input_bytes > 0) {
            inputs_kept_[c] = emit.buffer(
                {.bytes = work_[c].input_bytes, .category = Category::activation, .module = module});
        }
    }
    constexpr std::size_t outputs = 2;
    while (logits_.size() < outputs) {
        logits_.push_back(emit.buffer({.bytes = loss_.saved_bytes, .category = Category::logits}));
    }
    loss_temporary_ = emit.buffer({.bytes = loss_.temporary_bytes, .category = Category::temporary});
}

// What a module that calls others does itself counts for the first leaf that it calls, as its parameters do.
void LayerComputation::add_up(std::span<const CallWork> by_row) {
    work_.reserve(program_.calls.size());
    std::size_t callers_begin = 0;  // since the last leaf
    for (std::size_t c = 0; c < program_.calls.size(); ++c) {
        work_.push_back(by_row[at(program_.calls[c].module)]);
        if (program_.calls[c].leaf) {
            for (; callers_begin < c; ++callers_begin) {
                add(work_[c], work_[callers_begin]);
            }
            callers_begin = c + 1;
        }
    }
}

void LayerComputation::forward(std::int32_t call, Forward how) {
    const CallWork& work = work_[index(call)];
    const std::int32_t saved = saved_[index(call)];
    if (how != Forward::plain && !emit_.is_live(saved)) {
        emit_.allocate(saved);
    }
    workspaces_.before_product(work.flops);
    const bool again = emit_.pass == Pass::recompute;
    emit_.add({.kind = OpKind::compute,
               .pass = emit_.pass,
               .module = static_cast<std::int32_t>(program_.calls[index(call)].module),
               .launches = work.launches,
               .bytes = work.bytes,
               .flops = again ? work.recompute_flops : work.flops});
}

void LayerComputation::backward(std::int32_t call, const Unpacking& unpacking,
                                const OnGradient& on_gradient) {
    const CallWork& work = work_[index(call)];
    workspaces_.before_product(work.backward_flops);
    emit_.add({.kind = OpKind::compute,
               .pass = emit_.pass,
               .module = static_cast<std::int32_t>(program_.calls[index(call)].module),
               .launches = work.backward_launches,
               .bytes = work.backward_bytes,
               .flops = work.backward_flops});
    emit_.release(saved_[index(call)]);
    for (const TensorIndex t : program_.parameters(call)) {
        on_gradient(t);
    }
    if (unpacking.last_of >= 0) {
        release_inputs(unpacking.last_of);
    }
}

void LayerComputation::loss() {
    const std::int32_t before = logits_[output_now_];
    output_now_ = 1 - output_now_;
    emit_.allocate(logits_[output_now_]);
    emit_.release(before);
    emit_.allocate(loss_temporary_);
    emit_.add({.kind = OpKind::compute,
               .pass = emit_.pass,
               .launches = loss_.launches,
               .bytes = loss_.bytes,
               .flops = loss_.flops});
}

void LayerComputation::loss_backward(const OnGradient& /*on_gradient*/) {
    emit_.add({.kind = OpKind::compute,
               .pass = emit_.pass,
               .launches = loss_.backward_launches,
               .bytes = loss_.backward_bytes});
    emit_.release(loss_temporary_);
}

void LayerComputation::drop_output() {
    emit_.release(logits_[output_now_]);
}

void LayerComputation::keep_inputs(std::int32_t call) {
    if (inputs_kept_[index(call)] >= 0) {
        emit_.allocate(inputs_kept_[index(call)]);
    }
}

void LayerComputation::release_inputs(std::int32_t call) {
    emit_.release(inputs_kept_[index(call)]);
}

void LayerComputation::leave_graph() {
    for (std::size_t c = 0; c < saved_.size(); ++c) {
        emit_.release(saved_[c]);
        emit_.release(inputs_kept_[c]);
    }
}

}  // namespace fsdplan
