#include <algorithm>
#include <array>

#include "fsdplan/frontend.hpp"

// get_input_embeddings(), get_output_embeddings() and base_model of transformers 5.24, and accelerate's
// search for the final norm, read off the names of modules.
namespace fsdplan {
namespace {

// Where models of transformers keep their input embeddings, below the base model.
constexpr std::array<std::string_view, 9> input_paths{"embed_tokens",
                                                      "shared",
                                                      "wte",
                                                      "embed_in",
                                                      "word_embeddings",
                                                      "embeddings.word_embeddings",
                                                      "embeddings",
                                                      "decoder.embed_tokens",
                                                      "language_model.embed_tokens"};
constexpr std::array<std::string_view, 4> output_paths{"lm_head", "embed_out", "proj_out",
                                                       "cls.predictions.decoder"};

bool is_pretrained(const ModuleTree& tree, ModuleIndex m) {
    const std::vector<std::string>& bases = tree.class_info(m).bases;
    return std::ranges::find(bases, "transformers.modeling_utils.PreTrainedModel") != bases.end();
}

/// The model below the head: the only child that is a model itself, else the root.
ModuleIndex base_model(const ModuleTree& tree) {
    std::vector<ModuleIndex> models;
    for (const ModuleIndex c : tree.children(ModuleIndex{})) {
        if (is_pretrained(tree, c)) {
            models.push_back(c);
        }
    }
    return models.size() == 1 ? models.front() : ModuleIndex{};
}

template <std::size_t n>
std::optional<ModuleIndex> first_with_weight(const ModuleTree& tree, ModuleIndex below,
                                             const std::array<std::string_view, n>& paths) {
    for (const std::string_view path : paths) {
        const auto m = tree.find(join_path(tree.path(below), path));
        const auto has_weight = [&](ModuleIndex found) {
            const std::span<const std::string> names = tree.parameter_names(found);
            return std::ranges::find(names, "weight") != names.end();
        };
        if (m && has_weight(*m)) {
            return m;
        }
    }
    return std::nullopt;
}

std::optional<TensorIndex> weight(const ModuleTree& tree, std::optional<ModuleIndex> m) {
    return m ? tree.find_parameter(join_path(tree.path(*m), "weight")) : std::nullopt;
}

}  // namespace

ModelHints model_hints(const ModelGraph& graph, const ModuleTree& tree) {
    ModelHints out{.no_split_classes = graph.no_split_classes};
    if (!is_pretrained(tree, ModuleIndex{})) {
        return out;  // no such methods
    }
    const ModuleIndex base = base_model(tree);
    const auto input = first_with_weight(tree, base, input_paths);
    const auto patches = tree.find(join_path(tree.path(base), "embeddings.patch_embeddings"));
    const auto output = first_with_weight(tree, ModuleIndex{}, output_paths);
    const auto path = [&](std::optional<ModuleIndex> m) {
        return m ? std::optional(tree.path(*m)) : std::nullopt;
    };
    out.input_embeddings = path(input ? input : patches);
    out.output_embeddings = path(output);
    out.weights_tied = input && output && weight(tree, input) == weight(tree, output);
    for (const ModuleIndex c : tree.children(base)) {
        if (short_name(tree.class_info(c).name).find("Norm") != std::string_view::npos) {
            out.final_norm = tree.path(c);
        }
    }
    return out;
}

}  // namespace fsdplan
