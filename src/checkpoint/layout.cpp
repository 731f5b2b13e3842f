#include <algorithm>
#include <utility>

#include "base/shape.hpp"
#include "fsdplan/checkpoint.hpp"
#include "fsdplan/schedule.hpp"
#include "wrap/flat_parameter.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_entries = 10'000'000;

/// The names of a state dict: parameters and persistent buffers of a module, then its children's.
class Entries {
public:
    Entries(const ModelGraph& model, StateLayout& out)
        : model_(model), out_(out), place_(model.tensors.size(), none) {}

    /// Index in the layout of each tensor of the model, or `none`.
    std::vector<std::size_t> list() {
        add(model_.root, "");
        return std::move(place_);
    }

    static constexpr std::size_t none = static_cast<std::size_t>(-1);

private:
    void add(ModuleIndex m, const std::string& path) {
        const ModuleNode& node = model_.modules[at(m)];
        for (const TensorSlot& slot : node.parameters) {
            add(slot, path, false);
        }
        for (const TensorSlot& slot : node.buffers) {
            if (slot.persistent) {
                add(slot, path, true);
            }
        }
        for (const ChildSlot& child : node.children) {
            add(child.module, join_path(path, child.name));
        }
    }

    void add(const TensorSlot& slot, const std::string& path, bool is_buffer) {
        std::size_t& place = place_[at(slot.tensor)];
        if (place == none) {
            place = out_.tensors.size();
            const Tensor& tensor = model_.tensors[at(slot.tensor)];
            out_.tensors.push_back({.shape = tensor.shape,
                                    .dtype = tensor.dtype,
                                    .trainable = tensor.requires_grad && !is_buffer,
                                    .is_buffer = is_buffer});
        }
        if (out_.entries.size() == most_entries) {
            throw Error(ErrorKind::input, model_.name,
                        "its shared modules have more than 10,000,000 names in a state dict");
        }
        out_.entries.push_back({.name = join_path(path, slot.name), .tensor = place});
    }

    const ModelGraph& model_;
    StateLayout& out_;
    std::vector<std::size_t> place_;
};

bool is_below(std::string_view name, std::string_view path) {
    return path.empty() || (name.size() > path.size() && name.starts_with(path) && name[path.size()] == '.');
}

/// The nearest enclosing unit of each.
void find_parents(std::vector<StateUnit>& units) {
    std::vector<std::int32_t> open;  // units come in pre-order
    for (std::size_t u = 0; u < units.size(); ++u) {
        while (!open.empty() && !is_below(units[u].path, units[static_cast<std::size_t>(open.back())].path)) {
            open.pop_back();
        }
        units[u].parent = open.empty() ? -1 : open.back();
        open.push_back(static_cast<std::int32_t>(u));
    }
}

/// A tied tensor of several units has under each name that unit which encloses the name most closely.
void distribute_entries(StateLayout& layout) {
    std::vector<std::vector<std::size_t>> units_of(layout.tensors.size());
    for (std::size_t u = 0; u < layout.units.size(); ++u) {
        for (const std::size_t tensor : layout.units[u].tensors) {
            units_of[tensor].push_back(u);
        }
    }
    for (std::size_t e = 0; e < layout.entries.size(); ++e) {
        const StateEntry& entry = layout.entries[e];
        const std::vector<std::size_t>& candidates = units_of[entry.tensor];
        if (candidates.empty()) {
            continue;
        }
        std::size_t best = candidates.front();
        for (const std::size_t u : candidates) {
            const std::string& path = layout.units[u].path;
            if (is_below(entry.name, path) && path.size() >= layout.units[best].path.size()) {
                best = u;
            }
        }
        layout.units[best].entries.push_back(e);
    }
}

/// A flat parameter breaks a tie with another one: there are two parameters then.
void break_ties(StateLayout& layout) {
    std::vector<char> taken(layout.tensors.size(), 0);
    for (StateUnit& unit : layout.units) {
        for (std::size_t& tensor : unit.tensors) {
            if (std::exchange(taken[tensor], 1) == 0) {
                continue;
            }
            const std::size_t copy = layout.tensors.size();
            layout.tensors.push_back(StateTensor(layout.tensors[tensor]));
            taken.push_back(1);
            for (const std::size_t entry : unit.entries) {
                if (layout.entries[entry].tensor == tensor) {
                    layout.entries[entry].tensor = copy;
                }
            }
            tensor = copy;
        }
    }
}

StateUnit state_unit(const StateLayout& layout, const Unit& unit, std::vector<std::size_t> tensors,
                     const TrainingJob& job) {
    StateUnit out{.path = unit.path, .tensors = std::move(tensors)};
    out.dtype = layout.tensors[out.tensors.front()].dtype;
    std::vector<std::int64_t> numels;
    numels.reserve(out.tensors.size());
    for (const std::size_t tensor : out.tensors) {
        numels.push_back(layout.tensors[tensor].numel());
    }
    FlatLayout flat = flat_layout(numels, job.use_orig_params, job.param_dtype.value_or(out.dtype),
                                  static_cast<int>(layout.mesh.shard));
    out.offsets = std::move(flat.offsets);
    out.aligned_numel = flat.numel;
    out.padded_numel = round_up(flat.numel, layout.mesh.shard);
    out.shard_numel = out.padded_numel / layout.mesh.shard;
    return out;
}

void add_units(const WrapPlan& plan, const TrainingJob& job, const std::vector<std::size_t>& place,
               StateLayout& layout) {
    for (const Unit& unit : plan.units) {
        std::vector<std::size_t> tensors;
        for (const TensorIndex t : unit.parameters) {
            tensors.push_back(place[at(t)]);
        }
        if (!tensors.empty()) {
            layout.units.push_back(state_unit(layout, unit, std::move(tensors), job));
        }
    }
    find_parents(layout.units);
    distribute_entries(layout);
    if (!job.use_orig_params) {
        break_ties(layout);
    }
    layout.tied_across_units =
        layout.sharded && std::ranges::find(plan.diagnostics, WrapRule::tied_across_units,
                                            &Diagnostic::rule) != plan.diagnostics.end();
}

StateRuntime runtime_of(const TrainingJob& job) {
    return job.runtime == "fsdp1"   ? StateRuntime::fsdp1
           : job.runtime == "fsdp2" ? StateRuntime::fsdp2
                                    : StateRuntime::plain;
}

}  // namespace

std::int64_t StateTensor::numel() const {
    return numel_of(shape);
}

std::int64_t StateTensor::row_bytes() const {
    return bytes_of(shape.empty() ? 1 : numel_of(std::span(shape).subspan(1)), dtype).count;
}

std::int64_t StateLayout::piece_rows(const StateTensor& tensor) const {
    return ceil_div(tensor.rows(), shard_ranks());
}

std::int64_t StateLayout::rows(const StateTensor& tensor, std::int64_t rank) const {
    const std::int64_t step = piece_rows(tensor);
    const std::int64_t begin = std::min(tensor.rows(), shard_rank(rank) * step);
    return std::min(tensor.rows(), begin + step) - begin;
}

std::int64_t StateLayout::piece_bytes(const StateTensor& tensor, std::int64_t rank) const {
    return rows(tensor, rank) * tensor.row_bytes();
}

std::int64_t StateLayout::padded_piece_bytes(const StateTensor& tensor) const {
    return piece_rows(tensor) * tensor.row_bytes();
}

std::int64_t StateLayout::gathered_bytes(const StateTensor& tensor) const {
    return shard_ranks() * padded_piece_bytes(tensor);
}

StateLayout state_layout(const ModelGraph& model, const WrapPlan& plan, const TrainingJob& job) {
    StateLayout layout;
    layout.runtime = runtime_of(job);
    layout.mesh = job.mesh;
    // FSDP1 turns a group of one rank into NO_SHARD; a fully_shard mesh of one rank stays a mesh.
    layout.sharded =
        layout.runtime == StateRuntime::fsdp2 ||
        (layout.runtime == StateRuntime::fsdp1 && job.strategy != Strategy::no_shard && job.mesh.shard > 1);
    layout.use_orig_params = job.use_orig_params;
    layout.low_precision_buffers = layout.runtime == StateRuntime::fsdp1 && job.buffer_dtype.has_value();
    layout.optimizer = optimizer_states(job.optimizer);
    const std::vector<std::size_t> place = Entries(model, layout).list();
    if (layout.runtime == StateRuntime::fsdp1) {
        add_units(plan, job, place, layout);
    }
    return layout;
}

}  // namespace fsdplan
