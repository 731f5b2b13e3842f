#include "schedule/whole_model.hpp"

#include <algorithm>

#include "schedule/gradient_norm.hpp"
#include "schedule/optimizer_step.hpp"

namespace fsdplan {
namespace {

constexpr std::int32_t whole = 0;  // unit

void add_module(WrapPlan& plan, const ModuleTree& tree, ModuleIndex m) {
    Unit unit{.module = m, .path = tree.path(m), .modules = {m}};
    for (const TensorIndex t : tree.parameters(m)) {
        unit.parameters.push_back(t);
        unit.numel += tree.tensors[at(t)].numel;
    }
    plan.construction_order.push_back(static_cast<std::int32_t>(plan.units.size()));
    plan.units.push_back(std::move(unit));
}

}  // namespace

WrapPlan one_unit(const ModuleTree& tree) {
    WrapPlan plan;
    add_module(plan, tree, ModuleIndex{0});
    Unit& root = plan.units.front();
    root.parameters.clear();
    root.numel = 0;
    for (std::size_t m = 0; m < tree.size(); ++m) {
        for (const TensorIndex t : tree.parameters(static_cast<ModuleIndex>(m))) {
            root.parameters.push_back(t);
        }
    }
    return plan;
}

WrapPlan every_module(const ModuleTree& tree, std::span<const ModuleIndex> leaves) {
    WrapPlan plan;
    std::size_t m = 0;
    while (m < tree.size()) {
        const auto module = static_cast<ModuleIndex>(m);
        add_module(plan, tree, module);
        m = std::ranges::find(leaves, module) == leaves.end() ? m + 1
                                                              : static_cast<std::size_t>(tree.subtree_end[m]);
    }
    return plan;
}

WholeModel::WholeModel(const LoweringInput& input, WrapPlan plan, Schedule& out)
    : unit_plan(std::move(plan)),
      lowering{.tree = input.tree,
               .plan = unit_plan,
               .job = input.job,
               .work = input.work,
               .loss = input.loss,
               .operators = input.operators,
               .workspace_bytes = input.workspace_bytes,
               .multiprocessors = input.multiprocessors,
               .input_bytes = input.input_bytes,
               .unread = input.unread,
               .rank = input.rank,
               .iterations = input.iterations},
      job(input.job),
      loop(lowering, out),
      emit(loop.emit),
      row_of(input.tree.tensors.size(), -1) {
    const ModuleTree& tree = input.tree;
    for (std::size_t m = 0; m < tree.size(); ++m) {
        for (const TensorIndex t : tree.parameters(static_cast<ModuleIndex>(m))) {
            if (row_of[at(t)] >= 0) {
                continue;
            }
            row_of[at(t)] = static_cast<std::int32_t>(parameter_rows.size());
            const Tensor& tensor = tree.tensors[at(t)];
            parameter_rows.push_back({.tensor = t,
                                      .numel = tensor.numel,
                                      .dtype = tensor.dtype,
                                      .trainable = tensor.requires_grad});
        }
    }
    for (const TensorIndex t : loop.program.parameter) {
        row(row_of[at(t)]).read = true;
    }
}

void WholeModel::begin() {
    for (Row& r : parameter_rows) {
        r.gradient = buffer(r.bytes(), Category::gradient);
        r.incoming = buffer(r.bytes(), Category::gradient);
    }
}

void WholeModel::begin_microbatch(bool last) {
    last_microbatch = last;
    for (Row& r : parameter_rows) {
        r.accumulator = -1;
    }
}

void WholeModel::node(const Tape::Node& node) {
    if (node.kind != Tape::Kind::accumulate) {
        return;
    }
    Row& r = row(node.subject);
    if (emit.is_live(r.incoming)) {
        emit.copy(r.bytes(), whole, Stream::compute);  // added to what is there
        emit.release(r.incoming);
    }
    r.has_gradient = true;
    gradient_ready(node.subject);
}

void WholeModel::zero_grad() {
    for (Row& r : parameter_rows) {
        drop_gradient(r);
    }
}

std::int32_t WholeModel::gradient_node(TensorIndex t) {
    Row& r = row(row_of[at(t)]);
    if (r.accumulator < 0) {
        r.accumulator = loop.tape.add(Tape::Kind::accumulate, row_of[at(t)]);
    }
    return r.accumulator;
}

void WholeModel::gradient_computed(TensorIndex t) {
    const Row& r = row(row_of[at(t)]);
    const std::int32_t into = r.has_gradient ? r.incoming : r.gradient;
    if (!emit.is_live(into)) {
        emit.allocate(into);
    }
}

std::vector<std::int32_t> WholeModel::trained_rows() const {
    std::vector<std::int32_t> rows;
    for (std::size_t i = 0; i < parameter_rows.size(); ++i) {
        if (parameter_rows[i].trainable && parameter_rows[i].read) {
            rows.push_back(static_cast<std::int32_t>(i));
        }
    }
    return rows;
}

std::int32_t WholeModel::buffer(std::int64_t bytes, Category category, Stream stream) {
    return emit.buffer({.bytes = bytes, .category = category, .stream = stream, .unit = whole});
}

void WholeModel::drop_gradient(Row& r) {
    emit.release(r.gradient);
    r.has_gradient = false;
}

// torch.nn.utils.clip_grad_norm_; every rank has all gradients.
void WholeModel::clip() {
    std::vector<LocalGradient> gradients;
    for (const Row& r : parameter_rows) {
        if (r.trainable && r.read) {
            gradients.push_back({.numel = r.numel, .dtype = r.dtype});
        }
    }
    if (!gradients.empty() && !job.offload) {
        norms_by_foreach(emit, gradients, false);
    }
}

void WholeModel::step_over_rows() {
    emit.host(HostWork::optimizer, -1);
    LocalParameters local;
    for (const Row& r : parameter_rows) {
        if (r.trainable) {
            const LocalParameter parameter{
                .numel = r.numel, .dtype = r.dtype, .shape = lowering.tree.tensors[at(r.tensor)].shape};
            local.add(parameter);
            if (!has_states_) {
                create_states(emit, job, parameter, whole);
            }
        }
    }
    has_states_ = true;
    emit_optimizer(emit, job, local, loop.multiprocessors());
}

void WholeModel::send(const CollectiveCall& call, std::int32_t unit, bool prefetched) {
    emit.after(Stream::all_reduce, Stream::compute);
    emit.issue(emit.collective(call), unit, Stream::all_reduce, prefetched);
}

}  // namespace fsdplan
