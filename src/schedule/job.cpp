#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "fsdplan/schedule.hpp"
#include "schedule/optimizer.hpp"
#include "schedule/reshard_ranks.hpp"

namespace fsdplan {
namespace builtin {
std::span<const RuntimeInfo* const> runtimes();
std::span<const OptimizerInfo* const> optimizers();
}  // namespace builtin

namespace {

template <typename Value, std::size_t n>
using Names = std::array<std::pair<std::string_view, Value>, n>;

constexpr Names<Strategy, 5> strategy_names{{{"FULL_SHARD", Strategy::full_shard},
                                             {"SHARD_GRAD_OP", Strategy::shard_grad_op},
                                             {"NO_SHARD", Strategy::no_shard},
                                             {"HYBRID_SHARD", Strategy::hybrid_shard},
                                             {"_HYBRID_SHARD_ZERO2", Strategy::hybrid_shard_zero2}}};
constexpr Names<BackwardPrefetch, 3> prefetch_names{{{"BACKWARD_PRE", BackwardPrefetch::pre},
                                                     {"BACKWARD_POST", BackwardPrefetch::post},
                                                     {"none", BackwardPrefetch::none}}};
constexpr Names<Optimizer::Implementation, 3> implementation_names{
    {{"foreach", Optimizer::Implementation::foreach},
     {"fused", Optimizer::Implementation::fused},
     {"for-loop", Optimizer::Implementation::for_loop}}};
constexpr Names<ActivationCheckpointing::Mode, 4> checkpointing_names{
    {{"none", ActivationCheckpointing::Mode::none},
     {"blocks", ActivationCheckpointing::Mode::blocks},
     {"every", ActivationCheckpointing::Mode::every},
     {"selective", ActivationCheckpointing::Mode::selective}}};
constexpr Names<AttentionImplementation, 3> attention_names{
    {{"sdpa", AttentionImplementation::sdpa},
     {"flash_attention_2", AttentionImplementation::flash_attention_2},
     {"eager", AttentionImplementation::eager}}};
constexpr Names<Loss::Kind, 7> loss_names{{{"cross-entropy", Loss::Kind::cross_entropy},
                                           {"shifted", Loss::Kind::shifted},
                                           {"chunked", Loss::Kind::chunked},
                                           {"low-precision", Loss::Kind::low_precision},
                                           {"fused", Loss::Kind::fused},
                                           {"cce", Loss::Kind::cut},
                                           {"none", Loss::Kind::none}}};

template <typename Value, std::size_t n>
std::string_view name_in(const Names<Value, n>& names, Value value) {
    for (const auto& [text, entry] : names) {
        if (entry == value) {
            return text;
        }
    }
    return "";
}

/// Names are compared without letter case, and with `-` and `_` alike.
std::string folded(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return out;
}

Error unknown(std::string_view text, std::string_view option, std::string_view what,
              const std::vector<std::string>& known) {
    std::string list;
    for (const std::string& word : known) {
        list += (list.empty() ? "" : ", ") + word;
    }
    return Error(ErrorKind::input, std::string(option),
                 "unknown " + std::string(what) + " \"" + std::string(text) + "\"; expected one of " + list +
                     did_you_mean(text, known));
}

template <typename Value, std::size_t n>
Value parse_in(const Names<Value, n>& names, std::string_view text, std::string_view option,
               std::string_view what) {
    std::vector<std::string> known;
    for (const auto& [word, value] : names) {
        if (folded(word) == folded(text)) {
            return value;
        }
        known.emplace_back(word);
    }
    throw unknown(text, option, what, known);
}

/// The entry of a registry.
template <typename Info>
const Info& entry_named(std::span<const Info* const> entries, std::string_view name, std::string_view option,
                        std::string_view what) {
    const auto exact = std::ranges::find(entries, name, [](const Info* entry) { return entry->name; });
    if (exact != entries.end()) {
        return **exact;  // asked for each parameter
    }
    std::vector<std::string> known;
    for (const Info* entry : entries) {
        if (folded(entry->name) == folded(name)) {
            return *entry;
        }
        known.emplace_back(entry->name);
    }
    throw unknown(name, option, what, known);
}

std::optional<int> positive(std::string_view text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < 1) {
        return std::nullopt;
    }
    return value;
}

/// "word:rest" in two; nothing behind the word when there is no colon.
std::pair<std::string_view, std::optional<std::string_view>> split(std::string_view text) {
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) {
        return {text, std::nullopt};
    }
    return {text.substr(0, colon), text.substr(colon + 1)};
}

int parse_count(std::optional<std::string_view> text, std::string_view option, std::string_view example) {
    const std::optional<int> value = text ? positive(*text) : std::nullopt;
    if (!value) {
        throw Error(
            ErrorKind::input, std::string(option),
            "expected a whole number above 0 after the colon, as in \"" + std::string(example) + "\"");
    }
    return *value;
}

void refuse_argument(std::optional<std::string_view> argument, std::string_view word,
                     std::string_view option) {
    if (argument) {
        throw Error(ErrorKind::input, std::string(option),
                    "\"" + std::string(word) + "\" takes nothing after a colon, found \"" +
                        std::string(*argument) + "\"");
    }
}

void at_least_one(std::int64_t value, std::string_view option) {
    if (value < 1) {
        throw Error(ErrorKind::input, std::string(option),
                    "expected a whole number above 0, found " + std::to_string(value));
    }
}

}  // namespace

std::string_view name(Strategy strategy) {
    return name_in(strategy_names, strategy);
}

Strategy parse_strategy(std::string_view text, std::string_view option) {
    return folded(text) == "hybrid_shard_zero2" ? Strategy::hybrid_shard_zero2
                                                : parse_in(strategy_names, text, option, "strategy");
}

bool is_hybrid(Strategy strategy) {
    return strategy == Strategy::hybrid_shard || strategy == Strategy::hybrid_shard_zero2;
}

bool frees_after_forward(Strategy strategy) {
    return strategy == Strategy::full_shard || strategy == Strategy::hybrid_shard;
}

Mesh parse_mesh(std::string_view text) {
    const std::size_t cross = text.find('x');
    if (cross != std::string_view::npos) {
        const std::optional<int> replicate = positive(text.substr(0, cross));
        const std::optional<int> shard = positive(text.substr(cross + 1));
        if (replicate && shard) {
            return {.replicate = *replicate, .shard = *shard};
        }
    }
    throw Error(ErrorKind::input, "--mesh",
                "expected REPLICATExSHARD such as 2x8, found \"" + std::string(text) + "\"");
}

std::string_view name(BackwardPrefetch prefetch) {
    return name_in(prefetch_names, prefetch);
}

BackwardPrefetch parse_backward_prefetch(std::string_view text) {
    return parse_in(prefetch_names, text, "--backward-prefetch", "prefetch");
}

std::string_view name(Optimizer::Implementation implementation) {
    return name_in(implementation_names, implementation);
}

std::string name(const Optimizer& of) {
    return optimizer(of.kind).implementations.empty() ? of.kind
                                                      : of.kind + ":" + std::string(name(of.implementation));
}

Optimizer parse_optimizer(std::string_view text) {
    constexpr std::string_view option = "--optimizer";
    const auto [word, argument] = split(text);
    const OptimizerInfo& info = optimizer(word);
    Optimizer out{.kind = std::string(info.name)};
    if (info.implementations.empty()) {
        refuse_argument(argument, word, option);
        return out;
    }
    out.implementation = argument ? parse_in(implementation_names, *argument, option, "implementation")
                                  : info.implementations.front();
    if (std::ranges::find(info.implementations, out.implementation) == info.implementations.end()) {
        std::string list;
        for (const Optimizer::Implementation known : info.implementations) {
            list += (list.empty() ? "" : ", ") + std::string(name(known));
        }
        throw Error(ErrorKind::input, std::string(option),
                    std::string(info.name) + " has no implementation \"" + std::string(*argument) +
                        "\"; expected one of " + list);
    }
    return out;
}

std::string name(const ActivationCheckpointing& checkpointing) {
    if (!checkpointing.modules.empty()) {
        return std::to_string(checkpointing.modules.size()) + " modules";
    }
    const std::string mode(name_in(checkpointing_names, checkpointing.mode));
    return checkpointing.mode == ActivationCheckpointing::Mode::every
               ? mode + ":" + std::to_string(checkpointing.every)
               : mode;
}

ActivationCheckpointing parse_activation_checkpointing(std::string_view text) {
    constexpr std::string_view option = "--activation-checkpointing";
    const auto [word, argument] = split(text);
    ActivationCheckpointing checkpointing;
    checkpointing.mode = parse_in(checkpointing_names, word, option, "mode");
    if (checkpointing.mode == ActivationCheckpointing::Mode::every) {
        checkpointing.every = parse_count(argument, option, "every:2");
    } else {
        refuse_argument(argument, word, option);
    }
    return checkpointing;
}

std::string name(const Loss& loss) {
    const std::string kind(name_in(loss_names, loss.kind));
    const bool counted = loss.kind == Loss::Kind::chunked || loss.kind == Loss::Kind::fused;
    return counted && loss.chunks > 0 ? kind + ":" + std::to_string(loss.chunks) : kind;
}

Loss parse_loss(std::string_view text) {
    const auto [word, argument] = split(text);
    Loss loss;
    loss.kind = parse_in(loss_names, word, "--loss", "loss");
    if (loss.kind != Loss::Kind::chunked && loss.kind != Loss::Kind::fused) {
        refuse_argument(argument, word, "--loss");
    } else if (argument) {
        constexpr int most_pieces = 4096;
        loss.chunks = parse_count(argument, "--loss", "chunked:8");
        if (loss.chunks > most_pieces) {
            throw Error(ErrorKind::input, "--loss",
                        "expected at most " + std::to_string(most_pieces) + " pieces, found " +
                            std::to_string(loss.chunks));
        }
    } else if (loss.kind == Loss::Kind::fused) {
        loss.chunks = 0;
    }
    return loss;
}

std::string_view name(AttentionImplementation attention) {
    return name_in(attention_names, attention);
}

AttentionImplementation parse_attention(std::string_view text) {
    return folded(text) == "flash" ? AttentionImplementation::flash_attention_2
                                   : parse_in(attention_names, text, "--attention", "attention");
}

std::span<const RuntimeInfo* const> runtimes() {
    return builtin::runtimes();
}

const RuntimeInfo& runtime(std::string_view name) {
    return entry_named(runtimes(), name, "--runtime", "runtime");
}

std::span<const OptimizerInfo* const> optimizers() {
    return builtin::optimizers();
}

const OptimizerInfo& optimizer(std::string_view name) {
    return entry_named(optimizers(), name, "--optimizer", "optimizer");
}

WrapOptions wrap_options(const TrainingJob& job) {
    WrapOptions options;
    options.use_orig_params = job.use_orig_params;
    options.world_size = static_cast<int>(job.mesh.shard);
    options.mixed_precision = job.param_dtype || job.reduce_dtype || job.buffer_dtype;
    options.param_dtype = job.param_dtype;
    return options;
}

namespace {

void check_optimizer(const Optimizer& chosen, const RuntimeInfo& info) {
    const OptimizerInfo& entry = optimizer(chosen.kind);
    const std::string_view refused =
        entry.refused == nullptr ? "" : entry.refused(info.parameters, chosen.implementation);
    if (!refused.empty()) {
        throw Error(ErrorKind::input, "--optimizer",
                    name(chosen) + " does not step over the parameters of " + std::string(info.name) +
                        " (PyTorch raises " + std::string(refused) + ")");
    }
}

}  // namespace

void check(const TrainingJob& job, std::int64_t gpus) {
    const RuntimeInfo& info = runtime(job.runtime);
    at_least_one(job.batch, "--batch");
    at_least_one(job.sequence, "--seq");
    at_least_one(job.accumulate, "--accumulate");
    checked_mul(checked_mul(job.batch, job.sequence, "--batch times --seq"), job.accumulate,
                "--batch times --seq times --accumulate");
    if (std::ranges::find(info.strategies, job.strategy) == info.strategies.end()) {
        std::string list;
        for (const Strategy strategy : info.strategies) {
            list += (list.empty() ? "" : ", ") + std::string(name(strategy));
        }
        throw Error(ErrorKind::input, "--strategy",
                    std::string(name(job.strategy)) + " is not a strategy of " + std::string(info.name) +
                        "; expected one of " + list);
    }
    if (job.mesh.ranks() != gpus) {
        throw Error(ErrorKind::input, "--mesh",
                    std::to_string(job.mesh.replicate) + "x" + std::to_string(job.mesh.shard) + " needs " +
                        std::to_string(job.mesh.ranks()) + " ranks, " + std::to_string(gpus) + " given");
    }
    check_optimizer(job.optimizer, info);
    if (job.reshard_after_forward.value_or(0) > 1) {
        if (const auto refused = refused_reshard(*job.reshard_after_forward, job.mesh.shard)) {
            throw Error(ErrorKind::input, "--reshard-after-forward",
                        refused->message + " (PyTorch raises " + refused->error_type + ": " +
                            refused->error_text + ")");
        }
    }
}

std::vector<Diagnostic> refusals(const ModuleTree& tree, const WrapPlan& plan, const TrainingJob& job) {
    const RuntimeInfo& info = runtime(job.runtime);
    return info.refusals == nullptr ? std::vector<Diagnostic>{} : info.refusals(tree, plan, job);
}

bool ActivationCheckpointing::by_model(const ModuleTree& tree) const {
    const bool knows_it = std::ranges::any_of(tree.classes, [](const ModuleClass& c) {
        return std::ranges::any_of(c.bases, [](const std::string& base) {
            return short_name(base) == "GradientCheckpointingLayer";
        });
    });
    return knows_it && !wrapped && (mode == Mode::blocks || mode == Mode::every);
}

std::vector<ModuleIndex> ActivationCheckpointing::regions(const ModuleTree& tree) const {
    std::vector<ModuleIndex> found;
    for (const std::string& path : modules) {
        if (const std::optional<ModuleIndex> m = tree.find(path)) {
            found.push_back(*m);
        }
    }
    if (mode == Mode::none) {
        return found;
    }
    const ClassSet blocks(tree, block_classes(tree));
    std::int64_t seen = by_model(tree) ? 0 : 1;
    for (std::size_t m = 0; m < tree.size(); ++m) {
        if (blocks.matches(tree, static_cast<ModuleIndex>(m)) &&
            (mode != Mode::every || seen++ % every == 0)) {
            found.push_back(static_cast<ModuleIndex>(m));
        }
    }
    return found;
}

Schedule lower(const LoweringInput& input) {
    const RuntimeInfo& info = runtime(input.job.runtime);
    Schedule out = info.lower(input);
    out.runtime = info.name;
    return out;
}

}  // namespace fsdplan
