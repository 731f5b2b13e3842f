#pragma once

#include <cstdint>
#include <vector>

#include "execute/mpi/communicators.hpp"

namespace fsdplan::mpi {

/// One stream's collectives. Elements are unsigned integers as wide as the call's dtype: a host has no
/// bfloat16, and sums of integers are exact in any order.
class Collectives {
public:
    /// Does the call and says what this rank has sent by the counts that MPI was given, as a ring would.
    std::int64_t run(const CollectiveCall& call, MPI_Comm communicator);
    /// Does the call with numbers that tell ranks and places apart; throws Error(machine) when one comes out
    /// wrong.
    void verify(const CollectiveCall& call, MPI_Comm communicator);

private:
    void make_room(const CollectiveCall& call);

    std::vector<std::byte> input_;
    std::vector<std::byte> output_;
};

}  // namespace fsdplan::mpi
