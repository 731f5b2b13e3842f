#pragma once

#include <vector>

#include "fsdplan/decode.hpp"

// The parts of decoding, for each other and for tests.
namespace fsdplan {

/// The collectives that a JSON text lists (see parse_collectives()).
std::vector<ObservedCollective> collectives_in_json(std::string_view text, const std::string& where);
/// Those in the lines of a log.
std::vector<ObservedCollective> collectives_in_log(std::string_view text, const std::string& where);

/// Policies for the units that people commonly draw in this model, the most common first: the repeated blocks
/// with or without each of what lies outside of them, then every distinct result of min_num_params.
/// `options` are those of the job.
std::vector<PolicySpec> common_units(const ModuleTree& tree, const WrapOptions& options);

/// A collective of a schedule and when it comes.
struct PredictedCall {
    CollectiveCall call;
    std::optional<std::string> unit;  ///< as Schedule::units names it; absent: of none
    DecodedPass pass{};
    std::int64_t position = 0;  ///< in the last iteration, from 1; 0: only before it
};
/// Of a schedule: those of its last iteration, and earlier ones that this does not repeat.
std::vector<PredictedCall> predicted_calls(const Schedule& schedule);

/// Whether a collective of this call may be the one that was seen.
bool may_be(const CollectiveCall& call, const Sighting& seen);

/// What the calls that a sighting may be are to the plan's units. `sighting` is its index.
std::vector<DecodeMatch> matches_of(const ModuleTree& tree, const WrapPlan& plan,
                                    const std::vector<PredictedCall>& calls, const Sighting& seen,
                                    std::size_t sighting);
/// Parameters that are as large, alone.
std::vector<DecodeMatch> parameters_like(const ModuleTree& tree, std::int64_t ranks, const Sighting& seen,
                                         std::size_t sighting);
/// Adds the predicted sizes near to a sighting, of its operation where there are any, to those of other
/// plans; the nearest three remain.
void add_near_sizes(const ModuleTree& tree, const WrapPlan& plan, const std::vector<PredictedCall>& calls,
                    const Sighting& seen, std::size_t sighting, std::vector<NearSize>& near);

}  // namespace fsdplan
