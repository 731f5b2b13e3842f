#include "model/layer_parts.hpp"

namespace fsdplan {

Scope kvqo_attention(Scope parent, std::string name, const ModuleClass& module_class, std::int64_t width,
                     bool key_bias) {
    const Scope m = parent.child(std::move(name), module_class);
    linear(m, "k_proj", width, width, key_bias);
    linear(m, "v_proj", width, width, true);
    linear(m, "q_proj", width, width, true);
    linear(m, "out_proj", width, width, true);
    return m;
}

Scope vision_mlp(Scope parent, std::string name, const ModuleClass& module_class, std::int64_t width,
                 std::int64_t intermediate, std::string_view act) {
    const Scope m = parent.child(std::move(name), module_class);
    activation(m, "activation_fn", act);
    linear(m, "fc1", width, intermediate, true);
    linear(m, "fc2", intermediate, width, true);
    return m;
}

Scope multihead_attention(Scope parent, std::string name, std::int64_t width) {
    const Scope m = parent.child(std::move(name), classes::torch_module("activation.MultiheadAttention"));
    m.parameter("in_proj_weight", {3 * width, width});
    m.parameter("in_proj_bias", {3 * width});
    ModuleClass output = classes::linear();
    output.bases.insert(output.bases.begin(), output.name);
    output.name = "torch.nn.modules.linear.NonDynamicallyQuantizableLinear";
    const Scope out_proj = m.child("out_proj", output);
    out_proj.parameter("weight", {width, width});
    out_proj.parameter("bias", {width});
    return m;
}

}  // namespace fsdplan
