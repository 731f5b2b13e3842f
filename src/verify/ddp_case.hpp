#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "schedule/ddp_buckets.hpp"
#include "verify/parameter_table.hpp"

// A recorded run of DistributedDataParallel (`fsdplan.ddp-golden`, docs/formats.md) in our own terms.
namespace fsdplan {

struct DdpCase {
    /// Why it cannot be replayed; the other members are then not to be used.
    std::string out_of_reach;
    ParameterTable table;
    std::vector<ddp::Parameter> parameters;
    std::vector<ddp::ModuleBuffer> buffers;
    ddp::Options options;
    bool gradient_views = false;  ///< changes memory, not what is sent
    std::int64_t iterations = 0;
};

/// `recording` is the file's root. Throws Error(input) for what a recording cannot say.
DdpCase ddp_case(const json::Value& recording);

/// The first buckets, each as a line with the names of its parameters: recorded, and our own.
std::vector<std::string> recorded_buckets(const json::Value& recording);
std::vector<std::string> own_buckets(const DdpCase& run);

/// Rows of the gradients of the first backward, as they became ready.
std::vector<std::int32_t> ready_order(const std::vector<json::Value>& iterations, const DdpCase& run);

}  // namespace fsdplan
