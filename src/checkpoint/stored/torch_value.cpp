#include "checkpoint/stored/torch_value.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "checkpoint/stored/device_mesh.hpp"

namespace fsdplan {
namespace {

using pickle::Type;
using pickle::Value;

struct StorageClass {
    std::string_view name;
    DType dtype;
};

constexpr std::array storage_classes{
    StorageClass{"FloatStorage", DType::float32},
    StorageClass{"BFloat16Storage", DType::bfloat16},
    StorageClass{"HalfStorage", DType::float16},
    StorageClass{"DoubleStorage", DType::float64},
    StorageClass{"LongStorage", DType::int64},
    StorageClass{"IntStorage", DType::int32},
    StorageClass{"ShortStorage", DType::int16},
    StorageClass{"CharStorage", DType::int8},
    StorageClass{"ByteStorage", DType::uint8},
    StorageClass{"BoolStorage", DType::boolean},
    StorageClass{"ComplexFloatStorage", DType::complex64},
    StorageClass{"ComplexDoubleStorage", DType::complex128},
};

/// The dtype of a persistent storage's class; of an untyped one bytes.
DType storage_dtype(const Value& persistent) {
    const Value storage_class = persistent.arguments().element(1);
    const std::string called = storage_class.type() == Type::name ? storage_class.name() : std::string();
    if (called == "torch.storage.UntypedStorage") {
        return DType::uint8;
    }
    for (const StorageClass& known : storage_classes) {
        if (called == "torch." + std::string(known.name)) {
            return known.dtype;
        }
    }
    storage_class.refuse("unknown class of storage " + called);
}

/// Whether the class is named so, wherever its module was in this version of torch.
bool is_class(const Value& value, std::string_view last) {
    return value.type() == Type::name && value.name().starts_with("torch.") &&
           value.name().ends_with("." + std::string(last));
}

/// What would rebuild a value: a function, its arguments, and for subclasses of Tensor class and state.
struct Rebuild {
    Value function;
    Value arguments;
    std::optional<Value> tensor_class;
    std::optional<Value> state;
};

std::optional<Rebuild> rebuild_of(const Value& value) {
    if (value.type() != Type::call) {
        return std::nullopt;
    }
    const Value arguments = value.arguments();
    if (value.calls("torch._utils._rebuild_parameter") ||
        value.calls("torch._utils._rebuild_parameter_with_state")) {
        const Value data = arguments.element(0);
        if (data.type() == Type::call && !data.name().starts_with("torch._utils._rebuild_parameter")) {
            return rebuild_of(data);
        }
        data.fail("the tensor of a parameter");
    }
    if (value.calls("torch._tensor._rebuild_from_type_v2")) {
        return Rebuild{arguments.element(0), arguments.element(2), arguments.element(1),
                       arguments.element(3)};
    }
    return Rebuild{value.callee(), arguments, std::nullopt, std::nullopt};
}

/// The elements that the piece looks at lie within its storage.
void check_reach(const TorchPiece& piece, DType dtype, const Value& where) {
    if (piece.stride.size() != piece.shape.size()) {
        where.refuse(std::to_string(piece.stride.size()) + " strides for " +
                     std::to_string(piece.shape.size()) + " dimensions");
    }
    if (std::ranges::find(piece.shape, 0) != piece.shape.end()) {
        return;
    }
    std::int64_t end = piece.storage_offset + 1;
    for (std::size_t d = 0; d < piece.shape.size(); ++d) {
        const std::int64_t steps = piece.shape[d] - 1;
        if (steps != 0 && piece.stride[d] > (largest_total - end) / steps) {
            where.refuse("a stride of " + std::to_string(piece.stride[d]) + " elements");
        }
        end += steps * piece.stride[d];
    }
    if (end > largest_total / bits(dtype) || bytes_of(end, dtype).count > piece.storage.bytes) {
        where.refuse("a tensor that reaches to element " + std::to_string(end) + " of a storage of " +
                     std::to_string(piece.storage.bytes) + " bytes");
    }
}

/// _rebuild_tensor(storage, offset, size, stride), v2 the same and more, v3 with the dtype as seventh
/// argument.
std::optional<TorchTensor> plain_tensor(const Rebuild& rebuild) {
    const bool has_dtype = rebuild.function.is_name("torch._utils._rebuild_tensor_v3");
    if (!has_dtype && !rebuild.function.is_name("torch._utils._rebuild_tensor_v2") &&
        !rebuild.function.is_name("torch._utils._rebuild_tensor")) {
        return std::nullopt;
    }
    const Value storage = rebuild.arguments.element(0);
    TorchTensor tensor;
    TorchPiece piece;
    piece.storage = torch_storage(storage);
    piece.storage_offset = rebuild.arguments.element(1).integer(0, largest_total - 1);
    piece.shape = torch_sizes(rebuild.arguments.element(2));
    piece.stride = torch_sizes(rebuild.arguments.element(3));
    piece.offset.assign(piece.shape.size(), 0);
    tensor.dtype = has_dtype ? torch_dtype(rebuild.arguments.element(6)) : storage_dtype(storage);
    tensor.shape = piece.shape;
    check_tensor_size(tensor.shape, tensor.dtype, rebuild.arguments);
    check_reach(piece, tensor.dtype, rebuild.arguments);
    tensor.pieces.push_back(std::move(piece));
    return tensor;
}

/// _rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad).
std::optional<TorchTensor> meta_tensor(const Rebuild& rebuild) {
    if (!rebuild.function.is_name("torch._utils._rebuild_meta_tensor_no_storage")) {
        return std::nullopt;
    }
    TorchTensor tensor;
    tensor.dtype = torch_dtype(rebuild.arguments.element(0));
    tensor.shape = torch_sizes(rebuild.arguments.element(1));
    check_tensor_size(tensor.shape, tensor.dtype, rebuild.arguments);
    return tensor;
}

/// A rank's own tensor inside of a distributed one.
TorchPiece local_piece(const Value& local, DType dtype) {
    const std::optional<Rebuild> rebuild = rebuild_of(local);
    std::optional<TorchTensor> plain = rebuild ? plain_tensor(*rebuild) : std::nullopt;
    if (!plain) {
        local.fail("a plain tensor");
    }
    if (plain->dtype != dtype) {
        local.refuse("a piece in " + std::string(name(plain->dtype)) + " of a tensor in " +
                     std::string(name(dtype)));
    }
    return std::move(plain->pieces.front());
}

void check_inside(const TorchPiece& piece, const TorchTensor& whole, const Value& where) {
    bool inside = piece.shape.size() == whole.shape.size() && piece.offset.size() == whole.shape.size();
    for (std::size_t d = 0; inside && d < whole.shape.size(); ++d) {
        inside = piece.offset[d] <= whole.shape[d] && piece.shape[d] <= whole.shape[d] - piece.offset[d];
    }
    if (!inside) {
        where.refuse("a piece that does not lie within its tensor");
    }
}

/// Arguments of _rebuild_wrapper_subclass: class, dtype, size, …
TorchTensor wrapped(const Rebuild& rebuild, SavedAs saved_as) {
    TorchTensor tensor;
    tensor.saved_as = saved_as;
    tensor.dtype = torch_dtype(rebuild.arguments.element(1));
    tensor.shape = torch_sizes(rebuild.arguments.element(2));
    check_tensor_size(tensor.shape, tensor.dtype, rebuild.arguments);
    return tensor;
}

TorchTensor dtensor(const Rebuild& rebuild) {
    TorchTensor tensor = wrapped(rebuild, SavedAs::dtensor);
    const Value state = rebuild.state->type() == Type::tuple ? rebuild.state->element(1) : *rebuild.state;
    const Value spec = state.at("_spec");
    const DeviceMesh mesh = device_mesh(spec.attribute_at("mesh"));
    const Placements placements = read_placements(spec.attribute_at("placements"));
    tensor.mesh = mesh.shape;
    tensor.placements = placements.names;
    tensor.rank = mesh.rank;
    tensor.ranks = mesh.ranks;
    TorchPiece piece = local_piece(state.at("_local_tensor"), tensor.dtype);
    if (const std::optional<MeshBox> box = box_on_mesh(tensor.shape, mesh, placements, spec)) {
        if (box->shape != piece.shape) {
            state.at("_local_tensor").refuse("a piece of another shape than mesh and placements make");
        }
        piece.offset = box->offset;
    } else {
        piece.offset.clear();
    }
    tensor.pieces.push_back(std::move(piece));
    return tensor;
}

/// Its state is (local shards, metadata, process group, sharding spec, …).
TorchTensor sharded_tensor(const Rebuild& rebuild) {
    TorchTensor tensor = wrapped(rebuild, SavedAs::sharded_tensor);
    const Value metadata = rebuild.state->element(1);
    if (torch_sizes(metadata.attribute_at("size")) != tensor.shape) {
        metadata.refuse("a ShardedTensor whose metadata have another size than itself");
    }
    const Value group = rebuild.state->element(2);
    tensor.ranks = static_cast<int>(group.attribute_at("global_world_size").integer(1, most_saved_ranks));
    tensor.rank = static_cast<int>(group.attribute_at("global_rank").integer(0, tensor.ranks - 1));
    for (const Value& shard : rebuild.state->element(0).elements()) {
        TorchPiece piece = local_piece(shard.attribute_at("tensor"), tensor.dtype);
        const Value place = shard.attribute_at("metadata");
        piece.offset = torch_sizes(place.attribute_at("shard_offsets"));
        if (torch_sizes(place.attribute_at("shard_sizes")) != piece.shape) {
            place.refuse("a shard whose metadata have another size than itself");
        }
        check_inside(piece, tensor, place);
        tensor.pieces.push_back(std::move(piece));
    }
    return tensor;
}

std::optional<TorchTensor> subclass(const Rebuild& rebuild) {
    if (!rebuild.tensor_class || !rebuild.function.is_name("torch._utils._rebuild_wrapper_subclass")) {
        return std::nullopt;
    }
    if (is_class(*rebuild.tensor_class, "DTensor")) {
        return dtensor(rebuild);
    }
    if (is_class(*rebuild.tensor_class, "ShardedTensor")) {
        return sharded_tensor(rebuild);
    }
    return std::nullopt;
}

}  // namespace

std::optional<TorchTensor> torch_tensor(const Value& value) {
    const std::optional<Rebuild> rebuild = rebuild_of(value);
    if (!rebuild) {
        return std::nullopt;
    }
    if (std::optional<TorchTensor> plain = plain_tensor(*rebuild)) {
        return plain;
    }
    if (std::optional<TorchTensor> meta = meta_tensor(*rebuild)) {
        return meta;
    }
    return subclass(*rebuild);
}

TorchStorage torch_storage(const Value& persistent) {
    if (persistent.type() != Type::persistent) {
        persistent.fail("a storage");
    }
    const Value id = persistent.arguments();
    if (id.type() != Type::tuple || id.size() != 5 || id.element(0).string() != "storage") {
        id.refuse("expected (\"storage\", class, key, device, elements)");
    }
    const DType dtype = storage_dtype(persistent);
    const std::int64_t numel = id.element(4).integer(0, largest_total / bits(dtype));
    return {.key = id.element(2).string(), .bytes = bytes_of(numel, dtype).count};
}

std::string_view storage_class(DType dtype) {
    const auto found = std::ranges::find(storage_classes, dtype, &StorageClass::dtype);
    return found == storage_classes.end() ? std::string_view() : found->name;
}

DType torch_dtype(const Value& name) {
    const std::optional<DType> dtype =
        name.type() == Type::name ? dtype_from_name(name.name()) : std::nullopt;
    if (!dtype) {
        name.type() == Type::name ? name.refuse("unknown dtype " + name.name()) : name.fail("a dtype");
    }
    return *dtype;
}

void check_tensor_size(std::span<const std::int64_t> shape, DType dtype, const Value& where) {
    std::int64_t total = bits(dtype);
    for (const std::int64_t size : shape) {
        if (size != 0 && total > largest_total / size) {
            where.refuse("more than 2^53 bits; expected a tensor that can exist");
        }
        total *= size;
    }
}

std::vector<std::int64_t> torch_sizes(const Value& value) {
    const Value sizes = value.calls("torch.Size") ? value.arguments().element(0) : value;
    constexpr std::size_t most_dimensions = 64;
    if (sizes.size() > most_dimensions) {
        sizes.refuse(std::to_string(sizes.size()) + " dimensions; a tensor has at most " +
                     std::to_string(most_dimensions));
    }
    std::vector<std::int64_t> out;
    out.reserve(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        out.push_back(sizes.element(i).integer(0, largest_total));
    }
    return out;
}

}  // namespace fsdplan
