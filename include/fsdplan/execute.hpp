#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/simulate.hpp"

// A schedule on real devices: what the simulator plays on a clock, done and timed.
namespace fsdplan {

/// Nanoseconds from Backend::start().
struct OpSpan {
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
};

/// One rank's device, and the ranks it communicates with.
///
/// Work is issued and runs later, each stream's in order. The collectives of one group run in the order of
/// issue on whatever stream. Whatever fails, fails with Error(machine), at the latest in finish().
class Backend {
public:
    Backend() = default;
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;
    Backend(Backend&&) = delete;
    Backend& operator=(Backend&&) = delete;
    virtual ~Backend() = default;

    virtual std::string_view name() const = 0;
    /// Name and version of what communicates.
    virtual std::string library() const = 0;
    virtual std::int64_t rank() const = 0;
    virtual std::int64_t ranks() const = 0;
    virtual std::int64_t nodes() const = 0;

    /// One number of every rank, by rank. Every rank calls it.
    virtual std::vector<std::int64_t> of_all_ranks(std::int64_t mine) = 0;
    /// Stops every rank, this one included: it has failed in a way that the others cannot know of.
    virtual void stop_all(int exit_status) = 0;

    /// What the device has, as far as it can be asked.
    virtual Bytes memory() const = 0;

    /// Prepares communicators for a schedule and checks what each of its distinct collectives computes. The
    /// schedule outlives what is issued of it.
    virtual void prepare(const Schedule& schedule, const Mesh& mesh) = 0;
    /// Meets all other ranks: time 0 of one pass over the schedule.
    virtual void start() = 0;
    /// Takes memory from the device; false when it has not so much.
    virtual bool take_segment(std::int64_t segment, Bytes size) = 0;
    virtual void give_back_segment(std::int64_t segment) = 0;
    /// Hands an operation to its stream: compute, collective, copy, to_device, to_host, record or wait.
    virtual void issue(std::size_t op) = 0;
    /// The host waits for the event that operation `record` recorded.
    virtual void wait_for(std::size_t record) = 0;
    /// Operations that a stream has done since start().
    virtual std::int64_t done(Stream stream) = 0;
    virtual std::int64_t now_ns() = 0;
    /// The host waits for everything.
    virtual void finish() = 0;

    /// When an issued operation ran; after finish().
    virtual OpSpan span(std::size_t op) const = 0;
    /// What this rank has sent for an issued collective, by the sizes that it was called with and as a ring
    /// would (Collective::sent()).
    virtual std::int64_t sent_bytes(std::size_t op) const = 0;
};

struct ExecutionOptions {
    Mesh mesh;
    MemorySetup memory;
    int repeats = 3;  ///< of the whole schedule, each from nothing
};

/// What one rank has seen.
struct RankResult {
    std::int64_t requested_bytes = 0;  ///< peak of what the program asked for and had not freed
    std::int64_t allocated_bytes = 0;  ///< peak of the blocks it got
    std::int64_t reserved_bytes = 0;   ///< peak
    std::int64_t sent_bytes = 0;       ///< in the last iteration
    std::int64_t step_ns = 0;          ///< median
    bool out_of_memory = false;
};

struct Execution {
    /// Of this rank, the last repeat. Estimates are the median, the least and the most of all repeats;
    /// `collectives` those of a row's calls in last iterations. What was not measured is absent.
    Run run;
    std::int64_t sent_bytes = 0;    ///< in the last iteration
    std::vector<RankResult> ranks;  ///< every rank's, by rank
};

/// Does what the schedule says, as often as the options ask for. Memory is handed out by the caching
/// allocator that the simulator has too; its segments are the device's memory. Running out of it is a result,
/// after which work goes on without memory, so that all ranks stay in step.
///
/// Every rank executes the same schedule. Throws Error(machine) when a backend fails, or where ranks differ.
Execution execute(const Schedule& schedule, Backend& backend, const ExecutionOptions& options);

/// A number that was predicted beside the one that was measured.
struct PredictionError {
    std::string key;
    std::int64_t predicted = 0;
    std::int64_t measured = 0;
    bool judged = false;
    bool within = true;

    /// measured / predicted - 1; absent where nothing was predicted.
    std::optional<double> relative() const;
};

struct ComparisonOptions {
    double tolerance = 0.25;
    bool judge_times = true;  ///< false: the prediction is about other devices
};

/// Requested and sent bytes have to be equal on every rank, and memory must not run out on any; allocated
/// bytes too, unless memory waits for streams (record_stream): which block is taken, and how large it is,
/// then hangs on times. What is reserved has to lie within its interval or the tolerance, the time of a step
/// within the tolerance. What compute waits for and each collective's time are beside them for information.
/// Of the ranks the one that is furthest off counts, of their steps the longest.
std::vector<PredictionError> compare(const Schedule& schedule, const Run& predicted,
                                     const Execution& measured, const ComparisonOptions& options);
bool all_within(const std::vector<PredictionError>& errors);

/// The schedule with so much of its arithmetic and memory traffic, as hosts do it: what a kernel takes hangs
/// on the number of its operations alone. Collectives and allocations stay.
Schedule scaled(Schedule schedule, double scale);

/// The host is not PyTorch here: it spends what its own loop takes.
HostCosts executor_host_costs();

/// Loads a backend by its name ("mpi"). Throws Error(input) for one that does not exist, Error(machine) for
/// one that was not built or cannot start here.
std::unique_ptr<Backend> open_backend(std::string_view name);

}  // namespace fsdplan
