#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/builder.hpp"

// Building blocks that model families share: torch's own layers, and the shapes of classes in transformers.
namespace fsdplan {

/// Classes of torch.nn and of transformers' shared code.
namespace classes {
const ModuleClass& linear();
const ModuleClass& embedding();
const ModuleClass& layer_norm();
const ModuleClass& dropout();
const ModuleClass& module_list();
const ModuleClass& module_dict();
const ModuleClass& sequential();
const ModuleClass& conv1d();
const ModuleClass& conv2d();
const ModuleClass& identity();
/// torch.nn.modules.<name>, a direct subclass of nn.Module ("pixelshuffle.PixelShuffle").
ModuleClass torch_module(std::string_view name);
/// transformers.activations.<name>, or torch.nn's own where ACT2FN uses that ("silu", "gelu", "relu" …).
/// Throws Error(input) at `where` for an unknown activation.
ModuleClass activation(std::string_view name, std::string_view where);
}  // namespace classes

/// A Python module of transformers that defines one family's classes, with their usual bases.
struct ClassSpace {
    std::string_view module;           ///< "transformers.models.llama.modeling_llama"
    std::string_view pretrained_base;  ///< "LlamaPreTrainedModel"

    /// A direct subclass of nn.Module.
    ModuleClass plain(std::string_view name) const;
    /// A subclass of the given class.
    ModuleClass derived(std::string_view name, const ModuleClass& base) const;
    /// A repeated layer: GradientCheckpointingLayer.
    ModuleClass layer(std::string_view name) const;
    /// A subclass of this family's PreTrainedModel.
    ModuleClass pretrained(std::string_view name) const;
    /// The same with GenerationMixin.
    ModuleClass generative(std::string_view name) const;
};

/// The classes of a family that start with its name: BertLayer, BertModel.
struct PrefixedClasses {
    ClassSpace space;
    std::string_view prefix;  ///< "Bert"

    std::string full(std::string_view name) const { return std::string(prefix) + std::string(name); }
    ModuleClass plain(std::string_view name) const { return space.plain(full(name)); }
    ModuleClass derived(std::string_view name, const ModuleClass& base) const {
        return space.derived(full(name), base);
    }
    ModuleClass layer(std::string_view name) const { return space.layer(full(name)); }
    ModuleClass pretrained(std::string_view name) const { return space.pretrained(full(name)); }
    ModuleClass generative(std::string_view name) const { return space.generative(full(name)); }
};

Scope linear(Scope parent, std::string name, std::int64_t in, std::int64_t out, bool bias);
Scope embedding(Scope parent, std::string name, std::int64_t rows, std::int64_t width);
/// An embedding of a class of its own.
Scope embedding(Scope parent, std::string name, const ModuleClass& module_class, std::int64_t rows,
                std::int64_t width);
Scope layer_norm(Scope parent, std::string name, std::int64_t width, bool bias = true);
/// A module of class `norm` with one weight of this width (RMS norms).
Scope weight_norm(Scope parent, std::string name, const ModuleClass& norm, std::int64_t width);
Scope dropout(Scope parent, std::string name);
Scope module_list(Scope parent, std::string name);
Scope activation(Scope parent, std::string name, std::string_view function);
Scope identity(Scope parent, std::string name);
Scope conv1d(Scope parent, std::string name, std::int64_t in_per_group, std::int64_t out, std::int64_t kernel,
             bool bias = true);
Scope conv2d(Scope parent, std::string name, std::int64_t in, std::int64_t out, std::int64_t kernel_height,
             std::int64_t kernel_width, bool bias = true);

/// A rotary embedding with the two buffers that transformers 5 keeps, neither persistent.
Scope rotary_embedding(Scope parent, std::string name, const ModuleClass& rotary, std::int64_t rotary_width);

/// One kind of attention of a model that mixes them, with rotary frequencies of its own.
struct AttentionKind {
    std::string name;  ///< "sliding_attention"
    std::int64_t rotary_width = 0;
};
/// The same for such a model: buffers for each kind, in the order given.
Scope rotary_embedding(Scope parent, std::string name, const ModuleClass& rotary,
                       const std::vector<AttentionKind>& kinds);

/// A ModuleList of equal layers "0", "1", …, each filled by `fill`.
void repeat(Scope parent, std::string name, std::int64_t count, const ModuleClass& layer_class,
            const std::function<void(Scope layer, std::int64_t index)>& fill);

}  // namespace fsdplan
