#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "fsdplan/schedule.hpp"
#include "schedule/reshard_ranks.hpp"

namespace fsdplan {
namespace builtin {
std::span<const RuntimeInfo* const> runtimes();
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
constexpr Names<Optimizer::Kind, 4> optimizer_names{{{"adamw", Optimizer::Kind::adamw},
                                                     {"adam8bit", Optimizer::Kind::adam8bit},
                                                     {"sgd", Optimizer::Kind::sgd},
                                                     {"sgd-momentum", Optimizer::Kind::sgd_momentum}}};
constexpr Names<Optimizer::Implementation, 3> implementation_names{
    {{"foreach", Optimizer::Implementation::foreach},
     {"fused", Optimizer::Implementation::fused},
     {"for-loop", Optimizer::Implementation::for_loop}}};
constexpr Names<ActivationCheckpointing::Mode, 4> checkpointing_names{
    {{"none", ActivationCheckpointing::Mode::none},
     {"blocks", ActivationCheckpointing::Mode::blocks},
     {"every", ActivationCheckpointing::Mode::every},
     {"selective", ActivationCheckpointing::Mode::selective}}};
constexpr Names<Loss::Kind, 6> loss_names{{{"cross-entropy", Loss::Kind::cross_entropy},
                                           {"shifted", Loss::Kind::shifted},
                                           {"chunked", Loss::Kind::chunked},
                                           {"low-precision", Loss::Kind::low_precision},
                                           {"fused", Loss::Kind::fused},
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
    std::string list;
    for (const std::string& word : known) {
        list += (list.empty() ? "" : ", ") + word;
    }
    throw Error(ErrorKind::input, std::string(option),
                "unknown " + std::string(what) + " \"" + std::string(text) + "\"; expected one of " + list +
                    did_you_mean(text, known));
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

std::string name(const Optimizer& optimizer) {
    const std::string kind(name_in(optimizer_names, optimizer.kind));
    return optimizer.kind == Optimizer::Kind::adamw
               ? kind + ":" + std::string(name_in(implementation_names, optimizer.implementation))
               : kind;
}

Optimizer parse_optimizer(std::string_view text) {
    const auto [word, argument] = split(text);
    Optimizer optimizer;
    optimizer.kind = parse_in(optimizer_names, word, "--optimizer", "optimizer");
    if (optimizer.kind != Optimizer::Kind::adamw) {
        refuse_argument(argument, word, "--optimizer");
    } else if (argument) {
        optimizer.implementation = parse_in(implementation_names, *argument, "--optimizer", "implementation");
    }
    return optimizer;
}

std::string name(const ActivationCheckpointing& checkpointing) {
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
    const bool pieces = loss.kind == Loss::Kind::chunked || loss.kind == Loss::Kind::fused;
    return pieces ? kind + ":" + std::to_string(loss.chunks) : kind;
}

Loss parse_loss(std::string_view text) {
    const auto [word, argument] = split(text);
    Loss loss;
    loss.kind = parse_in(loss_names, word, "--loss", "loss");
    if (loss.kind != Loss::Kind::chunked && loss.kind != Loss::Kind::fused) {
        refuse_argument(argument, word, "--loss");
    } else if (argument) {
        loss.chunks = parse_count(argument, "--loss", "chunked:8");
    }
    return loss;
}

std::span<const RuntimeInfo* const> runtimes() {
    return builtin::runtimes();
}

const RuntimeInfo& runtime(std::string_view name) {
    std::vector<std::string> known;
    for (const RuntimeInfo* entry : runtimes()) {
        if (folded(entry->name) == folded(name)) {
            return *entry;
        }
        known.emplace_back(entry->name);
    }
    std::string list;
    for (const std::string& word : known) {
        list += (list.empty() ? "" : ", ") + word;
    }
    throw Error(
        ErrorKind::input, "--runtime",
        "unknown runtime \"" + std::string(name) + "\"; expected one of " + list + did_you_mean(name, known));
}

WrapOptions wrap_options(const TrainingJob& job) {
    WrapOptions options;
    options.use_orig_params = job.use_orig_params;
    options.world_size = static_cast<int>(job.mesh.shard);
    options.mixed_precision = job.param_dtype || job.reduce_dtype || job.buffer_dtype;
    options.param_dtype = job.param_dtype;
    return options;
}

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
    if (job.reshard_after_forward.value_or(0) > 1) {
        if (const auto refused = refused_reshard(*job.reshard_after_forward, job.mesh.shard)) {
            throw Error(ErrorKind::input, "--reshard-after-forward",
                        refused->message + " (PyTorch raises " + refused->error_type + ": " +
                            refused->error_text + ")");
        }
    }
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
    std::int64_t seen = 0;
    for (std::size_t m = 0; m < tree.size(); ++m) {
        if (blocks.matches(tree, static_cast<ModuleIndex>(m)) &&
            (mode != Mode::every || ++seen % every == 0)) {
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
