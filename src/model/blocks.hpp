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

Scope linear(Scope parent, std::string name, std::int64_t in, std::int64_t out, bool bias);
Scope embedding(Scope parent, std::string name, std::int64_t rows, std::int64_t width);
Scope layer_norm(Scope parent, std::string name, std::int64_t width, bool bias = true);
/// A module of class `norm` with one weight of this width (RMS norms).
Scope weight_norm(Scope parent, std::string name, const ModuleClass& norm, std::int64_t width);
Scope dropout(Scope parent, std::string name);
Scope module_list(Scope parent, std::string name);
Scope activation(Scope parent, std::string name, std::string_view function);

/// A rotary embedding with the two buffers that transformers 5 keeps, neither persistent.
Scope rotary_embedding(Scope parent, std::string name, const ModuleClass& rotary, std::int64_t rotary_width);

/// A ModuleList of equal layers "0", "1", …, each filled by `fill`.
void repeat(Scope parent, std::string name, std::int64_t count, const ModuleClass& layer_class,
            const std::function<void(Scope layer, std::int64_t index)>& fill);

}  // namespace fsdplan
