#include <algorithm>
#include <unordered_map>

#include "base/file.hpp"
#include "base/json.hpp"
#include "model/importer.hpp"
#include "model/read_shape.hpp"
#include "model/recorded_operators.hpp"

// Module tree JSON (docs/formats.md): flat tables of classes, modules and tensors by id.
namespace fsdplan {
namespace {

constexpr std::int64_t largest_dimension = std::int64_t{1} << 53U;
constexpr std::string_view format_name = "fsdplan.module-tree";

/// Ids of a table, in any order and with gaps, to positions.
class IdTable {
public:
    explicit IdTable(std::string_view what) : what_(what) {}

    void add(json::Value id) {
        const auto position = static_cast<std::int32_t>(positions_.size());
        if (!positions_.emplace(id.integer(0, largest_dimension), position).second) {
            throw Error(ErrorKind::input, id.where(),
                        "the " + std::string(what_) + " id " + id.shown() + " occurs twice");
        }
    }

    std::int32_t position(json::Value id) const {
        const auto found = positions_.find(id.integer(0, largest_dimension));
        if (found == positions_.end()) {
            throw Error(ErrorKind::input, id.where(),
                        "there is no " + std::string(what_) + " with id " + id.shown());
        }
        return found->second;
    }

private:
    std::string_view what_;
    std::unordered_map<std::int64_t, std::int32_t> positions_;
};

class Reader {
public:
    explicit Reader(const json::Value& root) : root_(root) {}

    ModelGraph read() {
        check_format();
        root_.allow_only({"format", "version", "model", "source", "classes", "modules", "tensors", "root",
                          "forward_order", "dataflow", "output_from", "operators"});
        graph_.name = root_.at("model").string();
        if (const auto source = root_.find("source")) {
            graph_.source = source->string();
        }
        read_classes();
        read_tensors();
        for (const json::Value row : root_.at("modules").elements()) {
            module_ids_.add(row.at("id"));
        }
        for (const json::Value row : root_.at("modules").elements()) {
            read_module(row);
        }
        graph_.root = ModuleIndex{module_ids_.position(root_.at("root"))};
        check_structure();
        read_calls();
        if (with_operators_) {
            const auto tensor_of = [&](const json::Value& id) {
                return TensorIndex{tensor_ids_.position(id)};
            };
            read_operators(root_.at("operators"), tensor_of, graph_);
        }
        return std::move(graph_);
    }

private:
    void check_format() {
        const json::Value format = root_.at("format");
        if (format.string() != format_name) {
            format.fail(json::quote(format_name));
        }
        const json::Value version = root_.at("version");
        const std::string understood = "; this fsdplan understands version 1 and version 2";
        if (version.integer() != 1 && version.integer() != 2) {
            throw Error(ErrorKind::input, version.where(),
                        "version " + version.shown() + " is not known" + understood);
        }
        with_operators_ = root_.find("operators").has_value();
        if (with_operators_ != (version.integer() == 2)) {
            throw Error(ErrorKind::input, version.where(),
                        "only version 2 comes with operators, and always" + understood);
        }
    }

    void read_classes() {
        for (const json::Value row : root_.at("classes").elements()) {
            row.allow_only({"name", "bases"});
            ModuleClass c;
            c.name = row.at("name").string();
            if (const auto bases = row.find("bases")) {
                c.bases = bases->strings();
            }
            graph_.classes.push_back(std::move(c));
        }
    }

    void read_tensors() {
        const auto rows = root_.find("tensors");
        if (!rows) {
            return;
        }
        for (const json::Value row : rows->elements()) {
            row.allow_only({"id", "shape", "dtype", "requires_grad", "persistent", "uninitialized"});
            tensor_ids_.add(row.at("id"));
            graph_.tensors.push_back(read_tensor(row));
            const auto persistent = row.find("persistent");
            persistent_.push_back(!persistent || persistent->boolean() ? 1 : 0);
        }
    }

    Tensor read_tensor(const json::Value& row) {
        Tensor tensor;
        const json::Value dtype = row.at("dtype");
        const std::optional<DType> known = dtype_from_name(dtype.string());
        if (!known) {
            throw Error(ErrorKind::input, dtype.where(),
                        "unknown dtype " + dtype.shown() + did_you_mean(dtype.string(), dtype_names()));
        }
        tensor.dtype = *known;
        if (const auto requires_grad = row.find("requires_grad")) {
            tensor.requires_grad = requires_grad->boolean();
        }
        const auto uninitialized = row.find("uninitialized");
        tensor.uninitialized = uninitialized && uninitialized->boolean();
        const json::Value shape = row.at("shape");
        if (tensor.uninitialized && shape.is_null()) {
            tensor.numel = 0;
            return tensor;
        }
        read_shape(shape, tensor);
        if (tensor.numel > largest_total - total_) {
            throw Error(ErrorKind::input, shape.where(), "makes the model exceed 2^53 elements");
        }
        total_ += tensor.numel;
        return tensor;
    }

    void read_module(const json::Value& row) {
        row.allow_only({"id", "class", "parameters", "buffers", "non_persistent", "children", "fqn"});
        ModuleNode node;
        const json::Value class_index = row.at("class");
        if (class_index.integer(0, largest_dimension) >= static_cast<std::int64_t>(graph_.classes.size())) {
            class_index.fail("an index into classes, which has " + std::to_string(graph_.classes.size()) +
                             " entries");
        }
        node.class_index = ClassIndex{static_cast<std::int32_t>(class_index.integer())};
        if (const auto children = row.find("children")) {
            for (const json::Value id : children->members()) {
                check_name(id);
                node.children.push_back({std::string(id.key()), ModuleIndex{module_ids_.position(id)}});
            }
        }
        node.parameters = read_slots(row, "parameters");
        node.buffers = read_slots(row, "buffers");
        if (const auto names = row.find("non_persistent")) {
            const std::vector<std::string> listed = names->strings();
            for (TensorSlot& slot : node.buffers) {
                slot.persistent = slot.persistent && std::ranges::find(listed, slot.name) == listed.end();
            }
        }
        graph_.modules.push_back(std::move(node));
    }

    std::vector<TensorSlot> read_slots(const json::Value& row, std::string_view key) {
        std::vector<TensorSlot> slots;
        if (const auto table = row.find(key)) {
            for (const json::Value id : table->members()) {
                check_name(id);
                const TensorIndex t{tensor_ids_.position(id)};
                slots.push_back({std::string(id.key()), t, persistent_[at(t)] != 0});
            }
        }
        return slots;
    }

    // torch refuses both: a dotted path would no longer say which module is meant.
    static void check_name(const json::Value& slot) {
        if (slot.key().empty() || slot.key().find('.') != std::string_view::npos) {
            throw Error(ErrorKind::input, slot.where(), "expected a name without dots that is not empty");
        }
    }

    // Cycles and modules that nothing reaches: flatten() would stop at the first, without a pointer.
    void check_structure() const {
        enum : char { unseen, open, closed };
        std::vector<char> state(graph_.modules.size(), unseen);
        struct Frame {
            ModuleIndex module;
            std::size_t next;
        };
        std::vector<Frame> path{{graph_.root, 0}};
        state[at(graph_.root)] = open;
        while (!path.empty()) {
            Frame& top = path.back();
            const std::vector<ChildSlot>& slots = graph_.modules[at(top.module)].children;
            if (top.next == slots.size()) {
                state[at(top.module)] = closed;
                path.pop_back();
                continue;
            }
            const ChildSlot& slot = slots[top.next++];
            if (state[at(slot.module)] == open) {
                fail_at_module(top.module, "its child " + json::quote(slot.name) + " contains it (a cycle)");
            }
            if (state[at(slot.module)] == unseen) {
                state[at(slot.module)] = open;
                path.push_back({slot.module, 0});
            }
        }
        for (std::size_t m = 0; m < state.size(); ++m) {
            if (state[m] == unseen) {
                fail_at_module(ModuleIndex{static_cast<std::int32_t>(m)}, "is not reachable from the root");
            }
        }
    }

    // `forward_order`, and with it the dataflow between the calls.
    void read_calls() {
        const auto order = root_.find("forward_order");
        if (!order) {
            return;
        }
        std::unordered_map<std::string, ModuleIndex> by_path;
        list_paths(graph_.root, "", by_path);
        ForwardCalls& calls = graph_.calls;
        for (const json::Value path : order->elements()) {
            const auto found = by_path.find(std::string(path.string()));
            if (found == by_path.end()) {
                throw Error(ErrorKind::input, path.where(), "there is no module " + path.shown());
            }
            calls.module.push_back(found->second);
        }
        const auto count = static_cast<std::int64_t>(calls.module.size());
        const auto sources = [&](const json::Value& list, std::int64_t before) {
            for (const json::Value source : list.elements()) {
                calls.from.push_back(static_cast<std::int32_t>(source.integer(-1, before - 1)));
            }
        };
        calls.from_begin.push_back(0);
        if (const auto flow = root_.find("dataflow")) {
            for (const json::Value row : flow->elements()) {
                row.allow_only({"call", "from"});
                const json::Value call = row.at("call");
                const auto next = static_cast<std::int64_t>(calls.from_begin.size()) - 1;
                // In call order, so that the sources can stand in one array.
                calls.from_begin.resize(static_cast<std::size_t>(call.integer(next, count - 1)) + 1,
                                        static_cast<std::int32_t>(calls.from.size()));
                sources(row.at("from"), call.integer());
                calls.from_begin.push_back(static_cast<std::int32_t>(calls.from.size()));
            }
            calls.from_begin.resize(static_cast<std::size_t>(count) + 1,
                                    static_cast<std::int32_t>(calls.from.size()));
            for (const json::Value source : root_.at("output_from").elements()) {
                calls.output_from.push_back(static_cast<std::int32_t>(source.integer(-1, count - 1)));
            }
        } else {
            calls.from_begin.clear();
        }
    }

    // Every path of every module that is called through it; a shared module has several.
    void list_paths(ModuleIndex m, const std::string& path,
                    std::unordered_map<std::string, ModuleIndex>& out) const {
        constexpr std::size_t most_paths = 1U << 20U;  // chains of shared modules have exponentially many
        if (out.size() >= most_paths || !out.emplace(path, m).second) {
            return;
        }
        for (const ChildSlot& slot : graph_.modules[at(m)].children) {
            list_paths(slot.module, join_path(path, slot.name), out);
        }
    }

    [[noreturn]] void fail_at_module(ModuleIndex m, const std::string& message) const {
        std::size_t position = 0;
        for (const json::Value row : root_.at("modules").elements()) {
            if (position++ == at(m)) {
                throw Error(ErrorKind::input, row.where(), message);
            }
        }
        FSDPLAN_ASSERT(false, "every module comes from a row");
    }

    json::Value root_;
    ModelGraph graph_;
    bool with_operators_ = false;
    IdTable module_ids_{"module"};
    IdTable tensor_ids_{"tensor"};
    std::vector<char> persistent_;
    std::int64_t total_ = 0;
};

}  // namespace

namespace builtin::importer {

extern const ImporterInfo module_tree;
constinit const ImporterInfo module_tree{
    .name = "module-tree JSON",
    .help = "reads a module tree exported from Python, plain or gzip",
    .recognises =
        [](const ImportSource& source) { return source.head.find(format_name) != std::string::npos; },
    .read =
        [](const ImportSource& source, const ImportOptions& options) {
            const json::Document document(read_text(source.path), source.shown);
            ModelGraph graph = Reader(document.root()).read();
            graph.dtypes_recorded = !options.dtype;
            if (options.dtype) {
                for (Tensor& tensor : graph.tensors) {
                    tensor.dtype = is_floating_point(tensor.dtype) ? *options.dtype : tensor.dtype;
                }
            }
            return graph;
        },
};

}  // namespace builtin::importer
}  // namespace fsdplan
