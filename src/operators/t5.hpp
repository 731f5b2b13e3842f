#pragma once

#include <string>

#include "operators/attention.hpp"
#include "operators/layers.hpp"

// T5's two stacks, by the names that transformers gives their modules.
namespace fsdplan::t5 {

struct Sizes {
    std::int64_t heads = 0;
    std::string act;
    double dropout = 0.0;
};

/// The encoder, or with `states` of one the decoder.
Value stack(Eager& f, ModuleIndex m, const Value& ids, const Value& states, const Sizes& sizes);

}  // namespace fsdplan::t5
