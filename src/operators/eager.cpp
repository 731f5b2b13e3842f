#include "operators/eager.hpp"

#include <algorithm>
#include <iterator>

#include "operators/reduction.hpp"

namespace fsdplan {

using Kind = MemoryEvent::Kind;

std::int64_t Value::size(int dim) const {
    const auto dims = static_cast<int>(record_->shape.size());
    return record_->shape[static_cast<std::size_t>(dim < 0 ? dims + dim : dim)];
}

Value::Record::~Record() {
    owner->let_go(storage);
}

bool Gradients::wanted(std::size_t input) const {
    return eager_.nodes_[node_].targets[input] != Value::no_target;
}

void Gradients::give(std::size_t input, Value gradient) {
    given_.emplace_back(input, std::move(gradient));
}

Eager::Eager(const ModuleTree& tree, const Workload& workload)
    : tree_(tree), parameter_gradients_(tree.tensors.size()) {
    graph_.workload = workload;
}

// Tensors.

Value Eager::make(std::int32_t storage, Shape shape, DType dtype) {
    if (storage >= 0) {
        ++holders_[index(storage)];
    }
    auto record = std::make_shared<Value::Record>();
    record->owner = this;
    record->storage = storage;
    record->shape = std::move(shape);
    record->dtype = dtype;
    return Value(std::move(record));
}

Value Eager::outside(Shape shape, DType dtype) {
    Value value = make(-1, std::move(shape), dtype);
    value.record_->sources.push_back(-1);
    return value;
}

Value Eager::parameter(TensorIndex t) {
    const Tensor& tensor = tree_.tensors[at(t)];
    const DType dtype =
        is_floating_point(tensor.dtype) ? workload().compute.value_or(tensor.dtype) : tensor.dtype;
    Value value = make(-1, tensor.shape, dtype);
    value.record_->target = tensor.requires_grad ? -2 - static_cast<std::int32_t>(t) : Value::no_target;
    return value;
}

bool Eager::has_parameter(ModuleIndex m, std::string_view name) const {
    const std::span<const std::string> names = tree_.parameter_names(m);
    return std::ranges::find(names, name) != names.end();
}

Value Eager::parameter(ModuleIndex m, std::string_view name) {
    const std::span<const std::string> names = tree_.parameter_names(m);
    const auto found = std::ranges::find(names, name);
    FSDPLAN_ASSERT(found != names.end(), "the module has this parameter");
    return parameter(tree_.parameters(m)[static_cast<std::size_t>(found - names.begin())]);
}

std::optional<ModuleIndex> Eager::child(ModuleIndex m, std::string_view name) const {
    const std::span<const std::string> names = tree_.child_names(m);
    const auto found = std::ranges::find(names, name);
    return found == names.end()
               ? std::nullopt
               : std::optional(tree_.children(m)[static_cast<std::size_t>(found - names.begin())]);
}

std::int32_t Eager::allocate(std::int64_t bytes) {
    touch();
    const auto storage = static_cast<std::int32_t>(graph_.storages.size());
    const bool temporary = in_backward_ || running_ < 0 || graph_.loss_in_model;
    graph_.storages.push_back(
        {.bytes = bytes, .use = temporary ? Storage::Use::temporary : Storage::Use::activation});
    holders_.push_back(0);
    outside_.push_back(0);
    add(Kind::allocate, storage);
    return storage;
}

void Eager::let_go(std::int32_t storage) {
    if (storage >= 0 && --holders_[index(storage)] == 0 && outside_[index(storage)] == 0) {
        add(Kind::drop, storage);
    }
}

// Operators.

std::int32_t Eager::name_row(std::string_view name) {
    const auto found = name_rows_.find(name);
    if (found != name_rows_.end()) {
        return found->second;
    }
    graph_.names.emplace_back(name);
    const auto row = static_cast<std::int32_t>(graph_.names.size()) - 1;
    name_rows_.emplace(name, row);
    return row;
}

std::int32_t Eager::shape_row(const KernelShape& shape) {
    const auto [place, is_new] =
        shape_rows_.try_emplace(shape, static_cast<std::int32_t>(graph_.shapes.size()));
    if (is_new) {
        graph_.shapes.push_back(shape);
    }
    return place->second;
}

Value Eager::also(Result result) {
    const std::int32_t storage = allocate(bytes_of(numel_of(result.shape), result.dtype).count);
    return make(storage, std::move(result.shape), result.dtype);
}

Value Eager::run(std::string_view name, Result result, const Values& reads, std::int64_t flops,
                 Operator::Kind kind) {
    const std::int64_t bytes = bytes_of(numel_of(result.shape), result.dtype).count;
    const std::int32_t storage = allocate(bytes);
    Operator op{.kind = kind, .name = name_row(name), .call = running_, .flops = flops, .bytes = bytes};
    Value out = make(storage, std::move(result.shape), result.dtype);
    for (const Value* read : reads) {
        op.bytes += read->bytes();
        collect(out.record_->sources, read->record_->sources);
    }
    add(Kind::run, static_cast<std::int32_t>(graph_.operators.size()));
    graph_.operators.push_back(op);
    return out;
}

Value Eager::run(std::string_view name, Result result, const Values& reads, const KernelShape& shape,
                 std::int64_t passes, Operator::Kind kind) {
    const std::int64_t flops = 2 * passes * shape.batch * shape.m * shape.n * shape.k;
    Value out = run(name, std::move(result), reads, flops, kind);
    graph_.operators.back().shape = shape_row(shape);
    return out;
}

void Eager::run_in_place(std::string_view name, const Values& touches, std::int64_t flops) {
    touch();
    Operator op{.name = name_row(name), .call = running_, .flops = flops};
    for (const Value* value : touches) {
        op.bytes += value->bytes();
    }
    add(Kind::run, static_cast<std::int32_t>(graph_.operators.size()));
    graph_.operators.push_back(op);
}

Value Eager::view(const Value& of, Shape shape) {
    return view(of, {std::move(shape), of.dtype()});
}

Value Eager::view(const Value& of, Result result) {
    Value out = make(of.record_->storage, std::move(result.shape), result.dtype);
    out.record_->target = of.record_->target;
    out.record_->output = of.record_->output;
    out.record_->sources = of.record_->sources;
    out.record_->is_view = true;
    return out;
}

Value Eager::from_last_leaf(const Value& of, Shape shape) {
    Value out = view(of, std::move(shape));
    out.record_->sources.assign(1, last_leaf_);
    return out;
}

bool Eager::any_requires_grad(const Values& inputs) const {
    return std::ranges::any_of(inputs, [](const Value* input) { return input->requires_grad(); });
}

void Eager::node(const std::vector<Value*>& outputs, const Values& inputs, const Values& saved,
                 Backward backward) {
    if (in_backward_ || !any_requires_grad(inputs)) {
        return;
    }
    Node node{.backward = std::move(backward), .outputs = outputs.size()};
    for (const Value* input : inputs) {
        node.targets.push_back(input->record_->target);
        node.target_outputs.push_back(input->record_->output);
        node.inputs.push_back({input->shape(), input->dtype()});
    }
    for (const Value* value : saved) {
        if (value->record_->storage >= 0) {
            add(Kind::save, value->record_->storage);
            node.saved.push_back(value->record_->storage);
        }
    }
    std::int32_t output = 0;
    for (Value* value : outputs) {
        value->record_->target = static_cast<std::int32_t>(nodes_.size());
        value->record_->output = output++;
    }
    node_part_at_.push_back(static_cast<std::int32_t>(graph_.forward.size()) - 1);
    nodes_.push_back(std::move(node));
}

void Eager::require_gradient(const Value& leaf) {
    Node node;
    add(Kind::save, leaf.record_->storage);
    leaf.record_->target = static_cast<std::int32_t>(nodes_.size());
    leaf.record_->output = 0;
    node_part_at_.push_back(static_cast<std::int32_t>(graph_.forward.size()) - 1);
    nodes_.push_back(std::move(node));
    graph_.gradient_inputs.push_back(running_);
}

void Eager::begin_loss() {
    graph_.loss_in_model = true;
    boundary_ = static_cast<std::int32_t>(graph_.forward.size());
}

void Eager::use_as(const Value& of, Storage::Use use) {
    if (of.record_->storage >= 0) {
        graph_.storages[index(of.record_->storage)].use = use;
    }
}

void Eager::note(std::string text) {
    if (std::ranges::find(graph_.notes, text) == graph_.notes.end()) {
        graph_.notes.push_back(std::move(text));
    }
}

// Both sorted. A residual stream holds something of every layer before, so that this is no place for a
// search.
void Eager::collect(std::vector<std::int32_t>& into, const std::vector<std::int32_t>& from) {
    if (into.empty() || from.empty()) {
        into.insert(into.end(), from.begin(), from.end());
        return;
    }
    std::vector<std::int32_t> both;
    both.reserve(into.size() + from.size());
    std::ranges::set_union(into, from, std::back_inserter(both));
    into = std::move(both);
}

// Calls of modules.

// Something happens: it belongs to the last leaf's part while a module around both is running.
void Eager::touch() {
    if (in_backward_ || last_leaf_ < 0 || boundary_ >= 0) {
        return;
    }
    std::int32_t around = last_leaf_;
    while (around >= 0 && around != running_) {
        around = calls_[index(around)].parent;
    }
    if (running_ < 0 || around < 0) {
        boundary_ = static_cast<std::int32_t>(graph_.forward.size());
    }
}

Value Eager::call(ModuleIndex m, const Values& inputs, const std::function<Value()>& body) {
    const auto c = static_cast<std::int32_t>(calls_.size());
    CallState& state = calls_.emplace_back();
    state.module = m;
    state.parent = running_;
    for (const Value* input : inputs) {
        collect(state.sources, input->record_->sources);
    }
    if (running_ >= 0) {
        calls_[index(running_)].leaf = false;
    }
    std::vector<std::int32_t>& passed = passed_.emplace_back();
    for (const Value* input : inputs) {
        if (input->record_->storage >= 0) {
            passed.push_back(input->record_->storage);
        }
    }
    part_begin_.push_back(-1);
    const auto begin = static_cast<std::int32_t>(graph_.forward.size());
    const std::size_t operators = graph_.operators.size();
    running_ = c;
    Value out = body();
    running_ = calls_[index(c)].parent;
    if (!calls_[index(c)].leaf) {
        return out;
    }
    part_begin_[index(c)] = boundary_ >= 0 ? boundary_ : last_leaf_ >= 0 ? begin : 0;
    last_leaf_ = c;
    boundary_ = -1;
    if (operators == graph_.operators.size()) {
        return out;  // handed through
    }
    Value result = view(out, out.shape());
    result.record_->sources.assign(1, c);
    return result;
}

// Backward.

/// Whether the engine adds to it in place: nobody else may hold it or its memory, and a view keeps its base.
bool Eager::takes_sums(const Value& value) const {
    const Value::Record& record = *value.record_;
    return record.storage >= 0 && holders_[index(record.storage)] == 1 && value.record_.use_count() == 1 &&
           !record.is_view;
}

void Eager::accumulate(Value& into, Value gradient) {
    if (!into) {
        into = std::move(gradient);
    } else if (takes_sums(into)) {
        run_in_place("add_", {&into, &gradient, &into});
    } else {
        into = run("add", {into.shape(), into.dtype()}, {&into, &gradient});
    }
}

void Eager::deliver_to_parameter(TensorIndex t, Value gradient) {
    Value& held = parameter_gradients_[at(t)];
    if (held) {
        if (held.record_->is_view) {
            // The sum takes the place of what is held.
            const Value sum = run("add", {held.shape(), held.dtype()}, {&held, &gradient});
            held.record_->is_view = false;
        } else {
            run_in_place("add_", {&held, &gradient, &held});
        }
        return;
    }
    const std::int32_t storage = gradient.record_->storage;
    const bool is_last = storage >= 0 && holders_[index(storage)] == 1;
    // Its memory is that of .grad from the beginning, which is the runtime's business.
    const auto born =
        std::find(graph_.backward.rbegin(), graph_.backward.rend(), MemoryEvent{Kind::allocate, storage});
    if (is_last && born != graph_.backward.rend()) {
        *born = {Kind::gradient, static_cast<std::int32_t>(t)};
        outside_[index(storage)] = 1;
        held = std::move(gradient);
        return;
    }
    held = outside(gradient.shape(), gradient.dtype());
    if (is_last) {  // made in forward: it becomes .grad now
        gradient.reset();
        add(Kind::gradient, static_cast<std::int32_t>(t));
        return;
    }
    add(Kind::gradient, static_cast<std::int32_t>(t));
    run_in_place("clone", {&gradient, &gradient});
}

void Eager::deliver(const Node& from, std::size_t input, Value gradient) {
    const std::int32_t target = from.targets[input];
    if (target == Value::no_target || !gradient) {
        return;
    }
    if (target < 0) {
        deliver_to_parameter(static_cast<TensorIndex>(-2 - target), std::move(gradient));
        return;
    }
    std::vector<Value>& waiting = buffers_[index(target)];
    waiting.resize(nodes_[index(target)].outputs);
    accumulate(waiting[index(from.target_outputs[input])], std::move(gradient));
}

Value Eager::sum_to(const Value& gradient, const Shape& shape) {
    Value out = run("sum", {shape, gradient.dtype()}, {&gradient});
    const std::int64_t columns = numel_of(shape);
    const bool over_rows = shape.empty() || shape.back() == gradient.shape().back();
    const std::int64_t scratch =
        over_rows ? sum_scratch_bytes(gradient.numel() / columns, columns, workload().multiprocessors) : 0;
    if (scratch > 0) {
        also({{scratch}, DType::uint8});
    }
    return out;
}

// What validate_outputs does before anything that the node holds is let go.
Value Eager::fitted(Value gradient, const Result& to) {
    if (numel_of(gradient.shape()) != numel_of(to.shape)) {
        gradient = sum_to(gradient, to.shape);
    } else if (gradient.shape() != to.shape) {
        gradient = view(gradient, to.shape);
    }
    return gradient.dtype() == to.dtype ? gradient : run("_to_copy", to, {&gradient});
}

// The tensor's accumulator takes over what nobody else holds.
void Eager::run_leaf(std::size_t n) {
    Value gradient = std::move(buffers_[n][0]);
    if (!takes_sums(gradient)) {
        gradient = run("clone", {gradient.shape(), gradient.dtype()}, {&gradient});
    }
    leaf_gradients_.push_back(std::move(gradient));
}

void Eager::run_node(std::size_t n) {
    Node& node = nodes_[n];
    if (!node.backward) {
        run_leaf(n);
        return;
    }
    Gradients gradients(*this, n, std::move(buffers_[n]));
    node.backward(*this, gradients);
    const std::size_t computed = events().size();
    for (auto& [input, gradient] : gradients.given_) {
        if (gradient && node.targets[input] != Value::no_target) {
            gradient = fitted(std::move(gradient), node.inputs[input]);
        }
    }
    // The node's locals go in the reverse of the order in which they came, what it was called with then, and
    // what it has saved at last.
    std::vector<MemoryEvent> read;
    for (auto saved = node.saved.rbegin(); saved != node.saved.rend(); ++saved) {
        read.push_back({Kind::unpack, *saved});
    }
    events().insert(events().begin() + static_cast<std::ptrdiff_t>(computed), read.begin(), read.end());
    gradients.incoming_.clear();
    for (const std::int32_t saved : node.saved) {
        add(Kind::release, saved);
    }
    for (auto& [input, gradient] : gradients.given_) {
        deliver(node, input, std::move(gradient));
    }
}

OperatorGraph Eager::finish(Value loss) {
    close_parts();
    graph_.calls.output_from = loss.record_->sources;
    std::erase(graph_.calls.output_from, -1);
    record_calls();
    in_backward_ = true;
    buffers_.resize(nodes_.size());
    graph_.backward_begin.assign(graph_.parts(), 0);
    graph_.backward_end.assign(graph_.parts(), 0);
    part_ = static_cast<std::int32_t>(graph_.parts()) - 1;
    const std::int32_t root = loss.record_->target;
    if (root >= 0) {
        buffers_[index(root)].resize(nodes_[index(root)].outputs);
        buffers_[index(root)][0] = run("ones_like", {loss.shape(), loss.dtype()}, {});
    }
    // What was created last runs first; everything that feeds a node was created after it.
    for (std::size_t n = nodes_.size(); n-- > 0;) {
        if (buffers_[n].empty()) {
            continue;
        }
        const std::int32_t part = nodes_[n].part;
        if (part != part_) {
            const auto here = static_cast<std::int32_t>(graph_.backward.size());
            graph_.backward_end[index(part_)] = here;
            part_ = part;
            graph_.backward_begin[index(part)] = here;
        }
        running_ = part < static_cast<std::int32_t>(calls_.size()) ? part : -1;
        run_node(n);
    }
    graph_.backward_end[index(part_)] = static_cast<std::int32_t>(graph_.backward.size());
    // What is still held goes with this object and is nobody's business any more.
    std::ranges::fill(outside_, char{1});
    return std::move(graph_);
}

// Leaves' parts lie one behind the other; a caller's own row has none.
void Eager::close_parts() {
    running_ = -1;
    const auto end = static_cast<std::int32_t>(graph_.forward.size());
    const std::int32_t loss = boundary_ >= 0 ? boundary_ : end;
    graph_.forward_begin.assign(calls_.size() + 2, 0);
    graph_.forward_begin[calls_.size() + 1] = end;
    std::int32_t next = loss;
    for (std::size_t c = calls_.size() + 1; c-- > 0;) {
        if (c == calls_.size()) {
            next = loss;
        } else if (calls_[c].leaf) {
            next = part_begin_[c];
        }
        graph_.forward_begin[c] = next;
    }
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
        const auto after =
            std::upper_bound(graph_.forward_begin.begin(), graph_.forward_begin.end() - 1, node_part_at_[n]);
        nodes_[n].part = static_cast<std::int32_t>(after - graph_.forward_begin.begin()) - 1;
    }
}

void Eager::record_calls() {
    ForwardCalls& calls = graph_.calls;
    calls.from_begin.push_back(0);
    graph_.input_begin.push_back(0);
    for (std::size_t c = 0; c < calls_.size(); ++c) {
        calls.module.push_back(calls_[c].module);
        if (calls_[c].leaf) {
            calls.from.insert(calls.from.end(), calls_[c].sources.begin(), calls_[c].sources.end());
        }
        calls.from_begin.push_back(static_cast<std::int32_t>(calls.from.size()));
        graph_.input.insert(graph_.input.end(), passed_[c].begin(), passed_[c].end());
        graph_.input_begin.push_back(static_cast<std::int32_t>(graph_.input.size()));
    }
}

}  // namespace fsdplan
