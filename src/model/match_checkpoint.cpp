#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/json.hpp"
#include "model/stored_model.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

/// A name under which the model's state dict holds a tensor; a tied one has several.
struct StateEntry {
    std::string name;
    TensorIndex tensor{};
};

void collect(const ModelGraph& graph, ModuleIndex m, const std::string& prefix,
             std::vector<StateEntry>& out) {
    const ModuleNode& node = graph.modules[at(m)];
    for (const TensorSlot& slot : node.parameters) {
        out.push_back({prefix + slot.name, slot.tensor});
    }
    for (const TensorSlot& slot : node.buffers) {
        if (slot.persistent) {
            out.push_back({prefix + slot.name, slot.tensor});
        }
    }
    for (const ChildSlot& slot : node.children) {
        collect(graph, slot.module, prefix + slot.name + ".", out);
    }
}

/// How checkpoint names become the model's. transformers takes a base model's checkpoint for a model with a
/// head, whose names begin with the attribute that holds the base model, and the other way round.
struct Renaming {
    std::string add;
    std::string drop;
};

class StateDict {
public:
    explicit StateDict(const ModelGraph& graph) {
        collect(graph, graph.root, "", entries_);
        for (std::size_t i = 0; i < entries_.size(); ++i) {
            position_.emplace(entries_[i].name, i);
        }
    }

    const std::vector<StateEntry>& entries() const { return entries_; }

    /// Which entry a checkpoint's tensor is, or `nowhere`.
    std::size_t find(std::string_view name, const Renaming& renaming) const {
        if (const auto found = position_.find(name); found != position_.end()) {
            return found->second;
        }
        std::string renamed;
        if (!renaming.add.empty()) {
            renamed = renaming.add + std::string(name);
        } else if (!renaming.drop.empty() && name.starts_with(renaming.drop)) {
            renamed = name.substr(renaming.drop.size());
        }
        const auto found = position_.find(renamed);
        return found == position_.end() ? nowhere : found->second;
    }

private:
    std::vector<StateEntry> entries_;
    std::unordered_map<std::string_view, std::size_t> position_;  // views into entries_
};

/// The renaming under which most of a sample is found; none when that is as good.
Renaming best_renaming(const ModelGraph& graph, const StateDict& state,
                       std::span<const StoredTensor> tensors) {
    constexpr std::size_t sample = 1000;
    const std::size_t stride = std::max<std::size_t>(1, tensors.size() / sample);
    std::vector<Renaming> candidates{{}};
    for (const ChildSlot& slot : graph.modules[at(graph.root)].children) {
        candidates.push_back({.add = slot.name + ".", .drop = {}});
    }
    if (!tensors.empty()) {
        const std::string& middle = tensors[tensors.size() / 2].name;  // the layers, not an odd head
        candidates.push_back({.add = {}, .drop = middle.substr(0, middle.find('.') + 1)});
    }
    Renaming best;
    std::size_t most = 0;
    for (const Renaming& candidate : candidates) {
        std::size_t found = 0;
        for (std::size_t i = 0; i < tensors.size(); i += stride) {
            found += state.find(tensors[i].name, candidate) != nowhere ? 1U : 0U;
        }
        if (found > most) {
            best = candidate;
            most = found;
        }
    }
    return best;
}

std::string text_of(const std::vector<std::int64_t>& shape) {
    std::string out = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) {
        out += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    }
    return out + "]";
}

/// The dtype that holds most floating-point elements.
std::optional<DType> main_dtype(std::span<const StoredTensor* const> tensors) {
    std::map<DType, std::int64_t> numel;
    for (const StoredTensor* stored : tensors) {
        if (is_floating_point(stored->tensor.dtype)) {
            numel[stored->tensor.dtype] += stored->tensor.numel;
        }
    }
    const auto most = std::ranges::max_element(numel, {}, [](const auto& entry) { return entry.second; });
    return most == numel.end() ? std::nullopt : std::optional(most->first);
}

class Matcher {
public:
    Matcher(std::span<const StoredTensor> tensors, const std::string& shown, const ImportOptions& options,
            ModelGraph& graph)
        : tensors_(tensors),
          shown_(shown),
          keep_dtype_(options.dtype.has_value()),
          graph_(graph),
          state_(graph),
          entry_found_(state_.entries().size(), 0),
          found_as_(graph.tensors.size(), nowhere) {}

    void run() {
        const Renaming renaming = best_renaming(graph_, state_, tensors_);
        for (const StoredTensor& stored : tensors_) {
            const std::size_t entry = state_.find(stored.name, renaming);
            if (entry == nowhere) {
                extra_.push_back(&stored);
            } else {
                match(stored, entry);
            }
        }
        if (!other_shapes_.empty()) {
            throw Error(ErrorKind::input, shown_,
                        "does not fit the config.json beside it: " + counted(other_shapes_, "tensor"));
        }
        note_matches(renaming);
        note_absent();
        note_extra();
    }

private:
    void note(std::string text) { graph_.notes.push_back(std::move(text)); }

    void match(const StoredTensor& stored, std::size_t entry) {
        const TensorIndex t = state_.entries()[entry].tensor;
        Tensor& tensor = graph_.tensors[at(t)];
        ++matches_;
        entry_found_[entry] = 1;
        const bool first = std::exchange(found_as_[at(t)], entry) == nowhere;
        if (stored.tensor.shape != tensor.shape) {
            // Quantised weights are packed into integers of another shape.
            const bool packed = is_floating_point(tensor.dtype) && !is_floating_point(stored.tensor.dtype);
            (packed ? packed_ : other_shapes_)
                .push_back(stored.name + " " + text_of(stored.tensor.shape) + " instead of " +
                           text_of(tensor.shape));
        } else if (first && !keep_dtype_ && stored.tensor.dtype != tensor.dtype) {
            ++other_dtypes_[{stored.tensor.dtype, tensor.dtype}];
            tensor.dtype = stored.tensor.dtype;
        }
    }

    void note_matches(const Renaming& renaming) {
        graph_.source += ", checked against the tensors of a checkpoint";
        note(std::to_string(matches_) + " of " + std::to_string(tensors_.size()) +
             " tensors of the file are those of config.json by name and shape");
        if (!renaming.add.empty()) {
            note("the file's names lack the prefix " + json::quote(renaming.add) + " that the model's have");
        }
        if (!renaming.drop.empty()) {
            note("the file's names have the prefix " + json::quote(renaming.drop) + " that the model's lack");
        }
        for (const auto& [dtypes, count] : other_dtypes_) {
            note(std::to_string(count) + " tensors are " + std::string(name(dtypes.first)) +
                 " as in the file, not " + std::string(name(dtypes.second)) + " as by config.json alone");
        }
        if (!packed_.empty()) {
            note("stored packed, taken as config.json has them: " + counted(packed_, "tensor"));
        }
    }

    void note_absent() {
        std::vector<std::string> absent;
        std::vector<std::string> tied;
        std::vector<char> told(graph_.tensors.size(), 0);
        for (std::size_t i = 0; i < state_.entries().size(); ++i) {
            const StateEntry& entry = state_.entries()[i];
            const std::size_t owner = found_as_[at(entry.tensor)];
            if (owner == nowhere) {
                if (std::exchange(told[at(entry.tensor)], char{1}) == 0) {
                    absent.push_back(entry.name);
                    absent_.push_back(entry.tensor);
                    absent_numel_ += graph_.tensors[at(entry.tensor)].numel;
                }
            } else if (entry_found_[i] == 0) {
                tied.push_back(entry.name + " = " + state_.entries()[owner].name);
            }
        }
        if (!tied.empty()) {
            note("not in the file since they are tied, counted once: " + counted(tied, "tensor"));
        }
        if (!absent.empty()) {
            note("in the model, not in the file: " + counted(absent, "tensor"));
        }
    }

    void note_extra() {
        std::vector<std::string> names;
        std::int64_t numel = 0;
        for (const StoredTensor* stored : extra_) {
            names.push_back(stored->name);
            numel += stored->tensor.numel;
        }
        if (!extra_.empty()) {
            note("in the file, not in the model: " + counted(names, "tensor"));
        }
        if (!extra_.empty() && !absent_.empty()) {
            note(
                numel == absent_numel_
                    ? "both sides have " + std::to_string(numel) +
                          " elements: another layout of the same weights, such as one tensor for each expert "
                          "where transformers fuses them"
                    : "the two sides have " + std::to_string(numel) + " and " +
                          std::to_string(absent_numel_) + " elements; the model is the one of config.json");
            adopt_dtype(absent_);
        }
    }

    // The same weights in another layout keep their dtype.
    void adopt_dtype(std::span<const TensorIndex> tensors) {
        const std::optional<DType> dtype = main_dtype(extra_);
        for (const TensorIndex t : tensors) {
            Tensor& tensor = graph_.tensors[at(t)];
            if (dtype && !keep_dtype_ && is_floating_point(tensor.dtype)) {
                tensor.dtype = *dtype;
            }
        }
    }

    std::span<const StoredTensor> tensors_;
    const std::string& shown_;
    bool keep_dtype_;
    ModelGraph& graph_;
    StateDict state_;
    std::vector<char> entry_found_;
    std::vector<std::size_t> found_as_;  // per tensor: an entry under which the file has it
    std::size_t matches_ = 0;
    std::vector<const StoredTensor*> extra_;
    std::vector<TensorIndex> absent_;
    std::int64_t absent_numel_ = 0;
    std::vector<std::string> other_shapes_;
    std::vector<std::string> packed_;
    std::map<std::pair<DType, DType>, std::int64_t> other_dtypes_;
};

}  // namespace

void match_checkpoint(std::span<const StoredTensor> tensors, const std::string& shown,
                      const ImportOptions& options, ModelGraph& graph) {
    Matcher(tensors, shown, options, graph).run();
}

}  // namespace fsdplan
