#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/base.hpp"
#include "fsdplan/model.hpp"

// Where sharded training draws its unit boundaries, as PyTorch 2.13 does.
namespace fsdplan {

/// What a diagnostic is about. The names are stable: they are in the JSON, and tests cite them.
enum class WrapRule : std::uint8_t {
    // PyTorch raises these while the units are constructed.
    shared_module_wrapped_inside,   ///< a shared module is met again after something inside it was wrapped
    mixed_requires_grad_in_target,  ///< set path, use_orig_params=False: found before anything is wrapped
    mixed_requires_grad,            ///< in one flat parameter, use_orig_params=False
    mixed_dtype,                    ///< in one flat parameter
    integer_parameter,              ///< the first parameter of a unit is not floating point
    scalar_parameter,               ///< a unit manages a zero-dimensional parameter
    empty_flat_parameter,           ///< all parameters of a unit have zero elements
    uninitialized_parameter,        ///< a lazy module's parameter has no shape yet
    custom_policy_value,            ///< a CustomPolicy rule is neither a bool nor a dict
    unknown_unit_argument,          ///< a CustomPolicy dict has a key that FSDP does not know
    already_wrapped,                ///< a policy is given for a model that has units already
    ignored_both,                   ///< ignored_modules and ignored_states together
    fully_shard_twice,              ///< fully_shard on a module that has been given to it before
    fully_shard_container,          ///< fully_shard on a container without a forward
    already_sharded,                ///< a group meets a parameter of an earlier group
    reshard_ranks,                  ///< reshard_after_forward is no divisor of the shard ranks
    uneven_shard_dim,               ///< a dimension other than the first does not split evenly
    hybrid_without_groups,          ///< a hybrid strategy, wrapped by hand, has neither groups nor a mesh
    // PyTorch raises these when the first forward starts.
    tied_across_groups,  ///< one parameter in two FSDP2 groups
    several_roots,       ///< the outermost fully_shard call covers several modules
    unequal_settings,    ///< units disagree about what must be the same in all of them
    unit_before_root,    ///< a unit's module runs before the root's
    // PyTorch says nothing, or only warns.
    tie_broken,             ///< a tied weight became two parameters (FSDP1, use_orig_params=False)
    tied_across_units,      ///< a unit sees another unit's shard through a tie (FSDP1, use_orig_params=True)
    frozen_with_trainable,  ///< a unit holds a gradient for frozen parameters (use_orig_params=True)
    root_is_container,      ///< the root is a ModuleList or ModuleDict
    root_ignored,           ///< the root itself is ignored
    not_called_through_unit,  ///< a shared module's second slot bypasses its unit
};

/// "mixed_dtype", …
std::string_view name(WrapRule rule);

enum class Severity : std::uint8_t {
    warning,        ///< PyTorch goes on
    forward_error,  ///< PyTorch raises when the first forward starts
    error,          ///< PyTorch raises while the units are constructed
};
std::string_view name(Severity severity);

struct Diagnostic {
    WrapRule rule{};
    Severity severity = Severity::warning;
    std::string error_type;            ///< PyTorch's class, e.g. "ValueError"; empty for warnings
    std::string unit;                  ///< path of the unit's module; "" is the root
    std::vector<std::string> tensors;  ///< paths of the parameters that matter, at most a dozen
    std::string message;               ///< one sentence that says what and what to change
    /// How PyTorch's own message begins, to look it up by; empty for warnings and where no recording has it.
    std::string error_text;
};

/// Arguments of one unit that differ from the root's: (name, value as JSON), e.g.
/// ("sharding_strategy", "\"NO_SHARD\"").
using UnitArguments = std::vector<std::pair<std::string, std::string>>;
/// nullptr where it is not among them.
const std::string* find_argument(const UnitArguments& arguments, std::string_view name);
/// The text of an argument's value, a string's without its quotes.
std::string_view unquoted(std::string_view value);

/// One FSDP instance (FSDP1) or one fully_shard call (FSDP2).
struct Unit {
    ModuleIndex module{};
    std::string path;                          ///< of `module`, through the slot that was wrapped
    std::vector<ModuleIndex> modules;          ///< all modules of a fully_shard list; otherwise just `module`
    std::vector<TensorIndex> parameters;       ///< in the order in which the runtime flattens or groups them
    std::vector<std::string> parameter_paths;  ///< the name under which each was met, from the root
    std::int64_t numel = 0;                    ///< elements managed
    UnitArguments arguments;
    bool requires_grad = true;  ///< of the flat parameter: any member's

    // FSDP1 only; zero without parameters.
    std::int64_t flat_numel = 0;   ///< the flat parameter with alignment and divisibility padding
    std::int64_t shard_numel = 0;  ///< one rank's piece
};

/// The units and what PyTorch would say about them.
struct WrapPlan {
    /// FSDP1: root first, then pre-order of the wrapped model; FSDP2: in call order.
    std::vector<Unit> units;
    /// Indices into `units`, in the order in which they are constructed.
    std::vector<std::int32_t> construction_order;
    std::vector<Diagnostic> diagnostics;
    /// False when PyTorch stops in the middle and what it would have decided next cannot be said; `units`
    /// then holds those it had constructed.
    bool complete = true;
    bool by_policy = false;  ///< FSDP1: an auto_wrap_policy drew the boundaries
    /// The error with which PyTorch would stop at construction, if any.
    const Diagnostic* construction_error() const;
};

/// Arguments of FSDP or fully_shard that decide boundaries and sizes.
struct WrapOptions {
    bool use_orig_params = false;
    int world_size = 1;  ///< ranks that one parameter is sharded over
    int rank = 0;
    std::vector<std::string> ignored_modules;     ///< paths
    std::vector<std::string> ignored_parameters;  ///< paths
    bool mixed_precision = false;                 ///< MixedPrecision(...) is given, even an empty one
    std::optional<DType> param_dtype;             ///< of mixed precision
    /// `_module_classes_to_ignore`; torch's default when absent.
    std::optional<std::vector<std::string>> keep_full_precision;
};

/// A policy on the recursive path: answers the two questions of FSDP1's `auto_wrap_policy` callables.
/// Counting, recursion and construction belong to the library, so that policies can be or-ed.
class RecursivePolicy {
public:
    RecursivePolicy() = default;
    RecursivePolicy(const RecursivePolicy&) = delete;
    RecursivePolicy& operator=(const RecursivePolicy&) = delete;
    RecursivePolicy(RecursivePolicy&&) = delete;
    RecursivePolicy& operator=(RecursivePolicy&&) = delete;
    virtual ~RecursivePolicy() = default;

    /// `recurse=True`: look inside m? `numel`: its elements as the module looks now.
    virtual bool enter(const ModuleTree& tree, ModuleIndex m, std::int64_t numel) const = 0;
    /// `recurse=False`: make m a unit? `remainder`: its elements less what was wrapped below, may be
    /// negative.
    virtual bool wrap(const ModuleTree& tree, ModuleIndex m, std::int64_t remainder) const = 0;
};

/// How a policy is written: the interpretation of a user's words, apart from its evaluation. One of these is
/// what the command line, a recording or a launcher's file turns into.
struct PolicySpec {
    enum class Kind : std::uint8_t { none, recursive, module_classes, custom, calls, manual };

    /// One ordered rule of a CustomPolicy: first match wins, no match means no.
    struct Rule {
        enum class Answer : std::uint8_t { no, yes, arguments, invalid };
        std::string selector;  ///< a class name (isinstance), or "fqn:" and a module path
        Answer answer = Answer::yes;
        UnitArguments arguments;  ///< laid over the root's; an empty dict means no
    };
    /// One fully_shard call, or one manual FSDP(...) around a module.
    struct Call {
        std::vector<std::string> modules;  ///< paths; several for the list form
        bool list = false;                 ///< written as a list
        std::vector<std::string> ignored_parameters;
        UnitArguments arguments{};  ///< that differ from the root's
    };
    /// A member of the recursive path, by registry name.
    struct Member {
        std::string name;                      ///< "size", "transformer", "names", "always", …
        std::optional<double> min_num_params;  ///< torch's default of 1e8 when absent
        std::optional<std::vector<std::string>> force_leaf;  ///< torch's default when absent
        std::optional<std::vector<std::string>> exclude;     ///< torch's default when absent
        std::vector<std::string> classes;                    ///< transformer
        std::vector<std::string> modules;                    ///< names: paths or globs
    };

    Kind kind = Kind::none;
    std::vector<Member> members;       ///< recursive: or-ed when there are several
    std::vector<std::string> classes;  ///< module_classes (ModuleWrapPolicy)
    std::vector<Rule> rules;           ///< custom
    std::vector<Call> calls;  ///< calls (fully_shard) or manual (FSDP), in order; `manual` adds the root
};

/// What a member's factory gets.
struct PolicyArguments {
    const ModuleTree& tree;
    const PolicySpec::Member& member;
};

/// An entry of the registry of recursive policies: one file in src/wrap/builtin.
struct PolicyInfo {
    std::string_view name;
    std::string_view syntax;  ///< on the command line, e.g. "size:MIN_NUM_PARAMS"
    std::string_view help;
    /// Reads what follows the colon on the command line; throws Error(input) at --policy.
    PolicySpec::Member (*parse)(std::string_view text);
    std::unique_ptr<RecursivePolicy> (*make)(const PolicyArguments& arguments);
};
namespace builtin {
std::span<const PolicyInfo* const> policies();
}  // namespace builtin

/// torch's defaults of size_based_auto_wrap_policy and of MixedPrecision.
constexpr std::int64_t default_min_num_params = 100'000'000;
std::vector<std::string> default_force_leaf();
std::vector<std::string> default_exclude();
std::vector<std::string> default_keep_full_precision();

/// Units of a model under a policy. Never throws for what PyTorch would refuse: that is a diagnostic.
/// Throws Error(input) for paths and classes in `spec` or `options` that the model does not have.
WrapPlan wrap(const ModuleTree& tree, const PolicySpec& spec, const WrapOptions& options);

/// Why a module is or is not a unit, in a sentence that begins with "is a unit: " or "is no unit: ".
std::string why(const ModuleTree& tree, const PolicySpec& spec, const WrapOptions& options, ModuleIndex m);

/// Parses --policy values; several recursive ones are or-ed. `tree` serves names, near names and `blocks`.
/// Throws Error(input) at --policy, for a class that matches nothing with the nearest names and their counts.
PolicySpec parse_policy(std::span<const std::string> texts, const ModuleTree& tree);

/// wrap() under FSDP1: calls are modules wrapped by hand, one after the other.
WrapPlan wrap_fsdp1(const ModuleTree& tree, const PolicySpec& spec, const WrapOptions& options);

/// wrap() under FSDP2: a policy's boundaries become fully_shard calls (see as_fully_shard).
WrapPlan wrap_fsdp2(const ModuleTree& tree, const PolicySpec& spec, const WrapOptions& options);

/// The boundaries that a policy of FSDP1 drew as fully_shard calls, children before parents and the root
/// last: what somebody writes who moves to FSDP2. A plan that is not complete comes back as it is.
WrapPlan as_fully_shard(const ModuleTree& tree, const WrapPlan& drawn, const WrapOptions& options);

/// A range of thresholds with one result.
struct ThresholdInterval {
    std::int64_t low = 0;
    std::optional<std::int64_t> high;  ///< absent: no upper end
    WrapPlan plan;                     ///< the result at any threshold of the range
};

/// Every distinct result of `min_num_params` from 0 up, from the largest thresholds to the smallest;
/// neighbouring intervals differ in their units. Exact: nothing is sampled.
///
/// `spec` must be recursive; its members named "size" get the threshold, others stay as they are.
/// Source: every comparison of the recursive path is a number against the threshold, and the numbers depend
/// on earlier comparisons only, so that the largest number that fell short is where the result changes next.
std::vector<ThresholdInterval> thresholds(const ModuleTree& tree, const PolicySpec& spec,
                                          const WrapOptions& options);

/// The boundaries only of size_based_auto_wrap_policy, as fast as it goes: equal subtrees are decided once.
/// Prepared once a model; an evaluation then touches each distinct subtree once and each unit once.
/// For models without shared modules; tied parameters count as with use_orig_params=False. `tree` must
/// outlive it.
class SizeBoundaries {
public:
    explicit SizeBoundaries(const ModuleTree& tree);

    /// Wrapped modules in pre-order, the root left out, at torch's other defaults.
    void evaluate(std::int64_t min_num_params, std::vector<ModuleIndex>& wrapped) const;

    struct Interval {
        std::int64_t low = 0;
        std::optional<std::int64_t> high;
        std::vector<ModuleIndex> wrapped;  ///< as from evaluate()
    };
    /// All distinct results, from the largest thresholds to the smallest.
    std::vector<Interval> all() const;

private:
    struct Shape {  // a distinct subtree
        std::int64_t numel = 0;
        std::int32_t part_begin = 0;
        std::int32_t part_end = 0;
        bool force_leaf = false;
        bool exclude = false;
    };
    struct Part {  // a run of equal children
        std::int32_t shape = 0;
        std::int32_t count = 0;
    };
    struct Decisions;
    void decide(std::int64_t min_num_params, Decisions& out) const;
    void list(const Decisions& decisions, std::vector<ModuleIndex>& wrapped) const;

    const ModuleTree& tree_;
    std::vector<Shape> shapes_;  // children before parents
    std::vector<Part> parts_;
};

/// Names of modules that appear in `names` but match no class of the tree, with near names and counts,
/// as faults at `where`; empty when all match.
std::vector<Fault> missing_classes(const ModuleTree& tree, std::span<const std::string> names,
                                   const std::string& where);

/// Classes of the model's repeated blocks: the outermost classes that occur several times in one container.
std::vector<std::string> block_classes(const ModuleTree& tree);

}  // namespace fsdplan
