#include "model/onnx/graph.hpp"

namespace fsdplan::onnx {

std::int64_t Node::integer(std::string_view attribute, std::int64_t absent) const {
    const auto found = attributes.find(attribute);
    return found == attributes.end() ? absent : found->second.i;
}

std::vector<std::int64_t> Node::integers(std::string_view attribute) const {
    const auto found = attributes.find(attribute);
    return found == attributes.end() ? std::vector<std::int64_t>{} : found->second.ints;
}

const Constant* Graph::constant(ValueId v) const {
    const auto found = constants.find(v);
    return found == constants.end() ? nullptr : &found->second;
}

}  // namespace fsdplan::onnx
