#include <algorithm>
#include <array>
#include <memory>

#include "base/file.hpp"
#include "base/json.hpp"
#include "model/config_fields.hpp"
#include "model/family.hpp"
#include "model/heads.hpp"
#include "model/importer.hpp"

namespace fsdplan {
namespace {

const Architecture& architecture_of(const Config& config, const FamilyInfo& family) {
    const auto listed = config.value().find("architectures");
    if (!listed || listed->is_null() || listed->size() == 0) {
        return family.architectures.front();
    }
    const json::Value first = *listed->elements().begin();
    const auto found = std::ranges::find(family.architectures, first.string(), &Architecture::name);
    if (found == family.architectures.end()) {
        std::vector<std::string> known;
        for (const Architecture& a : family.architectures) {
            known.emplace_back(a.name);
        }
        throw Error(ErrorKind::input, first.where(),
                    "the class " + json::quote(first.string()) + " is not built in" +
                        did_you_mean(first.string(), known) +
                        "; it can be exported from Python as a module-tree JSON (docs/formats.md)");
    }
    return *found;
}

// Without a dtype transformers builds in torch's default dtype, whatever the checkpoint holds. torch makes
// only these four the default, which is how a model gets its dtype.
DType dtype_of(const Config& config, const ImportOptions& options) {
    const DType dtype = options.dtype.value_or(config.dtype().value_or(DType::float32));
    constexpr std::array possible{DType::float64, DType::float32, DType::float16, DType::bfloat16};
    if (std::ranges::find(possible, dtype) == possible.end()) {
        const std::string message = "a model cannot be created in " + std::string(name(dtype)) +
                                    "; expected float32, bfloat16, float16 or float64";
        if (options.dtype) {
            throw Error(ErrorKind::input, "--dtype", message);
        }
        config.refuse(config.has("dtype") ? "dtype" : "torch_dtype", message);
    }
    return dtype;
}

/// Families name it differently; multimodal models keep it with their text model.
std::optional<std::int64_t> experts_per_token(const json::Value& config) {
    for (const char* key :
         {"num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk", "top_k_experts"}) {
        const std::optional<json::Value> count = config.find(key);
        if (count && count->is_integer() && count->integer() > 0) {
            return count->integer();
        }
    }
    const std::optional<json::Value> text = config.find("text_config");
    return text && text->is_object() ? experts_per_token(*text) : std::nullopt;
}

// transformers collects the classes of a model and its parts in a set, which has no order.
void sort_unique(std::vector<std::string>& names) {
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
}

/// peft's model around the one that a configuration describes.
Value through_wrappers(const FamilyInfo& family, const Config& config, Eager& f, ModuleIndex m) {
    const std::optional<ModuleIndex> inner = f.child(m, "base_model");
    if (!inner || !f.tree().class_info(m).name.starts_with("peft.")) {
        return family.forward(config, f, m);
    }
    return f.call(m, {}, [&] {
        return f.call(*inner, {},
                      [&] { return family.forward(config, f, f.child(*inner, "model").value()); });
    });
}

OperatorGraph operators_of(const FamilyInfo& family, const Config& config, const ModuleTree& tree,
                           const Workload& workload) {
    Eager eager(tree, workload);
    Value loss = through_wrappers(family, config, eager, ModuleIndex{0});
    return loss ? eager.finish(std::move(loss)) : OperatorGraph{};
}

}  // namespace

ModelGraph read_hf_config(std::string_view text, const std::string& shown, const ImportOptions& options) {
    const auto document = std::make_shared<json::Document>(text, shown);
    const Config config(document->root());
    const FamilyInfo& family = family_of(config);
    const Architecture& architecture = architecture_of(config, family);
    refuse_per_layer_settings(config);
    check_labels(config);
    GraphBuilder builder(shown, std::string(family.library) + " " + std::string(architecture.name));
    builder.set_dtype(dtype_of(config, options));
    builder.graph().no_split_classes.assign(family.no_split_classes.begin(), family.no_split_classes.end());
    builder.graph().longest_sequence = family.longest_sequence(config);
    builder.graph().experts_per_token = experts_per_token(config.value());
    architecture.build(config, Place(builder));
    ModelGraph graph = builder.finish();
    sort_unique(graph.no_split_classes);
    if (family.forward != nullptr) {
        graph.operators = [document, &family](const ModuleTree& tree, const Workload& workload) {
            return operators_of(family, Config(document->root()), tree, workload);
        };
    }
    if (!config.defaults_used().empty()) {
        std::string note = "not in the file, so the defaults of " + std::string(family.library) + ": ";
        for (std::size_t i = 0; i < config.defaults_used().size(); ++i) {
            note += (i == 0 ? "" : ", ") + config.defaults_used()[i];
        }
        graph.notes.push_back(std::move(note));
    }
    return graph;
}

namespace builtin::importer {

extern const ImporterInfo hf_config;
constinit const ImporterInfo hf_config{
    .name = "Hugging Face config.json",
    .help = "builds the module tree that transformers 5.24 builds from a config.json",
    .recognises =
        [](const ImportSource& source) {
            // The metadata of a safetensors file may name the type too, after the zeros of its length.
            const bool text = source.head.find('\0') == std::string::npos;
            return source.path.filename() == "config.json" ||
                   (text && source.head.find("\"model_type\"") != std::string::npos);
        },
    .read =
        [](const ImportSource& source, const ImportOptions& options) {
            return read_hf_config(read_text(source.path), source.shown, options);
        },
};

}  // namespace builtin::importer
}  // namespace fsdplan
