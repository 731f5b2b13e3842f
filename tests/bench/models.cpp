#include "models.hpp"

#include <string>

#include "model/blocks.hpp"
#include "model/builder.hpp"

namespace fsdplan::bench {
namespace {

constexpr std::int64_t layers = 58;
constexpr std::int64_t experts = 256;
constexpr std::int64_t hidden = 7168;
constexpr std::int64_t expert_width = 2048;

const ModuleClass& bench_class(const char* name) {
    thread_local ModuleClass c;
    c = {std::string("bench.") + name, {"torch.nn.modules.module.Module"}};
    return c;
}

void expert(Scope list, std::int64_t number, std::int64_t width) {
    const Scope mlp = list.child(std::to_string(number), bench_class("Expert"));
    linear(mlp, "gate_proj", hidden, width, false);
    linear(mlp, "up_proj", hidden, width, false);
    linear(mlp, "down_proj", width, hidden, false);
}

}  // namespace

ModelGraph experts_as_modules(bool all_different) {
    GraphBuilder builder("experts", "generated");
    const Scope root = builder.root(bench_class("Model"));
    embedding(root, "embed_tokens", 129'280, hidden);
    const Scope list = module_list(root, "layers");
    for (std::int64_t i = 0; i < layers; ++i) {
        const Scope layer = list.child(std::to_string(i), bench_class("Layer"));
        const Scope attention = layer.child("self_attn", bench_class("Attention"));
        for (const char* projection : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
            linear(attention, projection, hidden, hidden, false);
        }
        const Scope mlp = layer.child("mlp", bench_class("MoE"));
        linear(mlp, "gate", hidden, experts, false);
        const Scope list_of_experts = module_list(mlp, "experts");
        for (std::int64_t e = 0; e < experts; ++e) {
            expert(list_of_experts, e, all_different ? expert_width + i * experts + e : expert_width);
        }
        weight_norm(layer, "input_layernorm", bench_class("Norm"), hidden);
        weight_norm(layer, "post_attention_layernorm", bench_class("Norm"), hidden);
    }
    weight_norm(root, "norm", bench_class("Norm"), hidden);
    linear(root, "lm_head", hidden, 129'280, false);
    return builder.finish();
}

}  // namespace fsdplan::bench
