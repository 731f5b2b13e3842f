#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fsdplan/planner.hpp"

// Which unit and how many ranks a collective belongs to, from its sizes alone.
namespace fsdplan {

/// A collective as the log of one rank has it.
struct ObservedCollective {
    std::optional<std::int64_t> rank;
    /// "0 (default_pg)": the process group where the log names it; sequence numbers count in one group.
    std::string group;
    std::optional<std::int64_t> sequence;
    std::string op;                      ///< as spelled: "_ALLGATHER_BASE"; empty: not said
    std::optional<CollectiveKind> kind;  ///< absent: not said, or none that shards or replicates a model
    // Absent where the log does not know, as for coalesced work.
    std::optional<std::int64_t> input_numel;
    std::optional<std::int64_t> output_numel;
    // Of the rank in this group, where the log says so.
    std::optional<std::int64_t> last_enqueued;
    std::optional<std::int64_t> last_completed;

    friend bool operator==(const ObservedCollective&, const ObservedCollective&) = default;
};

/// The kind that torch calls "ALLREDUCE", "_ALLGATHER_BASE", "nccl:_reduce_scatter_base", …
std::optional<CollectiveKind> collective_kind(std::string_view op);

/// The collectives of which a text speaks, in its order and each once: lines of PyTorch's NCCL watchdog and
/// of TORCH_DISTRIBUTED_DEBUG=DETAIL between other lines, a flight recorder's dump as JSON, or a JSON list of
/// {"rank", "op", "numel_in", "numel_out"}. Throws Error(input) at `where` with the line when there is none,
/// for more than 10,000, and for numbers that no collective can have.
std::vector<ObservedCollective> parse_collectives(std::string_view text, const std::string& where);

/// Ranks that share what these collectives gather or scatter: the larger size over the smaller one, of most
/// of them. Absent when none of them says.
std::optional<std::int64_t> sharing_ranks(const std::vector<ObservedCollective>& observed);

struct DecodeQuestion {
    const SweepQuestion& about;   ///< its first job and its policy are tried first
    bool other_units = false;     ///< then the units that are common elsewhere
    bool other_runtimes = false;  ///< … and other runtimes
    std::vector<ObservedCollective> observed;
};

/// Observations of one operation with one pair of sizes.
struct Sighting {
    std::string op;  ///< name(kind), else as spelled
    std::optional<CollectiveKind> kind;
    std::optional<std::int64_t> input_numel;
    std::optional<std::int64_t> output_numel;
    std::vector<std::size_t> observed;  ///< indices

    /// The larger size; 0 when neither is known.
    std::int64_t full_numel() const;
};

/// What a collective is to the model.
enum class DecodedPart : std::uint8_t {
    unit,       ///< all of a unit's parameters, or gradients
    shard,      ///< one rank's piece of a unit's gradients, on its way across replicas
    bucket,     ///< some of the parameters or gradients
    parameter,  ///< one parameter that is no unit by itself, as when a state dict is put together
    small,      ///< of no unit: norms, counters, buffers
};
std::string_view name(DecodedPart part);

enum class DecodedPass : std::uint8_t { construction, forward, backward, reduction, step };
/// "construction", "forward gather", …
std::string_view name(DecodedPass pass);

/// Where the collectives of a match stand among those of a step, from 1.
struct StepPositions {
    std::int64_t first = 0;  ///< 0: in none but the first step, or before it
    std::int64_t last = 0;
    std::int64_t of = 0;
};

struct DecodeMatch {
    std::size_t sighting = 0;
    CollectiveKind op{};
    DecodedPart part{};
    RankGroup group = RankGroup::shard;
    std::string class_name;          ///< of the units' module, "A + B" where a unit is of several
    std::vector<std::string> units;  ///< paths, "" is the root; all of equal class and size
    std::int64_t count = 0;          ///< units, buckets or parameters
    std::int64_t numel = 0;          ///< of the full size, padding included
    std::int64_t padding = 0;
    std::string parameter;                       ///< its path, where it is just one
    std::vector<std::int64_t> shape;             ///< of that parameter
    std::map<DecodedPass, std::int64_t> passes;  ///< calls in a step
    StepPositions positions;
};

/// A predicted size near to one that nothing matches.
struct NearSize {
    std::size_t sighting = 0;
    CollectiveKind op{};
    std::string unit;
    std::string class_name;
    std::int64_t ranks = 1;
    std::int64_t numel = 0;
    std::int64_t distance = 0;  ///< of the observed full size from `numel`
};

/// Whether ranks wait for the same collective.
struct RankOrder {
    std::optional<bool> in_step;  ///< absent: fewer than two ranks of one process group say anything
    std::string text;
};
RankOrder rank_order(const std::vector<ObservedCollective>& observed);

struct DecodeResult {
    std::vector<ObservedCollective> observed;
    std::vector<Sighting> sightings;
    std::optional<std::int64_t> world_size;  ///< ranks that share what is gathered
    TrainingJob job;                         ///< of the plan that explains the most
    std::string label;                       ///< of that plan
    std::int64_t units = 0;
    std::int64_t tried = 0;  ///< plans
    std::vector<DecodeMatch> matches;
    std::vector<NearSize> nearest;
    RankOrder order;
    std::vector<std::string> notes;
    std::vector<Assumption> assumptions;

    /// Whether every sighting has a match.
    bool complete() const;
};

/// Matches sizes with the collectives of the question's plan; where that leaves some unexplained and others
/// may be tried, with those of the plan that explains the most of them. Throws Error(input) for a job that
/// cannot be and for more than 100 different collectives.
DecodeResult decode(const DecodeQuestion& question);

}  // namespace fsdplan
