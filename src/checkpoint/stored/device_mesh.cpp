#include "checkpoint/stored/device_mesh.hpp"

#include <algorithm>
#include <span>

#include "checkpoint/stored/torch_value.hpp"

namespace fsdplan {
namespace {

using pickle::Type;
using pickle::Value;

/// Of a mesh or its placements; a mesh has as few dimensions as a tensor.
std::vector<Value> few_elements(const Value& list) {
    constexpr std::size_t most = 64;
    if (list.size() > most) {
        list.refuse("a mesh of " + std::to_string(list.size()) + " dimensions");
    }
    return list.elements();
}

std::int64_t ranks_along(std::span<const std::int64_t> sizes, const Value& where) {
    std::int64_t ranks = 1;
    for (const std::int64_t size : sizes) {
        if (size < 1 || ranks > most_saved_ranks / size) {
            where.refuse("a mesh of more than " + std::to_string(most_saved_ranks) + " ranks, or of none");
        }
        ranks *= size;
    }
    return ranks;
}

/// A size, or a tuple of sizes that make one dimension together.
std::int64_t dimension(const Value& size) {
    return size.type() == Type::integer ? size.integer(1, most_saved_ranks)
                                        : ranks_along(torch_sizes(size), size);
}

/// torch 2.13 keeps a layout of axes; before, there was the tensor of ranks alone.
std::vector<std::int64_t> mesh_shape(const Value& mesh) {
    if (const auto layout = mesh.attribute("_layout")) {
        std::vector<std::int64_t> shape;
        if (const auto axes = layout->attribute("axes")) {
            for (const Value& axis : few_elements(*axes)) {
                shape.push_back(dimension(axis.attribute_at("shape")));
            }
            return shape;
        }
    }
    for (const char* name : {"mesh", "_rank_map"}) {
        if (const auto ranks = mesh.attribute(name)) {
            if (const auto tensor = torch_tensor(*ranks)) {
                return tensor->shape;
            }
        }
    }
    mesh.fail("a mesh with a layout or a tensor of ranks");
}

std::string_view last_part(std::string_view name) {
    return name.substr(name.rfind('.') + 1);
}

}  // namespace

DeviceMesh device_mesh(const Value& mesh) {
    DeviceMesh out;
    out.shape = mesh_shape(mesh);
    out.ranks = static_cast<int>(ranks_along(out.shape, mesh));
    if (const auto rank = mesh.attribute("_rank"); rank && rank->type() == Type::integer) {
        out.rank = static_cast<int>(rank->integer(0, most_saved_ranks));
    }
    const auto coordinate = mesh.attribute("_coordinate_on_dim");
    if (coordinate && coordinate->type() != Type::none) {
        out.coordinate = torch_sizes(*coordinate);
        bool inside = out.coordinate.size() == out.shape.size();
        for (std::size_t d = 0; inside && d < out.shape.size(); ++d) {
            inside = out.coordinate[d] < out.shape[d];
        }
        if (!inside) {
            coordinate->refuse("a rank outside of its mesh");
        }
    }
    return out;
}

Placements read_placements(const Value& placements) {
    Placements out;
    for (const Value& placement : few_elements(placements)) {
        const std::string called = placement.name();
        const std::string_view kind = last_part(called);
        std::string name(kind);
        std::int64_t dim = -1;
        if (kind.ends_with("Shard")) {
            dim = placement.attribute_at("dim").integer(0, 64);
            name += "(" + std::to_string(dim) + ")";
            out.plain_order = out.plain_order && kind == "Shard";
        } else {
            name += "()";
        }
        out.names.push_back(std::move(name));
        out.shard_dim.push_back(dim);
    }
    return out;
}

std::optional<MeshBox> box_on_mesh(const std::vector<std::int64_t>& shape, const DeviceMesh& mesh,
                                   const Placements& placements, const Value& where) {
    if (placements.shard_dim.size() != mesh.shape.size()) {
        where.refuse(std::to_string(placements.shard_dim.size()) + " placements on a mesh of " +
                     std::to_string(mesh.shape.size()) + " dimensions");
    }
    if (mesh.coordinate.empty() || !placements.plain_order) {
        return std::nullopt;
    }
    MeshBox box{.offset = std::vector<std::int64_t>(shape.size(), 0), .shape = shape};
    for (std::size_t m = 0; m < mesh.shape.size(); ++m) {
        if (placements.shard_dim[m] < 0) {
            continue;
        }
        const auto d = static_cast<std::size_t>(placements.shard_dim[m]);
        if (d >= shape.size()) {
            where.refuse("cuts dimension " + std::to_string(d) + " of a tensor that has " +
                         std::to_string(shape.size()));
        }
        const std::int64_t rows = ceil_div(box.shape[d], mesh.shape[m]);
        const std::int64_t begin = std::min(mesh.coordinate[m] * rows, box.shape[d]);
        box.offset[d] += begin;
        box.shape[d] = std::min(rows, box.shape[d] - begin);
    }
    return box;
}

}  // namespace fsdplan
