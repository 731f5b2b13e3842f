#include "verify/state_dict_model.hpp"

#include <algorithm>
#include <charconv>
#include <map>

#include "fsdplan/schedule.hpp"
#include "model/attribute_path.hpp"
#include "model/builder.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t most_ranks = 1024;
constexpr std::int64_t most_blocks = 1000;

std::vector<std::string> parts_of(std::string_view path) {
    std::vector<std::string> parts;
    while (!path.empty()) {
        const std::size_t dot = path.find('.');
        parts.emplace_back(path.substr(0, dot));
        path = dot == std::string_view::npos ? std::string_view{} : path.substr(dot + 1);
    }
    return parts;
}

bool is_number(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// "blocks.3.up" begins with the prefix "blocks." and the number 3.
struct Numbered {
    std::string prefix;
    std::string number;
    std::string rest;
};
std::optional<Numbered> numbered(const std::string& name) {
    std::size_t begin = 0;
    for (const std::string& part : parts_of(name)) {
        if (is_number(part)) {
            return Numbered{name.substr(0, begin), part, name.substr(begin + part.size())};
        }
        begin += part.size() + 1;
    }
    return std::nullopt;
}

/// `*` stands for one part of a path.
bool path_matches(const std::string& pattern, const std::string& path) {
    return std::ranges::count(pattern, '.') == std::ranges::count(path, '.') && glob_matches(pattern, path);
}

template <typename Read>
auto knob(const json::Value& side, const json::Value& defaults, std::string_view key, Read read) {
    const auto given = side.given(key);
    return given ? read(*given) : read(defaults.at(key));
}

}  // namespace

StateDictKnobs state_dict_knobs(const json::Value& side, const json::Value& defaults) {
    const auto text = [&](std::string_view key) {
        return knob(side, defaults, key, [](const json::Value& v) { return std::string(v.string()); });
    };
    const auto flag = [&](std::string_view key) {
        return knob(side, defaults, key, [](const json::Value& v) { return v.boolean(); });
    };
    const auto number = [&](std::string_view key, std::int64_t most) {
        return knob(side, defaults, key, [&](const json::Value& v) { return v.integer(0, most); });
    };
    StateDictKnobs knobs;
    knobs.fsdp = number("fsdp", 2);
    knobs.world = std::max<std::int64_t>(number("world", most_ranks), 1);
    knobs.wrap = text("wrap");
    knobs.strategy = parse_strategy(text("strategy"), "strategy");
    knobs.use_orig_params = flag("use_orig_params");
    // FSDP2 always has a mesh, and the recorder of hybrid strategies gives one.
    knobs.device_mesh =
        knobs.fsdp == 2 || (knobs.fsdp == 1 && (flag("device_mesh") || is_hybrid(knobs.strategy)));
    knobs.tied = flag("tied");
    const std::string dtype = text("dtype");
    knobs.dtype = dtype_from_name(dtype).value_or(DType::float32);
    if (!dtype_from_name(dtype)) {
        side.fail("a dtype that torch has");
    }
    knobs.mixed_precision = flag("mixed_precision") && knobs.fsdp == 1;
    knobs.optimizer = text("optimizer");
    knobs.freeze = text("freeze");
    knobs.blocks = number("blocks", most_blocks);
    knobs.offload = flag("offload");
    knobs.rank0_only = flag("rank0_only");
    knobs.strict = flag("strict");
    knobs.ckpt_wrap = flag("ckpt_wrap");
    return knobs;
}

RecordedStateModel::RecordedStateModel(const json::Value& model) {
    for (const json::Value row : model.at("tensors").elements()) {
        Listed tensor{.name = std::string(row.at("name").string())};
        const bool known = std::ranges::find(tensors_, tensor.name, &Listed::name) != tensors_.end();
        if (!is_attribute_path(tensor.name) || known) {
            row.at("name").fail("the path of a tensor that is not listed yet");
        }
        for (const json::Value size : row.at("shape").elements()) {
            tensor.shape.push_back(size.integer(0, largest_total));
        }
        tensor.is_buffer = row.at("kind").string() == "buffer";
        tensors_.push_back(std::move(tensor));
    }
    tied_pair_ = model.at("tied_pair").strings();
    const auto place = [&](const std::string& name) {
        return std::ranges::find(tensors_, name, &Listed::name);
    };
    const auto is_parameter = [&](const std::string& name) {
        return place(name) != tensors_.end() && !place(name)->is_buffer;
    };
    if (tied_pair_.size() != 2 || !std::ranges::all_of(tied_pair_, is_parameter) ||
        place(tied_pair_[0]) >= place(tied_pair_[1])) {
        model.at("tied_pair").fail("two parameters of the list, in its order");
    }
    for (const json::Value wrap : model.at("wraps").members()) {
        constexpr std::string_view only = " (FSDP1 only)";
        std::vector<Wrapped> patterns;
        for (const std::string& text : wrap.strings()) {
            const bool fsdp1_only = text.ends_with(only);
            patterns.push_back({fsdp1_only ? text.substr(0, text.size() - only.size()) : text, fsdp1_only});
        }
        wraps_.emplace_back(std::string(wrap.key()), std::move(patterns));
    }
}

std::vector<RecordedStateModel::Listed> RecordedStateModel::with_blocks(std::int64_t blocks) const {
    std::vector<Listed> out;
    for (std::size_t i = 0; i < tensors_.size();) {
        const auto first = numbered(tensors_[i].name);
        if (!first || blocks == 0) {
            out.push_back(tensors_[i++]);
            continue;
        }
        // All blocks are alike: the first one's tensors stand for each.
        std::vector<std::pair<std::string, std::size_t>> one;
        for (; i < tensors_.size(); ++i) {
            const auto next = numbered(tensors_[i].name);
            if (!next || next->prefix != first->prefix) {
                break;
            }
            if (next->number == first->number) {
                one.emplace_back(next->rest, i);
            }
        }
        for (std::int64_t b = 0; b < blocks; ++b) {
            for (const auto& [rest, index] : one) {
                Listed copy = tensors_[index];
                copy.name = first->prefix + std::to_string(b) + rest;
                out.push_back(std::move(copy));
            }
        }
    }
    return out;
}

ModelGraph RecordedStateModel::graph(const StateDictKnobs& knobs) const {
    const ModuleClass module_class{"torch.nn.modules.module.Module", {}};
    GraphBuilder builder("recorded model", "a recording of checkpoints");
    builder.set_dtype(knobs.dtype);
    std::map<std::string, Scope> scopes;
    scopes.emplace("", builder.root(module_class));
    const auto scope_at = [&](std::span<const std::string> parts) {
        std::string path;
        Scope scope = scopes.at("");
        for (const std::string& part : parts) {
            path = join_path(path, part);
            const auto found = scopes.find(path);
            scope = found != scopes.end()
                        ? found->second
                        : scopes.emplace(path, scope.child(part, module_class)).first->second;
        }
        return scope;
    };
    const std::string tied = knobs.tied ? tied_pair_[1] : std::string();
    for (const Listed& tensor : with_blocks(knobs.blocks)) {
        const std::vector<std::string> parts = parts_of(tensor.name);
        const Scope scope = scope_at(std::span(parts).first(parts.size() - 1));
        if (tensor.is_buffer) {
            scope.buffer(parts.back(), tensor.shape);
        } else if (tensor.name == tied) {
            const std::vector<std::string> other = parts_of(tied_pair_[0]);
            scope.tie(parts.back(), scope_at(std::span(other).first(other.size() - 1)), other.back());
        } else {
            scope.parameter(parts.back(), tensor.shape);
        }
    }
    ModelGraph graph = builder.finish();
    if (knobs.freeze == "none") {
        return graph;
    }
    const std::vector<std::string> frozen{knobs.freeze};
    return with_frozen(graph, frozen);
}

PolicySpec RecordedStateModel::policy(const ModuleTree& tree, const StateDictKnobs& knobs) const {
    PolicySpec spec;
    spec.kind = PolicySpec::Kind::calls;
    const auto wrap = std::ranges::find(wraps_, knobs.wrap, [](const auto& entry) { return entry.first; });
    if (wrap == wraps_.end()) {
        throw Error(ErrorKind::input, "model/wraps",
                    "the recording does not say what \"" + knobs.wrap + "\" is");
    }
    std::vector<std::size_t> rows;
    for (std::size_t m = 1; m < tree.size(); ++m) {
        const std::string path = tree.path(static_cast<ModuleIndex>(m));
        if (std::ranges::any_of(wrap->second, [&](const Wrapped& wrapped) {
                return path_matches(wrapped.pattern, path) && (knobs.fsdp == 1 || !wrapped.fsdp1_only);
            })) {
            rows.push_back(m);
        }
    }
    std::ranges::sort(rows, [&](std::size_t a, std::size_t b) {  // inner modules first
        return tree.subtree_end[a] != tree.subtree_end[b] ? tree.subtree_end[a] < tree.subtree_end[b] : a > b;
    });
    for (const std::size_t m : rows) {
        spec.calls.push_back({.modules = {tree.path(static_cast<ModuleIndex>(m))}});
    }
    if (knobs.fsdp == 2) {
        spec.calls.push_back({.modules = {""}});
    }
    return spec;
}

StateLayout RecordedStateModel::layout(const StateDictKnobs& knobs) const {
    const ModelGraph model = graph(knobs);
    const ModuleTree tree = flatten(model);
    TrainingJob job;
    job.runtime = knobs.fsdp == 0 ? "single" : knobs.fsdp == 1 ? "fsdp1" : "fsdp2";
    job.strategy = knobs.strategy;
    job.mesh = is_hybrid(knobs.strategy) ? Mesh{2, std::max<std::int64_t>(knobs.world / 2, 1)}
                                         : Mesh{1, knobs.world};
    job.use_orig_params = knobs.use_orig_params;
    job.param_dtype = knobs.mixed_precision ? std::optional(DType::bfloat16) : std::nullopt;
    job.buffer_dtype = job.param_dtype;
    job.optimizer.kind = knobs.optimizer == "none" ? "sgd" : knobs.optimizer;
    const WrapOptions options = wrap_options(job);
    const WrapPlan plan = knobs.fsdp == 0   ? WrapPlan{}
                          : knobs.fsdp == 1 ? wrap_fsdp1(tree, policy(tree, knobs), options)
                                            : wrap_fsdp2(tree, policy(tree, knobs), options);
    StateLayout layout = state_layout(model, plan, job);
    layout.device_mesh = knobs.device_mesh;
    return layout;
}

}  // namespace fsdplan
