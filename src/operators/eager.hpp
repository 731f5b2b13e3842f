#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.hpp"
#include "fsdplan/operators.hpp"

// Plays a PyTorch program without numbers: who holds which memory when, as Python's references and autograd
// have it. Source: torch/csrc/autograd/engine.cpp and input_buffer.cpp of PyTorch 2.13.
namespace fsdplan {

using Shape = std::vector<std::int64_t>;

class Eager;

/// A tensor in somebody's hands. Copies are further names of one tensor; its memory is let go with the last
/// one, as in Python.
class Value {
public:
    Value() = default;

    explicit operator bool() const { return record_ != nullptr; }
    const Shape& shape() const { return record_->shape; }
    /// From the end when negative.
    std::int64_t size(int dim) const;
    DType dtype() const { return record_->dtype; }
    std::int64_t numel() const { return numel_of(record_->shape); }
    std::int64_t bytes() const { return bytes_of(numel(), record_->dtype).count; }
    bool requires_grad() const { return record_->target != no_target; }
    /// Lets it go.
    void reset() { record_.reset(); }

private:
    friend class Eager;
    friend class Gradients;
    static constexpr std::int32_t no_target = -1;
    struct Record {
        ~Record();
        Eager* owner = nullptr;
        std::int32_t storage = -1;  // -1: memory that is not counted here
        Shape shape;
        DType dtype{};
        std::int32_t target = no_target;    // where its gradient goes: a node, or -2 - tensor
        std::int32_t output = 0;            // which one of the node's
        bool is_view = false;               // keeps the tensor that it is a view of
        std::vector<std::int32_t> sources;  // leaf calls whose results are in it
    };
    explicit Value(std::shared_ptr<Record> record) : record_(std::move(record)) {}
    std::shared_ptr<Record> record_;
};

using Values = std::vector<const Value*>;

/// Shape and dtype of a result.
struct Result {
    Shape shape;
    DType dtype{};
};

/// What a node of autograd does when its gradients have come.
class Gradients {
public:
    /// Of an output of the operator; empty when none came.
    Value& of_output(std::size_t output = 0) { return incoming_[output]; }
    bool wanted(std::size_t input) const;
    /// The gradient of an input; it is summed to the input's shape and cast to its dtype.
    void give(std::size_t input, Value gradient);

private:
    friend class Eager;
    Gradients(Eager& eager, std::size_t node, std::vector<Value> incoming)
        : eager_(eager), node_(node), incoming_(std::move(incoming)) {}
    Eager& eager_;
    std::size_t node_;
    std::vector<Value> incoming_;
    std::vector<std::pair<std::size_t, Value>> given_;
};
using Backward = std::function<void(Eager&, Gradients&)>;

class Eager {
public:
    Eager(const ModuleTree& tree, const Workload& workload);
    Eager(const Eager&) = delete;
    Eager& operator=(const Eager&) = delete;
    Eager(Eager&&) = delete;
    Eager& operator=(Eager&&) = delete;
    ~Eager() = default;

    const ModuleTree& tree() const { return tree_; }
    const Workload& workload() const { return graph_.workload; }

    /// A tensor of the user's, or one that lives as long as the model.
    Value outside(Shape shape, DType dtype);
    /// In the dtype in which it computes.
    Value parameter(TensorIndex t);
    Value parameter(ModuleIndex m, std::string_view name);
    bool has_parameter(ModuleIndex m, std::string_view name) const;
    std::optional<ModuleIndex> child(ModuleIndex m, std::string_view name) const;

    /// The forward of a module. `inputs` are what the caller passes on.
    Value call(ModuleIndex m, const Values& inputs, const std::function<Value()>& body);

    // Operators. Arguments are read; what the caller no longer needs it moves in or resets itself.

    /// New memory for `result`. Not differentiable by itself: see node().
    Value run(std::string_view name, Result result, const Values& reads, std::int64_t flops = 0,
              Operator::Kind kind = Operator::Kind::other);
    /// The same for a kernel that multiplies: `passes` products of this shape.
    Value run(std::string_view name, Result result, const Values& reads, const KernelShape& shape,
              std::int64_t passes = 1, Operator::Kind kind = Operator::Kind::other);
    /// New memory that the operator before or after it fills too.
    Value also(Result result);
    /// The sum of a gradient over what was broadcast from `shape`.
    Value sum_to(const Value& gradient, const Shape& shape);
    /// Work that writes into what is there.
    void run_in_place(std::string_view name, const Values& touches, std::int64_t flops = 0);
    /// The same memory under another shape.
    Value view(const Value& of, Shape shape);
    Value view(const Value& of, Result result);

    /// Makes outputs differentiable: gradients go to `inputs`, `saved` is kept until `backward` has run,
    /// and then let go in this order: that of PyTorch is by the names of its arguments, results behind them.
    void node(const std::vector<Value*>& outputs, const Values& inputs, const Values& saved,
              Backward backward);
    bool any_requires_grad(const Values& inputs) const;
    /// `leaf`, a module's result, takes gradients that stay with it until the graph goes.
    void require_gradient(const Value& leaf);
    /// The model's forward goes on to its loss: no more calls of modules.
    void begin_loss();
    /// The model returns its loss alone.
    void keep_no_logits() { graph_.returns_logits = false; }
    /// A view that counts as a result of the leaf call that ended last, for calls with several results.
    Value from_last_leaf(const Value& of, Shape shape);
    void use_as(const Value& of, Storage::Use use);
    void note(std::string text);

    /// Goes backward from the loss and hands the graph out. The object is used up.
    OperatorGraph finish(Value loss);

private:
    friend struct Value::Record;
    friend class Gradients;
    struct Node {
        std::vector<std::int32_t> targets;  // of the inputs' gradients, as Value::Record::target
        std::vector<std::int32_t> target_outputs;
        std::vector<Result> inputs;
        std::vector<std::int32_t> saved;
        Backward backward;  // none: a tensor that takes gradients of its own
        std::int32_t part = 0;
        std::size_t outputs = 1;
    };
    struct CallState {
        ModuleIndex module{};
        std::int32_t parent = -1;
        bool leaf = true;
        std::vector<std::int32_t> sources;
    };

    static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
    std::vector<MemoryEvent>& events() { return in_backward_ ? graph_.backward : graph_.forward; }
    void add(MemoryEvent::Kind kind, std::int32_t what) { events().push_back({kind, what}); }
    void touch();
    void let_go(std::int32_t storage);
    std::int32_t allocate(std::int64_t bytes);
    std::int32_t name_row(std::string_view name);
    std::int32_t shape_row(const KernelShape& shape);
    Value make(std::int32_t storage, Shape shape, DType dtype);
    static void collect(std::vector<std::int32_t>& into, const std::vector<std::int32_t>& from);
    void run_node(std::size_t n);
    void deliver(const Node& from, std::size_t input, Value gradient);
    void deliver_to_parameter(TensorIndex t, Value gradient);
    void run_leaf(std::size_t n);
    Value fitted(Value gradient, const Result& to);
    bool takes_sums(const Value& value) const;
    void accumulate(Value& into, Value gradient);
    void close_parts();
    void record_calls();

    const ModuleTree& tree_;
    OperatorGraph graph_;
    std::map<std::string, std::int32_t, std::less<>> name_rows_;
    std::map<KernelShape, std::int32_t> shape_rows_;
    std::vector<std::int32_t> holders_;  // of each storage
    std::vector<char> outside_;          // storages that have become somebody else's (.grad)
    std::vector<Node> nodes_;

    // Calls.
    std::vector<CallState> calls_;
    std::vector<std::vector<std::int32_t>> passed_;  // storages, by call
    std::int32_t running_ = -1;
    std::int32_t last_leaf_ = -1;           // that has ended
    std::int32_t boundary_ = -1;            // forward event at which the last leaf's part ended; -1: goes on
    std::vector<std::int32_t> part_begin_;  // by call; of leaves
    std::vector<std::int32_t> node_part_at_;  // forward event of each node

    // Backward.
    bool in_backward_ = false;
    std::vector<std::vector<Value>> buffers_;  // gradients that wait for their node
    std::vector<Value> parameter_gradients_;
    std::vector<Value> leaf_gradients_;
    std::int32_t part_ = 0;
};

}  // namespace fsdplan
