#include "model/blocks.hpp"

#include <algorithm>
#include <array>

namespace fsdplan {
namespace {

const std::string nn_module = "torch.nn.modules.module.Module";

ModuleClass torch_class(std::string name) {
    return {std::move(name), {nn_module}};
}

// transformers.activations.ACT2FN: the classes are transformers' own or torch's.
struct ActivationRow {
    std::string_view function;
    std::string_view class_name;
};
constexpr std::array activations{
    ActivationRow{"gelu", "transformers.activations.GELUActivation"},
    ActivationRow{"gelu_10", "transformers.activations.ClippedGELUActivation"},
    ActivationRow{"gelu_accurate", "transformers.activations.AccurateGELUActivation"},
    ActivationRow{"gelu_fast", "transformers.activations.FastGELUActivation"},
    ActivationRow{"gelu_new", "transformers.activations.NewGELUActivation"},
    ActivationRow{"gelu_python", "transformers.activations.GELUActivation"},
    ActivationRow{"gelu_python_tanh", "transformers.activations.GELUTanh"},
    ActivationRow{"gelu_pytorch_tanh", "transformers.activations.GELUTanh"},
    ActivationRow{"hardswish", "torch.nn.modules.activation.Hardswish"},
    ActivationRow{"laplace", "transformers.activations.LaplaceActivation"},
    ActivationRow{"leaky_relu", "torch.nn.modules.activation.LeakyReLU"},
    ActivationRow{"linear", "transformers.activations.LinearActivation"},
    ActivationRow{"mish", "transformers.activations.MishActivation"},
    ActivationRow{"prelu", "torch.nn.modules.activation.PReLU"},
    ActivationRow{"quick_gelu", "transformers.activations.QuickGELUActivation"},
    ActivationRow{"relu", "torch.nn.modules.activation.ReLU"},
    ActivationRow{"relu2", "transformers.activations.ReLUSquaredActivation"},
    ActivationRow{"relu6", "torch.nn.modules.activation.ReLU6"},
    ActivationRow{"sigmoid", "torch.nn.modules.activation.Sigmoid"},
    ActivationRow{"silu", "transformers.activations.SiLUActivation"},
    ActivationRow{"sqrtsoftplus", "transformers.activations.SqrtSoftplusActivation"},
    ActivationRow{"swish", "torch.nn.modules.activation.SiLU"},
    ActivationRow{"tanh", "torch.nn.modules.activation.Tanh"},
    ActivationRow{"xielu", "transformers.activations.XIELUActivation"},
};

std::vector<std::string> pretrained_bases(const ClassSpace& space) {
    return {std::string(space.module) + "." + std::string(space.pretrained_base),
            "transformers.modeling_utils.PreTrainedModel",
            nn_module,
            "transformers.modeling_utils.EmbeddingAccessMixin",
            "transformers.modeling_utils.ModuleUtilsMixin",
            "transformers.utils.hub.PushToHubMixin",
            "transformers.integrations.peft.PeftAdapterMixin",
            "transformers.distributed.mixin.DistributedMixin"};
}

}  // namespace

namespace classes {

const ModuleClass& linear() {
    static const ModuleClass c = torch_class("torch.nn.modules.linear.Linear");
    return c;
}
const ModuleClass& embedding() {
    static const ModuleClass c = torch_class("torch.nn.modules.sparse.Embedding");
    return c;
}
const ModuleClass& layer_norm() {
    static const ModuleClass c = torch_class("torch.nn.modules.normalization.LayerNorm");
    return c;
}
const ModuleClass& dropout() {
    static const ModuleClass c{"torch.nn.modules.dropout.Dropout",
                               {"torch.nn.modules.dropout._DropoutNd", nn_module}};
    return c;
}
const ModuleClass& module_list() {
    static const ModuleClass c = torch_class("torch.nn.modules.container.ModuleList");
    return c;
}
const ModuleClass& module_dict() {
    static const ModuleClass c = torch_class("torch.nn.modules.container.ModuleDict");
    return c;
}
const ModuleClass& sequential() {
    static const ModuleClass c = torch_class("torch.nn.modules.container.Sequential");
    return c;
}
const ModuleClass& conv1d() {
    static const ModuleClass c{"torch.nn.modules.conv.Conv1d", {"torch.nn.modules.conv._ConvNd", nn_module}};
    return c;
}
const ModuleClass& conv2d() {
    static const ModuleClass c{"torch.nn.modules.conv.Conv2d", {"torch.nn.modules.conv._ConvNd", nn_module}};
    return c;
}

ModuleClass activation(std::string_view name, std::string_view where) {
    const auto found = std::ranges::find(activations, name, &ActivationRow::function);
    if (found == activations.end()) {
        std::vector<std::string> known;
        known.reserve(activations.size());
        for (const ActivationRow& row : activations) {
            known.emplace_back(row.function);
        }
        throw Error(ErrorKind::input, std::string(where),
                    "unknown activation \"" + std::string(name) + '"' + did_you_mean(name, known));
    }
    if (name == "relu6") {
        return {std::string(found->class_name), {"torch.nn.modules.activation.Hardtanh", nn_module}};
    }
    return torch_class(std::string(found->class_name));
}

const ModuleClass& identity() {
    static const ModuleClass c = torch_class("torch.nn.modules.linear.Identity");
    return c;
}
ModuleClass torch_module(std::string_view name) {
    return torch_class("torch.nn.modules." + std::string(name));
}

}  // namespace classes

ModuleClass ClassSpace::plain(std::string_view name) const {
    return torch_class(std::string(module) + "." + std::string(name));
}

ModuleClass ClassSpace::derived(std::string_view name, const ModuleClass& base) const {
    ModuleClass out = plain(name);
    out.bases = base.bases;
    out.bases.insert(out.bases.begin(), base.name);
    return out;
}

ModuleClass ClassSpace::layer(std::string_view name) const {
    return derived(name, torch_class("transformers.modeling_layers.GradientCheckpointingLayer"));
}

ModuleClass ClassSpace::pretrained(std::string_view name) const {
    ModuleClass out = plain(name);
    out.bases = pretrained_bases(*this);
    return out;
}

ModuleClass ClassSpace::generative(std::string_view name) const {
    ModuleClass out = pretrained(name);
    out.bases.emplace_back("transformers.generation.utils.GenerationMixin");
    out.bases.emplace_back("transformers.generation.continuous_batching.continuous_api.ContinuousMixin");
    return out;
}

Scope linear(Scope parent, std::string name, std::int64_t in, std::int64_t out, bool bias) {
    const Scope m = parent.child(std::move(name), classes::linear());
    m.parameter("weight", {out, in});
    if (bias) {
        m.parameter("bias", {out});
    }
    return m;
}

Scope embedding(Scope parent, std::string name, std::int64_t rows, std::int64_t width) {
    return embedding(parent, std::move(name), classes::embedding(), rows, width);
}

Scope embedding(Scope parent, std::string name, const ModuleClass& module_class, std::int64_t rows,
                std::int64_t width) {
    const Scope m = parent.child(std::move(name), module_class);
    m.parameter("weight", {rows, width});
    return m;
}

Scope layer_norm(Scope parent, std::string name, std::int64_t width, bool bias) {
    const Scope m = parent.child(std::move(name), classes::layer_norm());
    m.parameter("weight", {width});
    if (bias) {
        m.parameter("bias", {width});
    }
    return m;
}

Scope weight_norm(Scope parent, std::string name, const ModuleClass& norm, std::int64_t width) {
    const Scope m = parent.child(std::move(name), norm);
    m.parameter("weight", {width});
    return m;
}

Scope dropout(Scope parent, std::string name) {
    return parent.child(std::move(name), classes::dropout());
}

Scope module_list(Scope parent, std::string name) {
    return parent.child(std::move(name), classes::module_list());
}

Scope activation(Scope parent, std::string name, std::string_view function) {
    const Scope m =
        parent.child(std::move(name), classes::activation(function, parent.builder().graph().name));
    // The two that learn; xIELU keeps its own dtype whatever the model's is.
    if (function == "prelu") {
        m.parameter("weight", {1});
    } else if (function == "xielu") {
        m.parameter("alpha_p", {1}, DType::bfloat16);
        m.parameter("alpha_n", {1}, DType::bfloat16);
        m.buffer("beta", {}, DType::bfloat16);
        m.buffer("eps", {}, DType::bfloat16);
    }
    return m;
}

Scope identity(Scope parent, std::string name) {
    return parent.child(std::move(name), classes::identity());
}

Scope conv1d(Scope parent, std::string name, std::int64_t in_per_group, std::int64_t out, std::int64_t kernel,
             bool bias) {
    const Scope m = parent.child(std::move(name), classes::conv1d());
    m.parameter("weight", {out, in_per_group, kernel});
    if (bias) {
        m.parameter("bias", {out});
    }
    return m;
}

Scope conv2d(Scope parent, std::string name, std::int64_t in, std::int64_t out, std::int64_t kernel_height,
             std::int64_t kernel_width, bool bias) {
    const Scope m = parent.child(std::move(name), classes::conv2d());
    m.parameter("weight", {out, in, kernel_height, kernel_width});
    if (bias) {
        m.parameter("bias", {out});
    }
    return m;
}

Scope rotary_embedding(Scope parent, std::string name, const ModuleClass& rotary, std::int64_t rotary_width) {
    const Scope m = parent.child(std::move(name), rotary);
    const std::int64_t frequencies = ceil_div(rotary_width, 2);
    m.buffer("inv_freq", {frequencies}, DType::float32, false);
    m.buffer("original_inv_freq", {frequencies}, DType::float32, false);
    return m;
}

Scope rotary_embedding(Scope parent, std::string name, const ModuleClass& rotary,
                       const std::vector<AttentionKind>& kinds) {
    const Scope m = parent.child(std::move(name), rotary);
    for (const AttentionKind& kind : kinds) {
        const std::int64_t frequencies = ceil_div(kind.rotary_width, 2);
        m.buffer(kind.name + "_inv_freq", {frequencies}, DType::float32, false);
        m.buffer(kind.name + "_original_inv_freq", {frequencies}, DType::float32, false);
    }
    return m;
}

void repeat(Scope parent, std::string name, std::int64_t count, const ModuleClass& layer_class,
            const std::function<void(Scope layer, std::int64_t index)>& fill) {
    const Scope list = module_list(parent, std::move(name));
    for (std::int64_t i = 0; i < count; ++i) {
        fill(list.child(std::to_string(i), layer_class), i);
    }
}

}  // namespace fsdplan
