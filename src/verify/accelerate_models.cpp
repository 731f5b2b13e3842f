#include "verify/accelerate_models.hpp"

#include <array>

#include "model/builder.hpp"
#include "model/importer.hpp"

namespace fsdplan {
namespace {

constexpr const char* llama =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32,
        "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 96, "tie_word_embeddings": false})";
constexpr const char* gpt2 =
    R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 32, "n_layer": 2, "n_head": 4,
        "vocab_size": 96, "n_positions": 64})";
constexpr const char* t5 =
    R"({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 32, "d_ff": 64,
        "d_kv": 8, "num_layers": 2, "num_heads": 4, "vocab_size": 96})";
constexpr const char* bert =
    R"({"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 90})";
constexpr const char* vit =
    R"({"model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32,
        "patch_size": 8})";

ModelGraph model_of(const char* config, DType dtype = DType::float32) {
    return read_hf_config(config, "small model", {.dtype = dtype});
}

ModelGraph two_linear_layers() {
    const ModuleClass sequential{"torch.nn.modules.container.Sequential", {"torch.nn.modules.module.Module"}};
    const ModuleClass linear{"torch.nn.modules.linear.Linear", {"torch.nn.modules.module.Module"}};
    GraphBuilder build("small model", "written after the recording's description");
    const Scope root = build.root(sequential);
    for (const char* name : {"0", "1"}) {
        const Scope layer = root.child(name, linear);
        layer.parameter("weight", {4, 4}, DType::float32);
        layer.parameter("bias", {4}, DType::float32);
    }
    return build.finish();
}

/// Only the parameters of norms are trained.
ModelGraph norms_only(const ModelGraph& graph) {
    return with_frozen(graph, std::vector<std::string>{"*embed*", "*_proj*", "lm_head*"});
}

struct Beginning {
    std::string_view name;
    ModelGraph (*make)();
};
constexpr std::array<Beginning, 6> others{{
    {"tied weights", [] { return model_of(gpt2); }},
    {"t5", [] { return model_of(t5); }},
    {"bert", [] { return model_of(bert); }},
    {"vit", [] { return model_of(vit); }},
    {"model without _no_split_modules", two_linear_layers},
    {"frozen and trainable", [] { return norms_only(model_of(llama)); }},
}};

}  // namespace

ModelGraph small_recorded_model(std::string_view row_name) {
    for (const Beginning& other : others) {
        if (row_name.starts_with(other.name)) {
            return other.make();
        }
    }
    return model_of(llama);
}

ModelGraph small_llama(DType dtype, bool first_layer_frozen) {
    const ModelGraph graph = model_of(llama, dtype);
    return first_layer_frozen ? with_frozen(graph, std::vector<std::string>{"model.layers.0"}) : graph;
}

}  // namespace fsdplan
