#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/base.hpp"

namespace fsdplan {

struct ModuleTree;
struct OperatorGraph;
struct Workload;

enum class ModuleIndex : std::int32_t {};
enum class TensorIndex : std::int32_t {};
enum class ClassIndex : std::int32_t {};

constexpr std::size_t at(ModuleIndex m) {
    return static_cast<std::size_t>(m);
}
constexpr std::size_t at(TensorIndex t) {
    return static_cast<std::size_t>(t);
}
constexpr std::size_t at(ClassIndex c) {
    return static_cast<std::size_t>(c);
}

/// Element types, named as torch names them. The sub-byte ones are safetensors' F4, F6_E2M3 and F6_E3M2.
enum class DType : std::uint8_t {
    float64,
    float32,
    float16,
    bfloat16,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float6_e2m3fn,
    float6_e3m2fn,
    float4_e2m1fn,
    complex128,
    complex64,
    int64,
    int32,
    int16,
    int8,
    uint64,
    uint32,
    uint16,
    uint8,
    boolean,
};

/// "bfloat16", …, as after "torch."
std::string_view name(DType dtype);
/// The dtype of this name; short forms (bf16, fp16, fp32) too.
std::optional<DType> dtype_from_name(std::string_view name);
/// All names, for messages.
std::vector<std::string> dtype_names();
/// Bits of one element.
int bits(DType dtype);
bool is_floating_point(DType dtype);
/// Bytes of `numel` elements; sub-byte types round up.
Bytes bytes_of(std::int64_t numel, DType dtype);

struct ModuleClass {
    std::string name;                ///< full name, e.g. "torch.nn.modules.linear.Linear"
    std::vector<std::string> bases;  ///< the rest of the method resolution order, without `object`
};

/// The last part of a full class name.
std::string_view short_name(std::string_view class_name);

/// Module paths "a" and "b" joined by a dot; the other alone when one is empty.
std::string join_path(std::string_view a, std::string_view b);

struct Tensor {
    std::vector<std::int64_t> shape;  ///< empty for a scalar and for an uninitialised parameter
    DType dtype = DType::float32;
    bool requires_grad = true;
    bool uninitialized = false;  ///< a lazy module's parameter: no shape yet
    std::int64_t numel = 1;      ///< product of `shape`; 0 when uninitialised

    friend bool operator==(const Tensor&, const Tensor&) = default;
};

struct ChildSlot {
    std::string name;
    ModuleIndex module{};
};

struct TensorSlot {
    std::string name;
    TensorIndex tensor{};
    bool persistent = true;  ///< false for buffers that a state dict leaves out
};

struct ModuleNode {
    ClassIndex class_index{};
    std::vector<ChildSlot> children;     ///< in registration order; two slots may hold one module
    std::vector<TensorSlot> parameters;  ///< in registration order; a tied tensor hangs in several slots
    std::vector<TensorSlot> buffers;
};

/// The modules that one forward calls, in order, each before those that it calls itself.
///
/// A module that calls no other is a leaf. `from` tells for each leaf the earlier leaves whose results reach
/// its inputs without passing through another one; -1 is an input of the model.
struct ForwardCalls {
    std::vector<ModuleIndex> module;       ///< one entry a call
    std::vector<std::int32_t> from_begin;  ///< calls + 1 entries: sources of call c are [from_begin[c], …)
    std::vector<std::int32_t> from;
    std::vector<std::int32_t> output_from;  ///< leaves that reach the loss directly

    std::size_t size() const { return module.size(); }
    bool empty() const { return module.empty(); }
    std::span<const std::int32_t> sources(std::size_t call) const;
};

/// A model as faithful as its file: what is registered where, with sharing.
///
/// Every module is reachable from `root` and the slots form no cycle. Totals are below `largest_total`.
struct ModelGraph {
    std::string name;
    std::string source;  ///< where it came from, in words
    std::vector<ModuleClass> classes;
    std::vector<ModuleNode> modules;
    std::vector<Tensor> tensors;
    ModuleIndex root{};

    /// What a recorded forward called; empty when the file does not say.
    ForwardCalls calls;
    /// Classes that transformers will not split (`_no_split_modules`), as the model lists them.
    std::vector<std::string> no_split_classes;
    /// Longest sequence that the configuration names; the default of --seq.
    std::optional<std::int64_t> longest_sequence;
    /// Experts that a token visits, where the configuration names them.
    std::optional<std::int64_t> experts_per_token;
    /// True when the dtypes are those of a real model (an export); a configuration or a checkpoint only says
    /// how it was saved.
    bool dtypes_recorded = false;
    /// True when the file has tensors but no modules (safetensors): classes are guesses then.
    bool classes_known = true;
    /// Describes what a training forward and its backward compute; empty when nobody knows. The tree is this
    /// graph's, or what with_lora() and with_frozen() made of it.
    std::function<OperatorGraph(const ModuleTree&, const Workload&)> operators;
    /// Sequences of the batch that the operators were recorded with; absent: any will do.
    std::optional<std::int64_t> recorded_batch;
    /// What the importer had to assume or noticed, one sentence each.
    std::vector<std::string> notes;
};

/// What everything after import reads: structure of arrays, one row per distinct module in pre-order of first
/// visits (row 0 is the root). Where nothing is shared the subtree of m is the rows [m, subtree_end[m]).
struct ModuleTree {
    std::string name;
    std::vector<ModuleClass> classes;
    std::vector<Tensor> tensors;

    std::vector<std::int32_t> parent;       ///< row of the first parent; -1 for the root
    std::vector<std::int32_t> subtree_end;  ///< one past the last row first reached through this one
    std::vector<ClassIndex> class_of;
    std::vector<std::int64_t> numel;  ///< elements of the distinct parameters in the subtree
    /// Rows with equal numbers head equal subtrees: same classes, sizes, dtypes and requires_grad in the same
    /// order, no tensor and no module shared with the rest. Numbered from 0; `shapes` of them.
    std::vector<std::int32_t> shape;
    std::int32_t shapes = 0;

    std::vector<std::int32_t>
        child_begin;                 ///< rows + 1 entries: slots of m are [child_begin[m], child_begin[m+1])
    std::vector<ModuleIndex> child;  ///< per slot, all slots in registration order
    std::vector<std::string> child_name;

    std::vector<std::int32_t> parameter_begin;  ///< rows + 1 entries, as child_begin
    std::vector<TensorIndex> parameter;
    std::vector<std::string> parameter_name;

    std::vector<std::int32_t> buffer_begin;  ///< as parameter_begin
    std::vector<TensorIndex> buffer;

    ForwardCalls calls;  ///< as recorded, by rows; empty when the file does not say

    bool has_shared_modules = false;   ///< some module hangs in several slots
    bool has_several_parents = false;  ///< … and these belong to different parents
    bool has_tied_parameters = false;  ///< some tensor is registered more than once
    bool has_uninitialized = false;

    std::size_t size() const { return parent.size(); }
    std::span<const ModuleIndex> children(ModuleIndex m) const;
    std::span<const std::string> child_names(ModuleIndex m) const;
    std::span<const TensorIndex> parameters(ModuleIndex m) const;
    std::span<const std::string> parameter_names(ModuleIndex m) const;
    const ModuleClass& class_info(ModuleIndex m) const { return classes[at(class_of[at(m)])]; }

    /// Path from the root through first slots, e.g. "model.layers.0"; "" for the root.
    std::string path(ModuleIndex m) const;
    /// The module at a path (any of its paths), if there is one.
    std::optional<ModuleIndex> find(std::string_view path) const;
    /// The parameter at a path (any of its paths), if there is one.
    std::optional<TensorIndex> find_parameter(std::string_view path) const;
};

/// Throws Error(input) for what no file should hold: a cycle, an unreachable or missing module, a total that
/// is too large. `graph` usually comes from an importer.
ModuleTree flatten(const ModelGraph& graph);

/// Which classes of one tree a list of class names means, by isinstance: a subclass matches too.
class ClassSet {
public:
    ClassSet() = default;
    /// Each name is a full class name or its last part. Names that match nothing are no error here.
    ClassSet(const ModuleTree& tree, std::span<const std::string> names);

    bool contains(ClassIndex c) const { return at(c) < member_.size() && member_[at(c)] != 0; }
    bool matches(const ModuleTree& tree, ModuleIndex m) const { return contains(tree.class_of[at(m)]); }
    /// True when no class of the tree matches.
    bool empty() const { return empty_; }

private:
    std::vector<char> member_;
    bool empty_ = true;
};

struct ImportOptions {
    std::optional<DType> dtype;  ///< --dtype: dtype the model is created in; the file's own when absent
};

/// Reads a model: a module-tree JSON (plain or gzip), a Hugging Face config.json or a folder with one, a
/// .safetensors file or model.safetensors.index.json, an .onnx file, or a name from the model library.
///
/// Throws Error(input) that names the file, the place and what was expected; (machine): built without ONNX.
ModelGraph import_model(const std::string& what, const ImportOptions& options = {});

/// A model of the library that is compiled in.
struct LibraryModel {
    std::string folder;                ///< "meta-llama--Meta-Llama-3-8B"
    std::vector<std::string> aliases;  ///< "meta-llama/Meta-Llama-3-8B", "llama3-8b", …
};
std::vector<LibraryModel> library_models();

/// `--lora`: adapters as peft inserts them.
struct LoraOptions {
    int rank = 8;
    std::vector<std::string>
        targets;  ///< whole parts at the end of module paths, e.g. "q_proj", "mlp.up_proj"
    double dropout = 0.0;
    std::string adapter = "default";     ///< peft's name of the adapter
    bool autocast_adapter_dtype = true;  ///< adapter weights of half-precision models are float32
};

/// Parses "r=8,targets=q_proj+v_proj", optionally with "dropout=0.05"; throws Error(input) at "--lora".
LoraOptions parse_lora(std::string_view text);

/// What get_peft_model makes of the model: targets become adapter layers with the old layer inside,
/// everything else is frozen, and the root moves to base_model.model of a PeftModel (PeftModelForCausalLM
/// when the model generates text). Throws Error(input) when a target names no linear or embedding layer, with
/// the nearest names.
ModelGraph with_lora(const ModelGraph& graph, const LoraOptions& options);

/// `--freeze`: requires_grad off for all parameters whose path matches one of the globs (`*` and `?`; a
/// pattern also covers everything below a module that it names). Throws Error(input) for one that matches
/// none.
ModelGraph with_frozen(const ModelGraph& graph, std::span<const std::string> globs);

/// Glob match over a whole dotted path: `*` any characters, `?` one character.
bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace fsdplan
