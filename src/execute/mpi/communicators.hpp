#pragma once

#include <mpi.h>

#include <cstdint>
#include <map>
#include <utility>

#include "fsdplan/execute.hpp"

namespace fsdplan::mpi {

/// Throws Error(machine) with MPI's own words unless `status` is success.
void check(int status, const char* call);

/// Communicators of a mesh whose ranks are numbered node by node: `shard` neighbours share a parameter,
/// replicas lie `shard` apart. Made on first use, by all ranks in the same order.
class Communicators {
public:
    Communicators() = default;
    Communicators(const Communicators&) = delete;
    Communicators& operator=(const Communicators&) = delete;
    Communicators(Communicators&&) = delete;
    Communicators& operator=(Communicators&&) = delete;
    ~Communicators() { clear(); }

    void reset(const Mesh& mesh);
    /// Throws Error(machine) when the group does not have as many ranks as the call.
    void prepare(const CollectiveCall& call);
    MPI_Comm of(const CollectiveCall& call) const { return made_.at({call.group, call.ranks}); }

private:
    void clear();
    int color_of(const CollectiveCall& call) const;

    Mesh mesh_;
    std::map<std::pair<RankGroup, std::int64_t>, MPI_Comm> made_;
};

}  // namespace fsdplan::mpi
