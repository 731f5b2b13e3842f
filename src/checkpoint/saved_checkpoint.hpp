#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fsdplan/compatibility.hpp"

namespace fsdplan {

/// How a value lies in a file of torch.save.
enum class ValueKind : std::uint8_t { whole, dtensor, sharded_tensor };

/// An exception, and who raises it.
struct Failure {
    std::string stage;
    std::string error_class;
    std::string cause_class;
    std::string code;
    std::vector<std::int64_t> ranks;
};
/// The same on every rank.
Failure on_all_ranks(const CheckpointSide& side, std::string stage, std::string error_class,
                     std::string code);
/// Errors inside DCP arrive as CheckpointException everywhere.
Failure inside_dcp(const CheckpointSide& side, std::string stage, std::string cause_class, std::string code);

/// What each rank of a job raises, if it does.
class RankFailures {
public:
    void raise(std::int64_t rank, const Failure& failure);
    bool any() const { return first_.has_value(); }
    /// Class and code of the lowest rank that raises, with all that do.
    Failure result() const;

private:
    std::optional<Failure> first_;
    std::vector<std::int64_t> ranks_;
};

/// The names of a model, and the tensor of each.
class Names {
public:
    explicit Names(const StateLayout& layout);

    const StateTensor* find(std::string_view name) const;
    /// Index into StateLayout::tensors, or -1.
    std::int64_t tensor(std::string_view name) const;
    /// The name by which an optimizer knows a tensor.
    std::string_view first(std::size_t tensor) const { return first_[tensor]; }
    bool has_ties() const { return has_ties_; }

private:
    const StateLayout& layout_;
    std::unordered_map<std::string_view, std::size_t> tensor_of_;
    std::vector<std::string_view> first_;
    bool has_ties_ = false;
};

/// What saving leaves behind.
struct SavedCheckpoint {
    SavedCheckpoint(const CheckpointSide& side, const SaveRoute& by);

    const CheckpointSide& from;
    const SaveRoute& route;
    Names names;
    ValueKind kind = ValueKind::whole;  ///< of sharded parameters
    bool flat = false;                  ///< LOCAL: the keys are flat parameters
    StateKeys keys = StateKeys::none;
    /// In the order of the optimizer's list: tensors, or units where it has flat parameters.
    std::vector<std::size_t> optimizer_list;
    bool lists_units = false;
    /// With a CPU compute device and offload: all states but the last are copies of the last.
    bool states_overwritten = false;

    /// Whether a name of the model is in the file: safetensors' save_model leaves tied ones out.
    bool has_name(const StateEntry& entry) const;
    /// Names in the optimizer's list, one a tensor.
    bool lists(std::string_view name) const;
    bool has_state(std::string_view name) const { return lists(name); }
    std::int64_t states_per_tensor() const;  ///< with the step counter
};

/// Why saving stops, if it does.
std::optional<Failure> save_failure(const CheckpointSide& from, const SaveRoute& route);

/// Place of a tensor or unit in the optimizer's list of a side.
std::vector<std::size_t> optimizer_list(const StateLayout& layout);
bool lists_units(const StateLayout& layout);

}  // namespace fsdplan
