#include <algorithm>
#include <array>
#include <limits>

#include "checkpoint/stored/torch_archive.hpp"
#include "checkpoint/stored/torch_value.hpp"
#include "fsdplan/stored_checkpoint.hpp"
#include "model/safetensors_header.hpp"

// Sizes of what torch 2.13 and safetensors 0.8 write, without writing it.
namespace fsdplan {
namespace {

std::int64_t size_of(std::string_view text) {
    return static_cast<std::int64_t>(text.size());
}

/// A number in a pickle of protocol 2.
std::int64_t pickled_integer(std::int64_t value) {
    if (value <= std::numeric_limits<std::uint8_t>::max()) {
        return 2;
    }
    if (value <= std::numeric_limits<std::uint16_t>::max()) {
        return 3;
    }
    if (value <= std::numeric_limits<std::int32_t>::max()) {
        return 5;
    }
    std::int64_t bytes = 5;  // the least one of 2^31 and more, with room for the sign
    while (bytes < 8 && value >> (8 * bytes - 1) != 0) {
        ++bytes;
    }
    return 2 + bytes;
}

constexpr std::int64_t put = 2;  // an entry of the memo

std::int64_t pickled_tuple(std::span<const std::int64_t> values) {
    if (values.empty()) {
        return 1;
    }
    constexpr std::size_t longest_with_own_opcode = 3;
    std::int64_t bytes = put + (values.size() <= longest_with_own_opcode ? 1 : 2);
    for (const std::int64_t value : values) {
        bytes += pickled_integer(value);
    }
    return bytes;
}

std::int64_t pickled_name(std::string_view module, std::string_view last) {
    return 1 + size_of(module) + 1 + size_of(last) + 1 + put;
}

std::int64_t pickled_text(std::string_view text) {
    return 5 + size_of(text) + put;
}

/// data.pkl of one contiguous tensor on the CPU: _rebuild_tensor_v2(storage, 0, size, stride, requires_grad,
/// OrderedDict()), or v3, which adds the dtype to an untyped storage.
std::int64_t pickled_tensor(DType dtype, std::span<const std::int64_t> shape, std::int64_t data_bytes) {
    std::vector<std::int64_t> stride(shape.size(), 1);
    for (std::size_t d = shape.size(); d > 1; --d) {
        stride[d - 2] = stride[d - 1] * std::max<std::int64_t>(shape[d - 1], 1);
    }
    const std::string_view typed = storage_class(dtype);
    const std::int64_t elements = typed.empty() ? data_bytes : data_bytes * 8 / bits(dtype);
    const std::int64_t storage =
        pickled_text("storage") +
        (typed.empty() ? pickled_name("torch.storage", "UntypedStorage") : pickled_name("torch", typed)) +
        pickled_text("0") + pickled_text("cpu") + pickled_integer(elements);
    constexpr std::int64_t protocol = 2;
    constexpr std::int64_t marks = 2;
    constexpr std::int64_t two_tuples = 2 * (1 + put);
    constexpr std::int64_t persistent = 1;
    constexpr std::int64_t requires_grad = 1;
    constexpr std::int64_t call = 1 + put;
    constexpr std::int64_t stop = 1;
    return protocol + pickled_name("torch._utils", "_rebuild_tensor_v2") + marks + storage + two_tuples +
           persistent + pickled_integer(0) + pickled_tuple(shape) + pickled_tuple(stride) + requires_grad +
           pickled_name("collections", "OrderedDict") + 1 + call +
           (typed.empty() ? pickled_name("torch", name(dtype)) : 0) + call + stop;
}

/// A text as serde_json writes it: only quotes, backslashes and control characters are escaped.
std::int64_t json_text(std::string_view text) {
    std::int64_t bytes = 2;
    for (const char c : text) {
        const bool is_short = std::string_view("\"\\\b\f\n\r\t").find(c) != std::string_view::npos;
        const bool is_control = static_cast<unsigned char>(c) < 0x20;
        bytes += is_short ? 2 : is_control ? 6 : 1;
    }
    return bytes;
}

std::int64_t digits(std::int64_t value) {
    return size_of(std::to_string(value));
}

/// {"dtype":"F32","shape":[2],"data_offsets":[0,8]}
std::int64_t json_entry(const TensorEntry& tensor, std::int64_t begin, std::int64_t end) {
    std::int64_t shape = static_cast<std::int64_t>(std::max<std::size_t>(tensor.shape.size(), 1)) - 1;
    for (const std::int64_t size : tensor.shape) {
        shape += digits(size);
    }
    return size_of(R"({"dtype":,"shape":[],"data_offsets":[,]})") +
           json_text(safetensors_dtype(tensor.dtype).name) + shape + digits(begin) + digits(end);
}

std::int64_t data_bytes_of(const TensorEntry& tensor) {
    std::int64_t numel = 1;
    for (const std::int64_t size : tensor.shape) {
        numel = checked_mul(numel, size, tensor.name);
    }
    return bytes_of(numel, tensor.dtype).count;
}

}  // namespace

std::int64_t dcp_item_bytes(DType dtype, std::span<const std::int64_t> shape) {
    std::int64_t numel = 1;
    for (const std::int64_t size : shape) {
        numel = checked_mul(numel, size, "shape of a checkpoint's item");
    }
    const std::int64_t data = bytes_of(numel, dtype).count;
    TorchArchive archive;
    archive.add("archive/data.pkl", pickled_tensor(dtype, shape, data));
    archive.add("archive/.format_version", 1);
    archive.add("archive/.storage_alignment", 2);
    archive.add("archive/byteorder", 6);
    archive.add("archive/data/0", data);
    archive.add("archive/version", 2);
    archive.add("archive/.data/serialization_id", 40);
    return archive.bytes();
}

std::int64_t safetensors_file_bytes(std::span<const TensorEntry> tensors,
                                    std::span<const std::pair<std::string, std::string>> metadata) {
    // Wide dtypes first, then by name: the digits of the offsets depend on the order.
    std::vector<const TensorEntry*> order;
    for (const TensorEntry& tensor : tensors) {
        if (safetensors_dtype(tensor.dtype).name.empty()) {
            throw Error(ErrorKind::input, tensor.name,
                        "is " + std::string(name(tensor.dtype)) + ", which safetensors cannot hold");
        }
        order.push_back(&tensor);
    }
    std::ranges::sort(order, [](const TensorEntry* a, const TensorEntry* b) {
        const std::size_t place_a = safetensors_dtype(a->dtype).place;
        const std::size_t place_b = safetensors_dtype(b->dtype).place;
        return place_a != place_b ? place_a < place_b : a->name < b->name;
    });
    std::int64_t header = 2;  // braces
    const std::size_t entries = tensors.size() + (metadata.empty() ? 0 : 1);
    header += static_cast<std::int64_t>(std::max<std::size_t>(entries, 1)) - 1;
    if (!metadata.empty()) {
        header += size_of(R"("__metadata__":{})") + static_cast<std::int64_t>(metadata.size()) - 1;
    }
    for (const auto& [key, text] : metadata) {
        header += json_text(key) + 1 + json_text(text);
    }
    std::int64_t end = 0;
    for (const TensorEntry* tensor : order) {
        const std::int64_t begin = end;
        end = checked_add(end, data_bytes_of(*tensor), tensor->name);
        header += json_text(tensor->name) + 1 + json_entry(*tensor, begin, end);
    }
    constexpr std::int64_t length = 8;
    return length + round_up(header, 8) + end;
}

}  // namespace fsdplan
