#pragma once

#include <optional>
#include <string_view>

#include "fsdplan/checkpoint.hpp"

// The names that recordings give to calls of state dicts.
namespace fsdplan {

/// What an operation of a recording asks for.
struct RecordedCall {
    std::string_view name;
    StateRequest request;
};

/// nullptr for a name that is not known.
const RecordedCall* find_recorded_call(std::string_view name);

/// A use of torch.distributed.checkpoint.
struct RecordedDcpCall {
    std::string_view name;
    int threads = 1;
    bool stages = false;  ///< only copies the state dict ahead
    bool loads = false;
    bool whole_state = false;  ///< DefaultStager, which takes no ShardedTensor
};
const RecordedDcpCall* find_recorded_dcp_call(std::string_view name);

}  // namespace fsdplan
