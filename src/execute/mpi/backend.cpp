#include <mpi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "execute/module.hpp"
#include "execute/mpi/collectives.hpp"
#include "execute/mpi/communicators.hpp"
#include "execute/mpi/kernels.hpp"
#include "execute/streams.hpp"

// Hosts as devices: MPI's collectives on host memory, threads as streams.
namespace fsdplan::mpi {
namespace {

/// MPI from the first call to the last one.
class Library {
public:
    Library() {
        int provided = MPI_THREAD_SINGLE;
        check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
        check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        if (provided != MPI_THREAD_MULTIPLE) {
            throw Error(ErrorKind::machine, "MPI_Init_thread",
                        "this MPI cannot be called from several threads");
        }
    }
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;
    Library(Library&&) = delete;
    Library& operator=(Library&&) = delete;
    ~Library() { MPI_Finalize(); }
};

/// Segments of host memory. Their pages stay untouched: what lies in a buffer is nothing that a schedule
/// says.
class HostMemory {
public:
    HostMemory() = default;
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;
    HostMemory(HostMemory&&) = delete;
    HostMemory& operator=(HostMemory&&) = delete;
    ~HostMemory() {
        while (!taken_.empty()) {
            give_back(taken_.begin()->first);
        }
    }

    bool take(std::int64_t segment, Bytes size) {
        const auto bytes = static_cast<std::size_t>(size.count);
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            return false;
        }
        taken_[segment] = {memory, bytes};
        return true;
    }
    void give_back(std::int64_t segment) {
        const auto found = taken_.find(segment);
        munmap(found->second.memory, found->second.bytes);
        taken_.erase(found);
    }

private:
    struct Segment {
        void* memory;
        std::size_t bytes;
    };
    std::map<std::int64_t, Segment> taken_;
};

class MpiBackend final : public Backend {
public:
    MpiBackend() {
        check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
        check(MPI_Comm_size(MPI_COMM_WORLD, &ranks_), "MPI_Comm_size");
        nodes_ = count_nodes();
    }

    std::string_view name() const override { return "mpi"; }
    std::string library() const override {
        std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
        int size = 0;
        MPI_Get_library_version(text.data(), &size);
        const std::string all(text.data(), static_cast<std::size_t>(size));
        return all.substr(0, all.find(','));  // "Open MPI v4.1.4, package: …"
    }
    std::int64_t rank() const override { return rank_; }
    std::int64_t ranks() const override { return ranks_; }
    std::int64_t nodes() const override { return nodes_; }

    std::vector<std::int64_t> of_all_ranks(std::int64_t mine) override {
        std::vector<std::int64_t> all(static_cast<std::size_t>(ranks_));
        check(MPI_Allgather(&mine, 1, MPI_INT64_T, all.data(), 1, MPI_INT64_T, MPI_COMM_WORLD),
              "MPI_Allgather");
        return all;
    }
    void stop_all(int exit_status) override {
        MPI_Abort(MPI_COMM_WORLD, exit_status);
        std::_Exit(exit_status);
    }

    Bytes memory() const override {
        return {static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) * nodes_ / ranks_};
    }

    void prepare(const Schedule& schedule, const Mesh& mesh) override {
        communicators_.reset(mesh);
        for (const CollectiveCall& call : schedule.collectives) {
            communicators_.prepare(call);
            collectives_.front().verify(call, communicators_.of(call));
        }
        schedule_ = &schedule;
    }
    void start() override {
        last_of_.clear();
        sent_.assign(schedule_->ops.size(), 0);
        check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
        streams_.reset(schedule_->ops.size());
    }
    bool take_segment(std::int64_t segment, Bytes size) override { return memory_.take(segment, size); }
    void give_back_segment(std::int64_t segment) override { memory_.give_back(segment); }

    void issue(std::size_t op) override {
        const Op& what = schedule_->ops[op];
        StreamThreads::Task task{.op = op};
        if (what.kind == OpKind::wait) {
            task.after = what.target;
        } else if (what.kind == OpKind::collective) {
            std::int32_t& last = last_of_.try_emplace(communicator_of(what), -1).first->second;
            task.after = last;
            last = static_cast<std::int32_t>(op);
            task.work = [this, op] { communicate(op); };
        } else if (what.kind != OpKind::record) {
            task.work = [this, op] { compute(schedule_->ops[op]); };
        }
        streams_.issue(what.stream, std::move(task));
    }
    void wait_for(std::size_t record) override { streams_.wait_for(record); }
    std::int64_t done(Stream stream) override { return streams_.done(stream); }
    std::int64_t now_ns() override { return streams_.now_ns(); }
    void finish() override { streams_.finish(); }
    OpSpan span(std::size_t op) const override { return streams_.span(op); }
    std::int64_t sent_bytes(std::size_t op) const override { return sent_[op]; }

private:
    static std::int64_t count_nodes() {
        MPI_Comm node = MPI_COMM_NULL;
        check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
              "MPI_Comm_split_type");
        int rank_in_node = 0;
        check(MPI_Comm_rank(node, &rank_in_node), "MPI_Comm_rank");
        const std::int64_t first = rank_in_node == 0 ? 1 : 0;
        std::int64_t nodes = 0;
        check(MPI_Allreduce(&first, &nodes, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
        MPI_Comm_free(&node);
        return nodes;
    }

    const CollectiveCall& call_of(const Op& op) const {
        return schedule_->collectives[static_cast<std::size_t>(op.target)];
    }
    MPI_Comm communicator_of(const Op& op) const { return communicators_.of(call_of(op)); }

    void communicate(std::size_t op) {
        const Op& what = schedule_->ops[op];
        sent_[op] =
            collectives_[static_cast<std::size_t>(what.stream)].run(call_of(what), communicator_of(what));
    }

    /// The slower of both is what a kernel takes; on a host products always are.
    void compute(const Op& op) {
        Kernels& kernels = kernels_[static_cast<std::size_t>(op.stream)];
        if (op.flops > 0) {
            kernels.multiply(op.flops);
        } else {
            kernels.stream(op.kind == OpKind::compute ? op.bytes : 2 * op.bytes);
        }
    }

    Library library_;
    int rank_ = 0;
    int ranks_ = 1;
    std::int64_t nodes_ = 1;
    HostMemory memory_;
    Communicators communicators_;
    const Schedule* schedule_ = nullptr;
    std::array<Collectives, stream_count> collectives_;  // by stream
    std::array<Kernels, stream_count> kernels_;
    std::unordered_map<MPI_Comm, std::int32_t> last_of_;  // collective issued last, by communicator
    std::vector<std::int64_t> sent_;
    StreamThreads streams_;  // ends first: its threads use all of the above
};

}  // namespace
}  // namespace fsdplan::mpi

extern "C" __attribute__((visibility("default"))) fsdplan::Backend* fsdplan_open_backend(
    const char** reason) {
    static std::string why;
    try {
        return new fsdplan::mpi::MpiBackend();
    } catch (const std::exception& error) {
        why = error.what();
        *reason = why.c_str();
        return nullptr;
    }
}
