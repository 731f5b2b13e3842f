#include <algorithm>
#include <charconv>
#include <utility>

#include "fsdplan/model.hpp"

namespace fsdplan {
namespace {

constexpr std::string_view option = "--lora";
const char* const nn_module = "torch.nn.modules.module.Module";

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (true) {
        const std::size_t end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos) {
            return parts;
        }
        text.remove_prefix(end + 1);
    }
}

[[noreturn]] void refuse(const std::string& message) {
    throw Error(ErrorKind::input, std::string(option), message);
}

template <class Number>
Number parse_number(std::string_view text, Number least, Number most, const std::string& expected) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most)) {
        refuse("expected " + expected + ", found \"" + std::string(text) + '"');
    }
    return value;
}

std::vector<std::string> parse_targets(std::string_view text) {
    std::vector<std::string> targets;
    for (const std::string_view target : split(text, '+')) {
        if (target.empty()) {
            refuse("expected targets such as q_proj+v_proj, found \"" + std::string(text) + '"');
        }
        targets.emplace_back(target);
    }
    return targets;
}

ModuleClass torch_class(const std::string& name) {
    return {"torch.nn.modules." + name, {nn_module}};
}

ModuleClass adapter_class(const std::string& name) {
    return {"peft.tuners.lora.layer." + name,
            {nn_module, "peft.tuners.lora.layer.LoraLayer", "peft.tuners.tuners_utils.BaseTunerLayer",
             "abc.ABC"}};
}

/// What peft knows how to adapt, and where the weight keeps its sizes.
enum class LayerKind : std::uint8_t { other, linear, conv1d, embedding };

LayerKind kind_of(const ModuleClass& c) {
    const auto is = [&c](std::string_view name) {
        return c.name == name || std::ranges::find(c.bases, name) != c.bases.end();
    };
    if (is("torch.nn.modules.sparse.Embedding")) {
        return LayerKind::embedding;
    }
    if (is("torch.nn.modules.linear.Linear")) {
        return LayerKind::linear;
    }
    return is("transformers.pytorch_utils.Conv1D") ? LayerKind::conv1d : LayerKind::other;
}

class Adapting {
public:
    Adapting(const ModelGraph& graph, const LoraOptions& options) : graph_(graph), options_(options) {
        for (const std::string& target : options.targets) {
            targets_.push_back({target, split(target, '.'), false});
        }
        for (const Tensor& tensor : graph.tensors) {
            total_ = checked_add(total_, tensor.numel, option);
        }
    }

    ModelGraph run() {
        visit_modules();
        for (const Target& target : targets_) {
            if (!target.found) {
                refuse("no module's path ends in \"" + std::string(target.text) + '"' +
                       did_you_mean(target.text, adaptable_names()));
            }
        }
        for (Tensor& tensor : graph_.tensors) {
            tensor.requires_grad = false;
        }
        for (const Place& place : matched_) {
            adapt(place);
        }
        add_roots();
        graph_.source +=
            (graph_.source.empty() ? "" : ", ") + std::string("adapters as peft 0.21 inserts them");
        return std::move(graph_);
    }

private:
    struct Target {
        std::string_view text;
        std::vector<std::string_view> parts;
        bool found = false;
    };
    /// The first slot in which a module was met; peft replaces a shared module only there.
    struct Place {
        ModuleIndex parent{};
        std::size_t slot = 0;
    };
    static constexpr std::size_t unseen = static_cast<std::size_t>(-1);

    const ChildSlot& slot_at(const Place& place) const {
        return graph_.modules[at(place.parent)].children[place.slot];
    }

    // Pre-order with an explicit stack, since the depth comes from a file.
    void visit_modules() {
        place_of_.assign(graph_.modules.size(), Place{.slot = unseen});
        std::vector<Place> path{{graph_.root, 0}};
        while (!path.empty()) {
            Place& top = path.back();
            if (top.slot == graph_.modules[at(top.parent)].children.size()) {
                path.pop_back();
                continue;
            }
            const Place here = top;
            ++top.slot;
            const ModuleIndex child = slot_at(here).module;
            if (place_of_[at(child)].slot != unseen || child == graph_.root) {
                continue;
            }
            place_of_[at(child)] = here;
            if (is_target(here)) {
                matched_.push_back(here);
            }
            path.push_back({child, 0});
        }
    }

    bool is_target(const Place& place) {
        bool found = false;
        for (Target& target : targets_) {
            if (ends_in(place, target.parts)) {
                target.found = true;
                found = true;
            }
        }
        return found;
    }

    bool ends_in(Place place, const std::vector<std::string_view>& parts) const {
        for (std::size_t i = parts.size(); i-- > 0;) {
            if (slot_at(place).name != parts[i]) {
                return false;
            }
            if (i > 0 && place.parent == graph_.root) {
                return false;
            }
            place = i > 0 ? place_of_[at(place.parent)] : place;
        }
        return true;
    }

    std::string path_of(Place place) const {
        std::vector<std::string_view> steps{slot_at(place).name};
        while (place.parent != graph_.root) {
            place = place_of_[at(place.parent)];
            steps.push_back(slot_at(place).name);
        }
        std::string path;
        for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
            path += (path.empty() ? "" : ".") + std::string(*step);
        }
        return path;
    }

    std::vector<std::string> adaptable_names() const {
        std::vector<std::string> names;
        for (std::size_t m = 0; m < graph_.modules.size(); ++m) {
            const ModuleClass& c = graph_.classes[at(graph_.modules[m].class_index)];
            if (place_of_[m].slot != unseen && kind_of(c) != LayerKind::other) {
                names.push_back(slot_at(place_of_[m]).name);
            }
        }
        std::ranges::sort(names);
        names.erase(std::unique(names.begin(), names.end()), names.end());
        return names;
    }

    ModuleIndex add_module(ModuleClass module_class) {
        auto found = std::ranges::find(graph_.classes, module_class.name, &ModuleClass::name);
        if (found == graph_.classes.end()) {
            graph_.classes.push_back(std::move(module_class));
            found = std::prev(graph_.classes.end());
        }
        ModuleNode node;
        node.class_index = ClassIndex{static_cast<std::int32_t>(found - graph_.classes.begin())};
        graph_.modules.push_back(std::move(node));
        return ModuleIndex{static_cast<std::int32_t>(graph_.modules.size() - 1)};
    }

    ModuleIndex add_child(ModuleIndex parent, const std::string& name, ModuleClass module_class) {
        const ModuleIndex child = add_module(std::move(module_class));
        graph_.modules[at(parent)].children.push_back({name, child});
        return child;
    }

    void add_parameter(ModuleIndex module, const std::string& name, std::int64_t rows, std::int64_t columns,
                       DType dtype) {
        Tensor tensor;
        tensor.shape = {rows, columns};
        tensor.dtype = dtype;
        tensor.numel = checked_mul(rows, columns, option);
        total_ = checked_add(total_, tensor.numel, option);
        const TensorIndex t{static_cast<std::int32_t>(graph_.tensors.size())};
        graph_.tensors.push_back(std::move(tensor));
        graph_.modules[at(module)].parameters.push_back({name, t, true});
    }

    /// The adapter first takes the layer's dtype; half precision is then cast up.
    DType adapter_dtype(const Tensor& weight) const {
        if (!is_floating_point(weight.dtype)) {
            return DType::float32;
        }
        return options_.autocast_adapter_dtype && weight.dtype != DType::float64 ? DType::float32
                                                                                 : weight.dtype;
    }

    const Tensor& weight_of(const Place& place, ModuleIndex layer) const {
        const std::vector<TensorSlot>& slots = graph_.modules[at(layer)].parameters;
        const auto slot = std::ranges::find(slots, "weight", &TensorSlot::name);
        if (slot == slots.end() || graph_.tensors[at(slot->tensor)].shape.size() != 2) {
            refuse(path_of(place) + " has no weight of two dimensions, which an adapter needs");
        }
        return graph_.tensors[at(slot->tensor)];
    }

    void adapt(const Place& place) {
        const ModuleIndex layer = slot_at(place).module;
        const ModuleClass& c = graph_.classes[at(graph_.modules[at(layer)].class_index)];
        const LayerKind kind = kind_of(c);
        if (kind == LayerKind::other) {
            refuse(
                path_of(place) + " is a " + std::string(short_name(c.name)) +
                "; expected a Linear, an Embedding or transformers' Conv1D" +
                (graph_.classes_known ? "" : " (without a config.json no class of a checkpoint is known)"));
        }
        const Tensor& weight = weight_of(place, layer);
        const DType dtype = adapter_dtype(weight);
        const std::int64_t in = kind == LayerKind::linear ? weight.shape[1] : weight.shape[0];
        const std::int64_t out = kind == LayerKind::linear ? weight.shape[0] : weight.shape[1];
        const bool embedding = kind == LayerKind::embedding;

        const ModuleIndex adapter = add_module(adapter_class(embedding ? "Embedding" : "Linear"));
        graph_.modules[at(place.parent)].children[place.slot].module = adapter;
        graph_.modules[at(adapter)].children.push_back({"base_layer", layer});
        const ModuleClass module_dict = torch_class("container.ModuleDict");
        const ModuleClass parameter_dict = torch_class("container.ParameterDict");
        const ModuleIndex dropout = add_child(adapter, "lora_dropout", module_dict);
        add_child(dropout, options_.adapter,
                  options_.dropout > 0.0 ? ModuleClass{"torch.nn.modules.dropout.Dropout",
                                                       {"torch.nn.modules.dropout._DropoutNd", nn_module}}
                                         : torch_class("linear.Identity"));
        const ModuleIndex a = add_child(adapter, "lora_A", module_dict);
        if (!embedding) {
            const ModuleIndex down = add_child(a, options_.adapter, torch_class("linear.Linear"));
            add_parameter(down, "weight", options_.rank, in, dtype);
        }
        const ModuleIndex b = add_child(adapter, "lora_B", module_dict);
        if (!embedding) {
            const ModuleIndex up = add_child(b, options_.adapter, torch_class("linear.Linear"));
            add_parameter(up, "weight", out, options_.rank, dtype);
        }
        const ModuleIndex embedding_a = add_child(adapter, "lora_embedding_A", parameter_dict);
        const ModuleIndex embedding_b = add_child(adapter, "lora_embedding_B", parameter_dict);
        if (embedding) {
            add_parameter(embedding_a, options_.adapter, options_.rank, in, dtype);
            add_parameter(embedding_b, options_.adapter, out, options_.rank, dtype);
        }
        add_child(adapter, "lora_magnitude_vector", module_dict);
    }

    void add_roots() {
        const std::vector<std::string>& bases =
            graph_.classes[at(graph_.modules[at(graph_.root)].class_index)].bases;
        const bool generates =
            std::ranges::find(bases, "transformers.generation.utils.GenerationMixin") != bases.end();
        ModuleClass peft_model{"peft.peft_model.PeftModel",
                               {"transformers.utils.hub.PushToHubMixin", nn_module}};
        if (generates) {
            peft_model.bases.insert(peft_model.bases.begin(), peft_model.name);
            peft_model.name = "peft.peft_model.PeftModelForCausalLM";
        }
        const ModuleIndex top = add_module(std::move(peft_model));
        const ModuleIndex tuner = add_child(top, "base_model",
                                            {"peft.tuners.lora.model.LoraModel",
                                             {"peft.tuners.tuners_utils.BaseTuner", nn_module, "abc.ABC"}});
        graph_.modules[at(tuner)].children.push_back({"model", graph_.root});
        graph_.root = top;
    }

    ModelGraph graph_;
    const LoraOptions& options_;
    std::vector<Target> targets_;
    std::vector<Place> place_of_;  // by module
    std::vector<Place> matched_;
    std::int64_t total_ = 0;
};

}  // namespace

LoraOptions parse_lora(std::string_view text) {
    constexpr int most_rank = 1'000'000;
    LoraOptions options;
    std::vector<std::string_view> seen;
    for (const std::string_view part : split(text, ',')) {
        const std::string_view key = part.substr(0, part.find('='));
        if (key.size() == part.size()) {
            refuse("expected r=8,targets=q_proj+v_proj, found \"" + std::string(text) + '"');
        }
        if (std::ranges::find(seen, key) != seen.end()) {
            refuse("\"" + std::string(key) + "\" is given twice");
        }
        seen.push_back(key);
        const std::string_view value = part.substr(key.size() + 1);
        if (key == "r") {
            options.rank = parse_number(value, 1, most_rank, "a rank from 1 to " + std::to_string(most_rank));
        } else if (key == "targets") {
            options.targets = parse_targets(value);
        } else if (key == "dropout") {
            options.dropout = parse_number(value, 0.0, 1.0, "a dropout from 0 to 1");
        } else {
            const std::vector<std::string> known{"r", "targets", "dropout"};
            refuse("unknown key \"" + std::string(key) + '"' + did_you_mean(key, known) +
                   "; expected r, targets and dropout");
        }
    }
    if (options.targets.empty()) {
        refuse("names no targets; expected r=8,targets=q_proj+v_proj");
    }
    return options;
}

ModelGraph with_lora(const ModelGraph& graph, const LoraOptions& options) {
    return Adapting(graph, options).run();
}

}  // namespace fsdplan
