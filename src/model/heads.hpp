#pragma once

#include <cstdint>
#include <string>

#include "model/blocks.hpp"
#include "model/builder.hpp"
#include "model/config.hpp"

// What families put on top of a backbone in the same way.
namespace fsdplan {

/// Number of classes: num_labels, else the entries of id2label, else `absent`.
std::int64_t num_labels(const Config& config, std::int64_t absent = 2);

/// Refuses labels that no configuration of transformers takes, whether or not the model has a classifier.
void check_labels(const Config& config);

/// dense, dropout, out_proj.
Scope dense_head(Scope parent, std::string name, const ModuleClass& module_class, std::int64_t width,
                 std::int64_t labels);

/// The child "classifier" of an image classifier: an Identity when there are no labels.
void classifier_or_identity(Scope root, std::int64_t width, std::int64_t labels);

/// The weights of a sum over the states of all layers, when use_weighted_layer_sum asks for one.
void weighted_layer_sum(Scope root, const Config& config, std::int64_t layers);

}  // namespace fsdplan
