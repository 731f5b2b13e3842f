#include "model/causal_lm.hpp"
#include "model/config_fields.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr ClassSpace space{"transformers.models.mamba.modeling_mamba", "MambaPreTrainedModel"};

struct Sizes {
    std::int64_t vocab, hidden, inner, layers, state, conv, rank;
    std::string act;
    bool bias, conv_bias;
};

// An integer, or "auto" for a sixteenth of the width.
std::int64_t time_step_rank(const Config& config, std::int64_t hidden) {
    constexpr std::int64_t part = 16;
    constexpr std::string_view key = "time_step_rank";
    const std::optional<json::Value> value = config.value().find(key);
    if (value && !value->is_string()) {
        return whole(config, {key}, 0);
    }
    if (value && value->string() != "auto") {
        value->fail("an integer or \"auto\"");
    }
    return ceil_div(hidden, part);
}

Sizes sizes_of(const Config& config) {
    const std::int64_t hidden = whole(config, {"hidden_size"}, 768);
    const std::int64_t expand = whole(config, {"expand"}, 2);
    return {
        .vocab = whole(config, {"vocab_size"}, 50280),
        .hidden = hidden,
        .inner = config.optional_size("intermediate_size")
                     .value_or(checked_mul(expand, hidden, config.value().where())),
        .layers = whole_count(config, {"num_hidden_layers"}, 32),
        .state = whole(config, {"state_size"}, 16),
        .conv = whole(config, {"conv_kernel"}, 4),
        .rank = time_step_rank(config, hidden),
        .act = config.text("hidden_act", "silu"),
        .bias = config.flag("use_bias", false),
        .conv_bias = config.flag("use_conv_bias", true),
    };
}

void fill_layer(Scope layer, const Sizes& s) {
    weight_norm(layer, "norm", space.plain("MambaRMSNorm"), s.hidden);
    const Scope mixer = layer.child("mixer", space.plain("MambaMixer"));
    mixer.parameter("A_log", {s.inner, s.state});
    mixer.parameter("D", {s.inner});
    const Scope conv = mixer.child("conv1d", classes::conv1d());
    conv.parameter("weight", {s.inner, 1, s.conv});
    if (s.conv_bias) {
        conv.parameter("bias", {s.inner});
    }
    activation(mixer, "act", s.act);
    linear(mixer, "in_proj", s.hidden, 2 * s.inner, s.bias);
    linear(mixer, "x_proj", s.inner, s.rank + 2 * s.state, false);
    linear(mixer, "dt_proj", s.rank, s.inner, true);
    linear(mixer, "out_proj", s.inner, s.hidden, s.bias);
}

Backbone describe(const Config& config) {
    const Sizes s = sizes_of(config);
    check_layers(config, s.layers);
    const auto build = [s](Scope model) {
        const Scope tokens = embedding(model, "embeddings", s.vocab, s.hidden);
        repeat(model, "layers", s.layers, space.layer("MambaBlock"),
               [&](Scope layer, std::int64_t) { fill_layer(layer, s); });
        weight_norm(model, "norm_f", space.plain("MambaRMSNorm"), s.hidden);
        return tokens;
    };
    return {.build = build,
            .vocab = s.vocab,
            .width = s.hidden,
            .tied = config.flag("tie_word_embeddings", true)};
}

constexpr std::array heads{
    Head{"MambaForCausalLM", HeadKind::causal_lm, "backbone"},
};
constexpr DecoderFamily decoder_family{space, "MambaModel", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"mamba"};
constexpr std::array<std::string_view, 2> no_split{"MambaBlock", "MambaMixer"};

}  // namespace

extern const FamilyInfo mamba;
constinit const FamilyInfo mamba{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
