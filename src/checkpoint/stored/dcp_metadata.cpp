#include "checkpoint/stored/dcp_metadata.hpp"

#include <unordered_map>
#include <unordered_set>

#include "base/json.hpp"
#include "checkpoint/stored/tiling.hpp"
#include "checkpoint/stored/torch_value.hpp"

namespace fsdplan {
namespace {

using pickle::Type;
using pickle::Value;

bool is_object_of(const Value& value, std::string_view last) {
    return value.type() == Type::call && value.name().ends_with("." + std::string(last));
}

/// A name or file name. Records repeat them, so a long one would cost again and again.
std::string_view short_text(const Value& value) {
    constexpr std::size_t longest = 4096;
    const std::string_view text = value.string();
    if (text.size() > longest) {
        value.refuse("a name of more than " + std::to_string(longest) + " bytes");
    }
    return text;
}

SavedChunk chunk_of(const Value& value) {
    SavedChunk chunk;
    chunk.offset = torch_sizes(value.attribute_at("offsets"));
    chunk.shape = torch_sizes(value.attribute_at("sizes"));
    return chunk;
}

DcpTensor tensor_of(std::string_view name, const Value& value) {
    DcpTensor out;
    out.byte = value.byte();
    out.tensor.name = name;
    // The state of TensorProperties begins with the dtype.
    const std::optional<Value> properties = value.attribute_at("properties").state();
    if (!properties) {
        value.fail("a tensor with properties");
    }
    out.tensor.dtype = torch_dtype(properties->element(0));
    out.tensor.shape = torch_sizes(value.attribute_at("size"));
    check_tensor_size(out.tensor.shape, out.tensor.dtype, value);
    const Value chunks = value.attribute_at("chunks");
    out.tensor.chunks.reserve(chunks.size());
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        out.tensor.chunks.push_back(chunk_of(chunks.element(i)));
    }
    if (const auto fault = tiling_fault(out.tensor)) {
        value.refuse("tensor " + json::quote(name) + ": " + *fault);
    }
    return out;
}

DcpItem item_of(const Value& index, const Value& place) {
    DcpItem item;
    item.byte = place.byte();
    item.tensor = short_text(index.attribute_at("fqn"));
    // Of other values the attribute is None, or absent.
    const std::optional<Value> offset = index.attribute("offset");
    item.is_chunk = offset && offset->type() != Type::none;
    if (item.is_chunk) {
        item.offset = torch_sizes(*offset);
    }
    item.file = short_text(place.attribute_at("relative_path"));
    item.position = place.attribute_at("offset").integer(0, largest_total);
    item.bytes = place.attribute_at("length").integer(0, largest_total);
    return item;
}

class Reader {
public:
    explicit Reader(const pickle::Document& document) : document_(document), root_(document.root()) {}

    DcpMetadata read() {
        if (!is_object_of(root_, "Metadata")) {
            root_.fail("the metadata of a torch.distributed.checkpoint");
        }
        read_entries(root_.attribute_at("state_dict_metadata"));
        const std::optional<Value> storage = root_.attribute("storage_data");
        if (!storage || storage->type() != Type::dict) {
            root_.fail("metadata that say where the items are (storage_data)");
        }
        out_.items.reserve(storage->size());
        for (std::size_t i = 0; i < storage->size(); ++i) {
            out_.items.push_back(item_of(storage->key(i), storage->value(i)));
        }
        read_paths();
        if (const auto version = root_.attribute("version"); version && version->type() == Type::string) {
            out_.version = version->string();
        }
        return std::move(out_);
    }

private:
    void read_entries(const Value& entries) {
        std::unordered_set<std::string_view> names;
        std::size_t chunks = 0;  // a list of them may be shared
        for (std::size_t i = 0; i < entries.size(); ++i) {
            const std::string_view name = short_text(entries.key(i));
            const Value value = entries.value(i);
            if (!names.insert(name).second) {
                entries.key(i).refuse("a second entry " + json::quote(name));
            }
            if (is_object_of(value, "TensorStorageMetadata")) {
                chunks += value.attribute_at("chunks").size();
                if (chunks > document_.size()) {
                    value.refuse("more chunks than values");
                }
                out_.tensors.push_back(tensor_of(name, value));
            } else if (is_object_of(value, "BytesStorageMetadata")) {
                out_.other_values.push_back(name);
            } else {
                out_.unread.emplace_back(name);
            }
        }
    }

    // The default planner keeps the keys that a name is joined from; others may keep anything.
    void read_paths() {
        std::unordered_map<std::string_view, Value> kept;
        const std::optional<Value> planner = root_.attribute("planner_data");
        for (std::size_t i = 0; planner && planner->type() == Type::dict && i < planner->size(); ++i) {
            if (planner->key(i).type() == Type::string) {
                kept.emplace(short_text(planner->key(i)), planner->value(i));
            }
        }
        const auto add = [&](std::string_view name) {
            const auto found = kept.find(name);
            KeyPath path = found == kept.end() ? KeyPath() : path_of(name, found->second);
            out_.paths.push_back(path.empty() ? KeyPath{name} : std::move(path));
        };
        for (const DcpTensor& tensor : out_.tensors) {
            add(tensor.tensor.name);
        }
        for (const std::string_view name : out_.other_values) {
            add(name);
        }
    }

    /// Empty when the keys do not make this name.
    KeyPath path_of(std::string_view name, const Value& keys) {
        KeyPath path;
        constexpr std::size_t deepest = 64;
        if ((keys.type() != Type::tuple && keys.type() != Type::list) || keys.size() > deepest) {
            return path;
        }
        std::string_view rest = name;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            const Value key = keys.element(i);
            if (key.type() == Type::integer) {
                path.emplace_back(out_.numbers.emplace_back(std::to_string(key.integer())));
            } else if (key.type() == Type::string) {
                path.push_back(key.string());
            } else {
                return {};
            }
            if (i > 0 && !rest.empty() && rest.front() == '.') {
                rest.remove_prefix(1);
            }
            if (!rest.starts_with(path.back())) {
                return {};
            }
            rest.remove_prefix(path.back().size());
        }
        return rest.empty() ? path : KeyPath();
    }

    const pickle::Document& document_;
    Value root_;
    DcpMetadata out_;
};

}  // namespace

DcpMetadata read_dcp_metadata(const pickle::Document& document) {
    return Reader(document).read();
}

}  // namespace fsdplan
