#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <unordered_map>

#include "base/json.hpp"
#include "model/onnx/graph.hpp"
#include "model/onnx/scopes.hpp"
#include "onnx.pb.h"

// The schema's messages as the values of graph.hpp. Nothing else sees protobuf.
namespace fsdplan::onnx {
namespace {

constexpr std::int64_t most_numbers = 1024;  // of a constant that decides shapes; such have a handful
constexpr int external_data = 1;             // TensorProto.DataLocation

/// TensorProto.DataType.
std::optional<DType> dtype_of(std::int32_t data_type) {
    using enum DType;
    switch (data_type) {
        case 1:
            return float32;
        case 2:
            return uint8;
        case 3:
            return int8;
        case 4:
            return uint16;
        case 5:
            return int16;
        case 6:
            return int32;
        case 7:
            return int64;
        case 9:
            return boolean;
        case 10:
            return float16;
        case 11:
            return float64;
        case 12:
            return uint32;
        case 13:
            return uint64;
        case 14:
            return complex64;
        case 15:
            return complex128;
        case 16:
            return bfloat16;
        case 17:
            return float8_e4m3fn;
        case 18:
            return float8_e4m3fnuz;
        case 19:
            return float8_e5m2;
        case 20:
            return float8_e5m2fnuz;
        case 23:
            return float4_e2m1fn;
        default:
            return std::nullopt;
    }
}

template <class Number>
std::vector<std::int64_t> unpacked(const std::string& raw) {
    std::vector<std::int64_t> out;
    for (std::size_t at = 0; at + sizeof(Number) <= raw.size(); at += sizeof(Number)) {
        Number number{};
        std::memcpy(&number, raw.data() + at, sizeof number);
        out.push_back(static_cast<std::int64_t>(number));
    }
    return out;
}

template <class List>
bool all_equal(const List& list) {
    return std::adjacent_find(list.begin(), list.end(), std::not_equal_to<>()) == list.end();
}

class Reader {
public:
    Reader(const onnx_file::Model& model, const std::string& shown) : file_(model.graph()) {
        out_.shown = shown;
        out_.producer =
            model.producer_name() + (model.producer_version().empty() ? "" : " ") + model.producer_version();
    }

    Graph read() {
        for (const onnx_file::Tensor& tensor : file_.initializer()) {
            read_initializer(tensor);
        }
        for (const onnx_file::ValueInfo& info : file_.value_info()) {
            read_type(info);
        }
        read_inputs();
        for (const onnx_file::Node& node : file_.node()) {
            read_node(node);
        }
        for (const onnx_file::ValueInfo& info : file_.output()) {
            out_.outputs.push_back(used(info.name(), "output"));
        }
        if (out_.nodes.empty()) {
            fail("graph", "has no nodes; expected a model's forward");
        }
        if (out_.root_class.empty()) {
            find_repeated_calls(out_);
        }
        return std::move(out_);
    }

private:
    [[noreturn]] void fail(const std::string& where, const std::string& message) const {
        throw Error(ErrorKind::input, out_.shown + ": " + where, message);
    }

    ValueId made(const std::string& name, const std::string& by) {
        const auto [at, fresh] = ids_.try_emplace(name, static_cast<ValueId>(out_.names.size()));
        if (!fresh) {
            fail(by, "makes " + json::quote(name) + ", which is there already");
        }
        out_.names.push_back(name);
        return at->second;
    }

    ValueId used(const std::string& name, const std::string& by) const {
        const auto found = ids_.find(name);
        if (found == ids_.end()) {
            fail(by, "uses " + json::quote(name) +
                         ", which no input, initializer or node before it is; expected nodes in the order "
                         "of execution");
        }
        return found->second;
    }

    Constant constant_of(const onnx_file::Tensor& tensor, const std::string& where) {
        Constant out;
        const std::optional<DType> dtype = dtype_of(tensor.data_type());
        if (!dtype) {
            fail(where, "has data type " + std::to_string(tensor.data_type()) +
                            "; expected one of ONNX's numbers for floats, integers or booleans");
        }
        out.dtype = *dtype;
        for (const std::int64_t size : tensor.dims()) {
            if (size < 0) {
                fail(where, "has a dimension of size " + std::to_string(size) + "; expected 0 or more");
            }
            out.shape.push_back(size);
            out.numel = checked_mul(out.numel, size, out_.shown + ": " + where);
        }
        read_data(tensor, where, out);
        return out;
    }

    void read_data(const onnx_file::Tensor& tensor, const std::string& where, Constant& out) const {
        const std::string& raw = tensor.raw_data();
        const Bytes bytes = bytes_of(out.numel, out.dtype);
        if (!raw.empty() && static_cast<std::int64_t>(raw.size()) != bytes.count) {
            fail(where, "has " + std::to_string(raw.size()) + " bytes of data; its shape and type ask for " +
                            std::to_string(bytes.count));
        }
        if (tensor.data_location() == external_data) {
            return;
        }
        if (!raw.empty()) {
            const auto width = static_cast<std::size_t>(bits(out.dtype)) / 8;
            out.uniform = width > 0 && std::memcmp(raw.data(), raw.data() + width, raw.size() - width) == 0;
        } else if (tensor.float_data_size() > 0) {
            out.uniform = all_equal(tensor.float_data());
        } else if (tensor.int64_data_size() > 0 || tensor.int32_data_size() > 0) {
            out.uniform = all_equal(tensor.int64_data()) && all_equal(tensor.int32_data());
        }
        if (out.shape.size() <= 1 && out.numel <= most_numbers) {
            read_numbers(tensor, out);
        }
    }

    static void read_numbers(const onnx_file::Tensor& tensor, Constant& out) {
        std::vector<std::int64_t> numbers;
        if (out.dtype == DType::int64) {
            numbers = tensor.raw_data().empty()
                          ? std::vector<std::int64_t>(tensor.int64_data().begin(), tensor.int64_data().end())
                          : unpacked<std::int64_t>(tensor.raw_data());
        } else if (out.dtype == DType::int32 || out.dtype == DType::boolean) {
            numbers.assign(tensor.int32_data().begin(), tensor.int32_data().end());
            if (!tensor.raw_data().empty()) {
                numbers = out.dtype == DType::int32 ? unpacked<std::int32_t>(tensor.raw_data())
                                                    : unpacked<std::int8_t>(tensor.raw_data());
            }
        } else if (out.dtype == DType::float32 && out.numel == 1) {
            read_whole(tensor, numbers);
        }
        if (static_cast<std::int64_t>(numbers.size()) == out.numel) {
            out.numbers = std::move(numbers);
        }
    }

    static void read_whole(const onnx_file::Tensor& tensor, std::vector<std::int64_t>& numbers) {
        constexpr float most = 1e9F;
        float number = std::numeric_limits<float>::infinity();
        if (tensor.float_data_size() == 1) {
            number = tensor.float_data(0);
        } else if (tensor.raw_data().size() == sizeof number) {
            std::memcpy(&number, tensor.raw_data().data(), sizeof number);
        }
        if (std::abs(number) <= most && std::trunc(number) == number) {
            numbers.push_back(static_cast<std::int64_t>(number));
        }
    }

    void read_initializer(const onnx_file::Tensor& tensor) {
        const std::string where = "initializer " + json::quote(tensor.name());
        const ValueId v = made(tensor.name(), where);
        out_.constants.emplace(v, constant_of(tensor, where));
        out_.initializers.push_back(v);
    }

    std::optional<TensorType> type_of(const onnx_file::ValueInfo& info) const {
        const std::optional<DType> dtype = dtype_of(info.type().tensor_type().elem_type());
        if (!dtype || !info.type().tensor_type().has_shape()) {
            return std::nullopt;
        }
        TensorType out{.shape = {}, .dtype = *dtype};
        for (const onnx_file::Dimension& dim : info.type().tensor_type().shape().dim()) {
            out.shape.push_back({dim.has_dim_value() ? dim.dim_value() : -1, dim.dim_param()});
            if (dim.has_dim_value() && (dim.dim_value() < 0 || dim.dim_value() > largest_total)) {
                fail("value " + json::quote(info.name()), "has a dimension of size " +
                                                              std::to_string(dim.dim_value()) +
                                                              "; expected a size that can exist");
            }
        }
        return out;
    }

    // Values of nodes: their numbers come later.
    void read_type(const onnx_file::ValueInfo& info) {
        if (const std::optional<TensorType> type = type_of(info)) {
            said_.insert_or_assign(info.name(), *type);
        }
    }

    void read_inputs() {
        for (const onnx_file::ValueInfo& info : file_.input()) {
            if (ids_.contains(info.name())) {
                continue;  // files before IR version 4 list initializers too
            }
            const std::string where = "input " + json::quote(info.name());
            const std::optional<TensorType> type = type_of(info);
            if (!type) {
                fail(where, "has no shape or no known type; expected both");
            }
            out_.inputs.push_back(made(info.name(), where));
            out_.types.emplace(out_.inputs.back(), *type);
        }
    }

    void read_node(const onnx_file::Node& file) {
        Node node;
        node.op = file.domain().empty() || file.domain() == "ai.onnx" ? file.op_type()
                                                                      : file.domain() + "." + file.op_type();
        node.name = file.name();
        const std::string where = "node " + json::quote(node.name.empty() ? node.op : node.name);
        for (const std::string& name : file.input()) {
            node.inputs.push_back(name.empty() ? -1 : used(name, where));
        }
        for (const std::string& name : file.output()) {
            node.outputs.push_back(name.empty() ? -1 : made(name, where));
            if (const auto said = said_.find(name); said != said_.end()) {
                out_.types.emplace(node.outputs.back(), said->second);
            }
        }
        if (node.outputs.empty()) {
            fail(where, "has no output");
        }
        if (node.op == "Constant") {
            read_constant_node(file, node.outputs.front(), where);
            return;
        }
        for (const onnx_file::Attribute& attribute : file.attribute()) {
            Attribute& read = node.attributes[attribute.name()];
            read = {attribute.i(), attribute.s(), {attribute.ints().begin(), attribute.ints().end()}};
            if (attribute.has_t()) {
                const Constant value = constant_of(attribute.t(), where);
                read.i = value.numbers && value.numbers->size() == 1 ? value.numbers->front() : 0;
            }
        }
        read_scopes(file, node);
        out_.nodes.push_back(std::move(node));
    }

    void read_constant_node(const onnx_file::Node& file, ValueId v, const std::string& where) {
        Constant out{.dtype = DType::int64};
        for (const onnx_file::Attribute& attribute : file.attribute()) {
            if (attribute.name() == "value") {
                out = constant_of(attribute.t(), where);
            } else if (attribute.name() == "value_ints") {
                out.numel = attribute.ints_size();
                out.shape = {out.numel};
                out.numbers.emplace(attribute.ints().begin(), attribute.ints().end());
            } else if (attribute.name() == "value_int") {
                out.numbers = {attribute.i()};
            } else if (attribute.name() == "value_float") {
                out.dtype = DType::float32;
                onnx_file::Tensor number;
                number.add_float_data(attribute.f());
                read_numbers(number, out);
            }
        }
        out_.constants.emplace(v, std::move(out));
    }

    void read_scopes(const onnx_file::Node& file, Node& node) {
        std::string scopes;
        std::string classes;
        for (const onnx_file::Entry& entry : file.metadata_props()) {
            if (entry.key() == "pkg.torch.onnx.name_scopes") {
                scopes = entry.value();
            } else if (entry.key() == "pkg.torch.onnx.class_hierarchy") {
                classes = entry.value();
            } else if (entry.key() == "pkg.torch.onnx.fx_node") {
                note_buffers(entry.value());
            }
        }
        node.scopes = scopes.empty() ? scopes_of_name(node.name) : scopes_of_metadata(scopes, classes);
        if (out_.root_class.empty() && !classes.empty()) {
            const std::vector<std::string> names = python_list(classes);
            const bool is_class = names.size() > 1 && names.front().find('.') != std::string::npos;
            out_.root_class = is_class ? names.front() : "";
        }
    }

    // "%b_norm_running_mean": placeholders of parameters begin with p_, those of buffers with b_.
    void note_buffers(const std::string& fx_node) {
        constexpr std::string_view prefix = "%b_";
        for (std::size_t at = fx_node.find(prefix); at != std::string::npos;
             at = fx_node.find(prefix, at + 1)) {
            const std::size_t begin = at + prefix.size();
            const std::size_t end = fx_node.find_first_of(",)] ", begin);
            out_.buffers.insert(fx_node.substr(begin, end - begin));
        }
    }

    const onnx_file::Graph& file_;
    Graph out_;
    std::unordered_map<std::string, ValueId> ids_;
    std::unordered_map<std::string, TensorType> said_;
};

}  // namespace

Graph read_graph(const std::string& path, const std::string& shown) {
    onnx_file::Model model;
    std::ifstream file(path, std::ios::binary);
    if (!file || !model.ParseFromIstream(&file)) {
        throw Error(ErrorKind::input, shown,
                    "is no ONNX file: its bytes are no protobuf message, or it is cut off");
    }
    if (!model.has_graph()) {
        throw Error(ErrorKind::input, shown, "is no ONNX file: it holds no graph");
    }
    return Reader(model, shown).read();
}

}  // namespace fsdplan::onnx
