#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/allocator.hpp"
#include "fsdplan/base.hpp"
#include "fsdplan/cost.hpp"
#include "fsdplan/job.hpp"
#include "fsdplan/model.hpp"
#include "fsdplan/schedule.hpp"

// What happens to a schedule: when each operation runs, why the device waits, what memory holds.
namespace fsdplan {

/// What the host spends on issuing work. Defaults are published figures of eager PyTorch, or guesses where
/// nothing is published; a calibration replaces them.
struct HostCosts {
    /// One kernel: 5 to 10 us of Python and dispatcher for an eager operator, less when it is called from
    /// C++.
    Estimate launch_ns{6'000, 3'000, 10'000};
    /// A unit's hook around forward or backward: 100 to 300 us for all hooks of one pass of a unit.
    Estimate unit_hook_ns{150'000, 100'000, 300'000};
    /// Optimizer.step() beside its launches: grouping of the parameters.
    Estimate optimizer_ns{500'000, 200'000, 2'000'000};
    /// One call of torch.distributed beside its launch. A guess.
    Estimate collective_ns{20'000, 10'000, 40'000};
    /// Copies from and to the host: one call. A guess.
    Estimate transfer_ns{6'000, 3'000, 10'000};
    /// Recording an event or having a stream wait for one. A guess.
    Estimate event_ns{1'000, 500, 2'000};
    /// An allocation from the cache, or a free. A guess.
    Estimate allocator_ns{1'000, 500, 2'000};
    /// From an event to the first kernel behind it on another stream, or to the host that blocks on it: 2 to
    /// 5 us in traces of the real thing.
    Estimate wait_ns{3'000, 2'000, 5'000};
};

/// What the operations of a schedule are priced with.
struct Pricing {
    Mesh mesh;                              ///< how the groups lie on the nodes
    DType compute_dtype = DType::bfloat16;  ///< of products whose shape is not known
    int flash_attention = 2;                ///< generation of its kernels
    HostCosts host;
};

/// Which end of every estimate a time is.
enum class Bound : std::uint8_t { value, low, high };

/// How long each operation takes: one entry an operation in both arrays.
struct OpTimes {
    /// On its stream; of a wait and a block: from the event to its effect. Operations of the host have none.
    std::vector<std::int64_t> device_ns;
    /// Of the host, which goes on to the next operation afterwards.
    std::vector<std::int64_t> host_ns;
};

/// Prices of a schedule's distinct collectives, one a row of Schedule::collectives.
///
/// Kernels: the slower of products by their shape and of bytes at the memory's rate, and for each launch
/// what 2 MiB of traffic take (so small kernels lose as measured). Copies read and write their bytes.
std::vector<CollectiveTime> collective_times(const Schedule& schedule, const Cluster& cluster,
                                             const Pricing& pricing);

/// Fills `out`, reusing its memory. `collectives` is what collective_times() says about this schedule.
void price(const Schedule& schedule, const Cluster& cluster, const Pricing& pricing,
           std::span<const CollectiveTime> collectives, Bound bound, OpTimes& out);

/// When each operation of a schedule ran; one entry an operation. Time 0 is the host's first operation.
///
/// Kernels, copies and collectives run on their stream. The host's own operations (host, allocate, free, use,
/// relabel, block, mark) run on the host. A record's end is the time of its event; a wait lasts from when its
/// stream reaches it to when the stream may go on.
struct Timeline {
    std::vector<std::int64_t> issued_ns;  ///< the host is done with issuing it
    std::vector<std::int64_t> start_ns;
    std::vector<std::int64_t> end_ns;
};

/// Plays the operations in the order of the host: one pass over arrays, exact as long as nothing feeds back
/// from memory to durations.
///
/// An operation starts when the host has issued it, its stream is free and, for a collective, the
/// communicator has finished all collectives issued before: those of one group run in issue order, on
/// whatever stream. A `wait` with target -1 waits for nothing. The host never waits but at a `block`.
/// Kernels and copies keep `speed` (above 0, at most 1) of their own while a collective of several ranks
/// runs, for it occupies SMs and memory: they lose (1 - speed) of the time that they share with collectives.
/// `out` is overwritten; its memory is reused.
void play(const Schedule& schedule, const OpTimes& times, double speed, Timeline& out);

/// How fast work goes that has to share the device, in thousandths of its speed alone.
///
/// The model: work of a kind goes at full speed, or at the one slower speed while work of the other kind runs
/// at all, on whatever stream. Kernels lose the SMs that a collective's channels occupy (taken as many waves:
/// the share of SMs that is left) or the memory bandwidth that it draws, whichever is worse; a collective
/// loses to kernels that saturate the memory.
struct Contention {
    std::int64_t compute_permille = 1000;     ///< kernels while a collective runs
    std::int64_t copy_permille = 1000;        ///< copies inside the device meanwhile
    std::int64_t collective_permille = 1000;  ///< a collective while kernels or copies run

    bool any() const {
        return compute_permille != 1000 || copy_permille != 1000 || collective_permille != 1000;
    }
};
/// Kernels by the GPU's constant, copies by the bandwidth that its links draw.
Contention usual_contention(const Gpu& gpu);

/// Plays the operations as a simulation of discrete events: streams as queues, the host as a process, time
/// from one event to the next. With one speed for kernels and copies, and collectives that lose nothing, it
/// says what play() says, which it is the check of.
void play_events(const Schedule& schedule, const OpTimes& times, const Contention& contention, Timeline& out);

/// Why a stream stands still.
enum class Cause : std::uint8_t {
    gather,     ///< an all-gather runs: `culprit`
    reduce,     ///< a reduce-scatter, all-reduce or reduce
    broadcast,  ///< a broadcast
    copy,       ///< a copy on another stream
    compute,    ///< kernels of another stream
    transfer,   ///< a copy from or to the host
    limiter,    ///< the host was blocked in `culprit`, so that work came late
    host,       ///< the host had not come so far: it issues more slowly than the device works
    latency,    ///< between an event and what waited for it
    memory,     ///< the allocator waited for the device to give memory back: `culprit`
};
std::string_view name(Cause cause);

/// A time in which the compute stream stood still. A wait with several reasons, one after the other, is
/// split: a gather that could not start since a reduce-scatter had the communicator counts as two.
struct ExposedWait {
    std::int32_t op = -1;       ///< what then started on the compute stream, or the wait it stood in
    std::int32_t culprit = -1;  ///< the operation it waited for; -1: none
    Cause cause = Cause::host;
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
};

/// Every pause of the compute stream between its first and its last operation, in order of time, disjoint.
/// Reads nothing but the schedule and the times, so measured ones do too.
std::vector<ExposedWait> exposed_waits(const Schedule& schedule, const Timeline& timeline);

/// Times of one iteration: from the moment everything before had ended to the end of its own last operation.
struct IterationTime {
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    std::int64_t exposed_ns = 0;  ///< compute waited for collectives (gather, reduce, broadcast)
    std::int64_t waiting_ns = 0;  ///< … for whatever

    std::int64_t ns() const { return end_ns - begin_ns; }
};
std::vector<IterationTime> iteration_times(const Schedule& schedule, const Timeline& timeline,
                                           std::span<const ExposedWait> waits);

/// A step over many ranks that differ at random: every synchronous step waits for the slowest.
struct StragglerTime {
    std::int64_t expected_ns = 0;
    std::int64_t p99_ns = 0;
};
/// `sigma` is the standard deviation of one rank's step, relative to the step. Within a run 0.4 to 0.6 %
/// were measured on 8 to 16 GPUs.
/// Ranks count as normal and independent: mean + sigma sqrt(2 ln n), mean + sigma quantile(0.99^(1/n)).
StragglerTime with_stragglers(std::int64_t step_ns, double sigma, std::int64_t ranks);
constexpr double usual_straggler_sigma = 0.005;

/// One change of what memory holds.
struct MemoryChange {
    std::int32_t op = -1;
    std::int32_t buffer = -1;
    Category category{};
    std::int64_t delta_bytes = 0;      ///< of the buffer; a relabel is two changes
    std::int64_t allocated_bytes = 0;  ///< afterwards, of the whole device
    std::int64_t reserved_bytes = 0;   ///< … by the caching allocator; 0 when none took part
};

/// The moment at which most is allocated; the first one when there are several.
struct MemoryPeak {
    std::int32_t op = -1;  ///< the allocation that reached it
    std::int64_t allocated_bytes = 0;
    std::array<std::int64_t, category_count> by_category{};
};

struct OutOfMemory {
    std::int32_t op = -1;  ///< the allocation that failed
    std::int64_t requested_bytes = 0;
    std::int64_t allocated_bytes = 0;
    std::int64_t reserved_bytes = 0;
    std::int64_t free_bytes = 0;  ///< of the device
};

/// What memory held, from the first operation to the last, or to the one that ran out of it.
struct MemoryProfile {
    std::vector<MemoryChange> changes;
    MemoryPeak peak;
    std::vector<std::int64_t> iteration_peak_bytes;  ///< allocated, of each iteration
    std::int64_t host_peak_bytes = 0;                ///< pinned host memory

    // Of the caching allocator; absent when none took part.
    std::optional<std::int64_t> reserved_peak_bytes;
    std::optional<std::int64_t> active_peak_bytes;  ///< allocated, or freed while a stream still used it
    std::optional<std::int64_t> alloc_retries;
    std::optional<OutOfMemory> out_of_memory;
};

/// Bytes of each category after the first `changes` changes.
std::array<std::int64_t, category_count> bytes_by_category(const MemoryProfile& profile, std::size_t changes);

/// Buffers that were alive at the peak, in the order of Schedule::buffers.
std::vector<std::int32_t> live_at_peak(const MemoryProfile& profile);

/// What the program holds, in the order of its operations: no time, no rounding, no allocator.
MemoryProfile program_memory(const Schedule& schedule);

/// Device memory beside the allocator's.
struct ProcessBytes {
    Estimate context;  ///< CUDA and its kernels
    Estimate nccl;     ///< buffers of the communicators
};
/// `communicators`: groups of more than one rank that communicate.
ProcessBytes process_bytes(const Cluster& cluster, std::int64_t communicators);
/// Distinct groups among the schedule's collectives of more than one rank.
std::int64_t communicators(const Schedule& schedule);

/// The device's memory and its allocator.
struct MemorySetup {
    Bytes device;          ///< all that a process may use
    Bytes used_by_others;  ///< of it: context and NCCL
    AllocatorOptions allocator;
    /// An allocation that fails, waits for the device, gives back what is free and tries again: 10 to 100 ms
    /// beside the wait.
    Estimate retry_ns{20'000'000, 10'000'000, 100'000'000};
    /// Each segment that is given back or, after the first retry, taken anew.
    Estimate segment_ns{1'000'000, 500'000, 2'000'000};
};
/// The cluster's budget, less what a process of this schedule takes beside the allocator.
MemorySetup usual_memory(const Cluster& cluster, const Schedule& schedule);

/// When the memory of a buffer that another stream used (record_stream) can be handed out again.
enum class FreeTiming : std::uint8_t {
    by_clock,  ///< once that stream has come to the free, by the timeline, and the host allocates again
    at_once,   ///< at the next allocation: the least that can be reserved
    /// When the program alone makes sure of it: the host blocked on an event behind it, or the allocator
    /// waited for the device. The most that can be reserved.
    when_known,
    /// When the host itself waited for that stream: as when_known, but blind to what a stream waited for in
    /// between. No device is so late.
    when_waited_for,
};

/// What the caching allocator did, as PyTorch's memory snapshots tell it.
struct AllocatorEvent {
    enum class Kind : std::uint8_t {
        segment_alloc,
        segment_free,
        segment_map,
        segment_unmap,
        alloc,
        free_requested,
        free_completed,
        out_of_memory,
    };
    Kind kind{};
    std::int32_t op = -1;
    std::int32_t buffer = -1;            ///< of alloc, free_requested, free_completed and out_of_memory
    int stream = 0;                      ///< value of Stream
    std::int64_t address = 0;            ///< not of out_of_memory
    std::int64_t bytes = 0;              ///< as asked for
    std::int64_t device_free_bytes = 0;  ///< of out_of_memory
    std::int64_t time_ns = 0;
};
struct AllocatorBlock {
    std::int64_t address = 0;
    std::int64_t bytes = 0;
    std::int64_t requested_bytes = 0;
    std::int32_t buffer = -1;  ///< -1: free
    bool waiting = false;      ///< freed, but a stream still uses it
};
struct AllocatorSegment {
    std::int64_t address = 0;
    std::int64_t bytes = 0;
    int stream = 0;
    bool small = false;
    std::vector<AllocatorBlock> blocks;  ///< without gaps
};
struct AllocatorLog {
    AllocatorOptions options;
    std::vector<AllocatorEvent> events;
    std::vector<AllocatorSegment> segments;  ///< at the end
};

/// What the caching allocator makes of the program: its operations in the order in which the host issues
/// them, each at the host's time. Retries are counted, but cost no time here.
MemoryProfile device_memory(const Schedule& schedule, const Timeline& timeline, const MemorySetup& setup,
                            FreeTiming timing, AllocatorLog* log = nullptr);

/// How a Run came about.
enum class Method : std::uint8_t {
    array_pass,       ///< nothing feeds back: exact for the durations that were put in
    event_simulator,  ///< with contention or allocator retries
    measured,
};
std::string_view name(Method method);

/// What happened to a schedule, or is predicted to. What is not known is absent, never zero.
struct Run {
    Method method = Method::array_pass;
    Timeline timeline;
    std::vector<ExposedWait> waits;
    std::vector<IterationTime> iterations;
    std::vector<CollectiveTime> collectives;  ///< price and origin, one a row of Schedule::collectives

    // Of the last iteration: the interval when predicted, the least and the most when measured.
    Estimate step_ns;
    Estimate exposed_ns;
    std::optional<StragglerTime> stragglers;  ///< of step_ns.value over all ranks; absent for one

    std::optional<MemoryProfile> memory;
    std::optional<Estimate> reserved_bytes;  ///< peak; its ends are those of FreeTiming
    std::optional<Estimate> process_bytes;   ///< peak of what nvidia-smi shows

    std::vector<std::string> notes;  ///< what is not known or was assumed, one a line
};

struct SimulationOptions {
    Pricing pricing;
    Contention
        contention;  ///< by default kernels and copies lose to collectives alone, by the GPU's constant
    std::optional<MemorySetup> memory;  ///< absent: usual_memory()
    double straggler_sigma = usual_straggler_sigma;
};

/// Time and memory of a schedule on a cluster. Array passes where nothing feeds back; with contention, or
/// when the allocator has to retry, the event simulator with memory in its loop. After the first failed
/// allocation memory is no longer followed, and times go on as if it had succeeded.
Run simulate(const Schedule& schedule, const Cluster& cluster, const SimulationOptions& options,
             AllocatorLog* log = nullptr);

}  // namespace fsdplan
