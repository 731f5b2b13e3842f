#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/stored/optimizer_keys.hpp"
#include "checkpoint/stored/torch_value.hpp"

namespace fsdplan {

/// A value of a state dict that is no dict or list of others.
struct StateLeaf {
    std::string name;  ///< keys joined by dots
    KeyPath path;      ///< views into the pickle and `numbers`
    std::optional<TorchTensor> tensor;
};

struct StateWalk {
    std::vector<StateLeaf> leaves;
    std::deque<std::string> numbers;             ///< keys that are integers, as text
    std::map<std::string, std::int64_t> opaque;  ///< classes of objects that were not looked into, how many
};

/// All values of a pickled state dict in its order, as DCP would name them: lists count as one value unless
/// they hold dicts or tensors.
///
/// Throws Error(input) with the byte for nesting deeper than 64, which a value that contains itself has too,
/// for names of more than 256 MiB in all, and where shared values make many more names or pieces of tensors
/// than there are values.
StateWalk walk_state(const pickle::Document& document);

}  // namespace fsdplan
