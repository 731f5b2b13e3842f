#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "base/quantity.hpp"
#include "model/inventory.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_listed = 8;  // of ties and the like; the JSON has them all

using Out = std::back_insert_iterator<std::string>;

std::string shown_bytes(Bytes bytes) {
    constexpr double kib = 1024.0;
    const auto count = static_cast<double>(bytes.count);
    std::string out = show_integer(bytes.count) + " bytes";
    if (bytes >= 1_GiB) {
        out += fmt::format(", {:.2f} GiB", count / kib / kib / kib);
    } else if (bytes >= 1_MiB) {
        out += fmt::format(", {:.2f} MiB", count / kib / kib);
    }
    return out;
}

/// The shortest dotted ends of class names that tell them apart: "Embedding", but "layer.Linear" beside
/// "linear.Linear".
class ShownNames {
public:
    explicit ShownNames(const std::vector<std::string>& names) {
        for (const std::string& name : names) {
            for (std::size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0;
                 dot = name.rfind('.', dot - 1)) {
                ++uses_[name.substr(dot + 1)];
            }
            ++uses_[name];
        }
    }

    std::string_view operator()(std::string_view name) const {
        for (std::size_t dot = name.rfind('.'); dot != std::string_view::npos && dot > 0;
             dot = name.rfind('.', dot - 1)) {
            const auto found = uses_.find(name.substr(dot + 1));
            if (found != uses_.end() && found->second == 1) {
                return name.substr(dot + 1);
            }
        }
        return name;
    }

private:
    std::map<std::string, int, std::less<>> uses_;
};

ShownNames shown_names(const Inventory& inventory) {
    std::vector<std::string> names;
    for (const ClassTotals& c : inventory.classes) {
        names.push_back(c.name);
    }
    return ShownNames(names);
}

ShownNames shown_names(const ModuleTree& tree) {
    std::vector<std::string> names;
    for (const ModuleClass& c : tree.classes) {
        names.push_back(c.name);
    }
    return ShownNames(names);
}

void print_totals(const Inventory& inventory, Out out) {
    fmt::format_to(out, "{:<12} {} in {} tensors ({})\n", "parameters",
                   show_integer(inventory.parameters.numel), inventory.parameters.tensors,
                   shown_bytes(inventory.parameters.bytes));
    for (const DTypeTotals& d : inventory.by_dtype) {
        fmt::format_to(out, "{:<12} {} {}\n", "", show_integer(d.totals.numel), name(d.dtype));
    }
    fmt::format_to(out, "{:<12} {}\n", "trainable", show_integer(inventory.trainable_numel));
    if (inventory.frozen.tensors > 0) {
        fmt::format_to(out, "{:<12} {} in {} tensors\n", "frozen", show_integer(inventory.frozen.numel),
                       inventory.frozen.tensors);
    }
    if (inventory.buffers.tensors > 0) {
        fmt::format_to(out, "{:<12} {} in {} tensors ({}; {} of them not in a state dict)\n", "buffers",
                       show_integer(inventory.buffers.numel), inventory.buffers.tensors,
                       shown_bytes(inventory.buffers.bytes), show_integer(inventory.non_persistent.count));
    }
    fmt::format_to(out, "{:<12} {}, {} deep\n", "modules", show_integer(inventory.modules), inventory.depth);
    if (inventory.longest_sequence) {
        fmt::format_to(out, "{:<12} {} tokens at most\n", "sequence",
                       show_integer(*inventory.longest_sequence));
    }
}

void print_classes(const Inventory& inventory, const ShownNames& shown, Out out) {
    std::size_t width = 0;
    for (const ClassTotals& c : inventory.classes) {
        width = std::max(width, shown(c.name).size());
    }
    fmt::format_to(out, "\n{:<{}}  {:>9}  {:>18}\n", inventory.classes_known ? "class" : "class (guessed)",
                   width, "instances", "own parameters");
    for (const ClassTotals& c : inventory.classes) {
        fmt::format_to(out, "{:<{}}  {:>9}  {:>18}\n", shown(c.name), width, show_integer(c.instances),
                       show_integer(c.own_numel));
    }
}

void print_blocks(const Inventory& inventory, const ShownNames& shown, Out out) {
    if (!inventory.blocks.empty()) {
        fmt::format_to(out, "\nrepeated blocks\n");
    }
    for (const RepeatedBlock& b : inventory.blocks) {
        fmt::format_to(out, "  {}: {} x {} of {}\n", b.path, show_integer(b.count), shown(b.class_name),
                       show_integer(b.numel));
    }
}

void print_groups(std::string_view title, const std::vector<std::vector<std::string>>& groups, Out out) {
    if (!groups.empty()) {
        fmt::format_to(out, "\n{}\n", title);
    }
    for (std::size_t i = 0; i < std::min(groups.size(), most_listed); ++i) {
        fmt::format_to(out, "  {}\n", fmt::join(groups[i], " = "));
    }
    if (groups.size() > most_listed) {
        fmt::format_to(out, "  and {} more\n", groups.size() - most_listed);
    }
}

void print_no_split(const Inventory& inventory, Out out) {
    if (!inventory.no_split.empty()) {
        fmt::format_to(out, "\nnot split by transformers (_no_split_modules)\n");
    }
    for (const NoSplitClass& c : inventory.no_split) {
        const std::string count = c.instances == 0 ? "absent from this model" : show_integer(c.instances);
        fmt::format_to(out, "  {}: {}\n", c.name, count);
    }
}

class TreeText {
public:
    explicit TreeText(const ModuleTree& tree)
        : tree_(tree), shown_(shown_names(tree)), seen_(tree.size(), 0), out_(text_) {
        const std::string width = show_integer(tree.numel.front());
        numel_width_ = static_cast<int>(width.size());
    }

    std::string print() {
        line(ModuleIndex{}, 0, "(root)", 1);
        children(ModuleIndex{}, 1);
        return std::move(text_);
    }

private:
    void line(ModuleIndex m, int depth, std::string_view name, std::size_t repetitions) {
        const std::string times = repetitions > 1 ? fmt::format(" ({} times)", repetitions) : "";
        fmt::format_to(out_, "{:>{}}  {:{}}{} {}{}", show_integer(tree_.numel[at(m)]), numel_width_, "",
                       2 * depth, name, shown_(tree_.class_info(m).name), times);
        for (std::size_t i = 0; i < tree_.parameters(m).size(); ++i) {
            const Tensor& tensor = tree_.tensors[at(tree_.parameters(m)[i])];
            fmt::format_to(out_, " {}[{}]", tree_.parameter_names(m)[i],
                           tensor.uninitialized ? "?" : fmt::format("{}", fmt::join(tensor.shape, ", ")));
        }
        text_ += '\n';
    }

    void children(ModuleIndex m, int depth) {
        constexpr int deepest = 64;  // a deeper tree is no model, and its indentation fills disks
        for (const ChildRun run : runs_of_children(tree_, m)) {
            const ModuleIndex child = tree_.children(m)[run.first];
            const std::string name = run_name(tree_, m, run);
            if (seen_[at(child)] != 0) {
                fmt::format_to(out_, "{:>{}}  {:{}}{} = {}\n", "", numel_width_, "", 2 * depth, name,
                               tree_.path(child));
                continue;
            }
            seen_[at(child)] = 1;
            line(child, depth, name, run.count);
            if (depth == deepest && !tree_.children(child).empty()) {
                fmt::format_to(out_, "{:>{}}  {:{}}…\n", "", numel_width_, "", 2 * depth + 2);
            } else {
                children(child, depth + 1);
            }
        }
    }

    const ModuleTree& tree_;
    ShownNames shown_;
    std::vector<char> seen_;
    std::string text_;
    Out out_;
    int numel_width_ = 0;
};

}  // namespace

std::string inventory_text(const Inventory& inventory) {
    std::string text = inventory.name + "\n";
    const Out out(text);
    if (!inventory.source.empty()) {
        fmt::format_to(out, "  {}\n", inventory.source);
    }
    text += "\n";
    const ShownNames shown = shown_names(inventory);
    print_totals(inventory, out);
    print_classes(inventory, shown, out);
    print_blocks(inventory, shown, out);
    print_groups("one parameter under several names (tied)", inventory.tied, out);
    print_groups("one module in several places (shared)", inventory.shared_modules, out);
    print_no_split(inventory, out);
    return text;
}

std::string tree_text(const ModuleTree& tree) {
    return TreeText(tree).print();
}

}  // namespace fsdplan
