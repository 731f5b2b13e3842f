#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/model.hpp"

// An ONNX graph as plain values: names are numbers, constants that decide shapes are read, all other data is
// not.
namespace fsdplan::onnx {

/// Number of a value of the graph; -1: an optional input that is left out.
using ValueId = std::int32_t;

struct Dimension {
    std::int64_t size = -1;  ///< -1: not said, or by `name`
    std::string name;        ///< dim_param
};

struct TensorType {
    std::vector<Dimension> shape;
    DType dtype = DType::float32;
};

/// What an initializer or a Constant node holds.
struct Constant {
    std::vector<std::int64_t> shape;
    DType dtype = DType::float32;
    std::int64_t numel = 1;
    /// Of integers and booleans in at most one dimension, as they decide shapes, and of a single float that
    /// is whole; absent: not read.
    std::optional<std::vector<std::int64_t>> numbers;
    /// All elements are equal, which makes exporters merge the tensor with others. Absent: the data is
    /// elsewhere.
    std::optional<bool> uniform;
};

struct Attribute {
    std::int64_t i = 0;  ///< the whole number, or the only element of a tensor
    std::string s;
    std::vector<std::int64_t> ints;
};

/// The call of a module that a node belongs to.
struct Scope {
    std::string path;        ///< of the module, "layers.0.norm"
    std::string call;        ///< tells calls of one module apart
    std::string class_name;  ///< "" when the file does not say
    friend bool operator==(const Scope&, const Scope&) = default;
};

struct Node {
    std::string op;  ///< ONNX's name, or after fuse() a name of torch's in small letters
    std::string name;
    std::vector<ValueId> inputs;
    std::vector<ValueId> outputs;
    std::map<std::string, Attribute, std::less<>> attributes;
    std::vector<Scope> scopes;  ///< outermost first, without the root

    ValueId input(std::size_t i) const { return i < inputs.size() ? inputs[i] : -1; }
    std::int64_t integer(std::string_view attribute, std::int64_t absent) const;
    std::vector<std::int64_t> integers(std::string_view attribute) const;
};

struct Graph {
    std::string shown;                      ///< the file, for messages
    std::string producer;                   ///< "pytorch 2.13.0"
    std::vector<std::string> names;         ///< of values
    std::vector<Node> nodes;                ///< in the order of execution
    std::map<ValueId, Constant> constants;  ///< initializers and results of Constant nodes
    std::vector<ValueId> initializers;      ///< in the file's order
    std::vector<ValueId> inputs;            ///< without initializers
    std::vector<ValueId> outputs;
    std::map<ValueId, TensorType> types;  ///< as far as the file says
    std::string root_class;               ///< "" when the file does not say
    /// Attention masks that fuse() has left out.
    std::int64_t masks_left_out = 0;
    /// Buffers as torch.export spells their names, with _ for dots.
    std::set<std::string, std::less<>> buffers;

    const Constant* constant(ValueId v) const;
    const std::string& name(ValueId v) const { return names[static_cast<std::size_t>(v)]; }
};

/// Reads a file. Throws Error(input) for what is not a graph: bytes that are no protobuf, a value used before
/// it is made or made twice, sizes that cannot be; Error(machine) when this fsdplan was built without
/// protobuf.
Graph read_graph(const std::string& path, const std::string& shown);

}  // namespace fsdplan::onnx
