#include "execute/mpi/collectives.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

namespace fsdplan::mpi {
namespace {

struct Width {
    MPI_Datatype type;
    std::int64_t bytes;
};

Width width_of(DType dtype) {
    switch (bytes_of(1, dtype).count) {
        case 1:
            return {.type = MPI_UINT8_T, .bytes = 1};
        case 2:
            return {.type = MPI_UINT16_T, .bytes = 2};
        case 4:
            return {.type = MPI_UINT32_T, .bytes = 4};
        case 8:
            return {.type = MPI_UINT64_T, .bytes = 8};
        default:
            throw Error(ErrorKind::machine, "MPI", "has no integer as wide as " + std::string(name(dtype)));
    }
}

int count_of(std::int64_t numel) {
    if (numel > std::numeric_limits<int>::max()) {
        throw Error(ErrorKind::machine, "MPI",
                    std::to_string(numel) + " elements are more than one call of MPI takes");
    }
    return static_cast<int>(numel);
}

MPI_Op op_of(Reduction reduction) {
    return reduction == Reduction::maximum ? MPI_MAX : MPI_SUM;
}

void call_mpi(const CollectiveCall& call, MPI_Comm communicator, const void* input, void* output) {
    MPI_Datatype type = width_of(call.dtype).type;  // a pointer or a number, by the MPI
    const int in = count_of(call.input_numel);
    const int out = count_of(call.output_numel);
    switch (call.kind) {
        case CollectiveKind::all_gather:
            check(MPI_Allgather(input, in, type, output, in, type, communicator), "MPI_Allgather");
            break;
        case CollectiveKind::reduce_scatter:
            check(MPI_Reduce_scatter_block(input, output, out, type, op_of(call.reduction), communicator),
                  "MPI_Reduce_scatter_block");
            break;
        case CollectiveKind::all_reduce:
            check(MPI_Allreduce(input, output, in, type, op_of(call.reduction), communicator),
                  "MPI_Allreduce");
            break;
        case CollectiveKind::broadcast:
            check(MPI_Bcast(output, in, type, 0, communicator), "MPI_Bcast");
            break;
        case CollectiveKind::reduce:
            check(MPI_Reduce(input, output, in, type, op_of(call.reduction), 0, communicator), "MPI_Reduce");
            break;
    }
}

std::uint64_t element(const std::vector<std::byte>& values, std::int64_t i, std::int64_t width) {
    std::uint64_t value = 0;  // little-endian, as all hosts here are
    std::memcpy(&value, values.data() + i * width, static_cast<std::size_t>(width));
    return value;
}

/// What rank `rank` puts in at place `i`; small, so that sums over some ranks fit a byte.
std::uint64_t put_in(std::int64_t rank, std::int64_t i) {
    return static_cast<std::uint64_t>((rank + 1) * (i % 5 + 1));
}

/// What place `i` of the output of `rank` has to be, before it is cut to the width.
std::uint64_t expected(const CollectiveCall& call, std::int64_t ranks, std::int64_t rank, std::int64_t i) {
    if (call.kind == CollectiveKind::all_gather) {
        return put_in(i / call.input_numel, i % call.input_numel);
    }
    if (call.kind == CollectiveKind::broadcast) {
        return put_in(0, i);
    }
    const std::int64_t place = call.kind == CollectiveKind::reduce_scatter ? rank * call.output_numel + i : i;
    if (call.reduction == Reduction::maximum) {
        return put_in(ranks - 1, place);
    }
    std::uint64_t sum = 0;
    for (std::int64_t from = 0; from < ranks; ++from) {
        sum += put_in(from, place);
    }
    return sum;
}

struct Place {
    int rank = 0;
    int ranks = 0;
};

Place place_in(MPI_Comm communicator) {
    Place place;
    check(MPI_Comm_rank(communicator, &place.rank), "MPI_Comm_rank");
    check(MPI_Comm_size(communicator, &place.ranks), "MPI_Comm_size");
    return place;
}

/// Output elements that MPI writes on a rank.
std::int64_t written_numel(const CollectiveCall& call, std::int64_t rank) {
    switch (call.kind) {
        case CollectiveKind::all_gather:
        case CollectiveKind::reduce_scatter:
            return call.output_numel;
        case CollectiveKind::all_reduce:
        case CollectiveKind::broadcast:
            return call.input_numel;
        case CollectiveKind::reduce:
            return rank == 0 ? call.input_numel : 0;
    }
    return 0;
}

/// The sizes of both ends belong together for this many ranks.
void expect_even(const CollectiveCall& call, std::int64_t ranks) {
    const bool gathers = call.kind == CollectiveKind::all_gather;
    const bool scatters = call.kind == CollectiveKind::reduce_scatter;
    if ((gathers && call.output_numel != call.input_numel * ranks) ||
        (scatters && call.input_numel != call.output_numel * ranks)) {
        throw Error(ErrorKind::machine, std::string(name(call.kind)),
                    "shares of different sizes are not executed: " + std::to_string(call.input_numel) +
                        " elements in, " + std::to_string(call.output_numel) + " out, " +
                        std::to_string(ranks) + " ranks");
    }
}

}  // namespace

void Collectives::make_room(const CollectiveCall& call) {
    const auto bytes =
        static_cast<std::size_t>(std::max(call.input_numel, call.output_numel) * width_of(call.dtype).bytes);
    if (input_.size() < bytes) {
        input_.resize(bytes);
        output_.resize(bytes);
    }
}

std::int64_t Collectives::run(const CollectiveCall& call, MPI_Comm communicator) {
    make_room(call);
    call_mpi(call, communicator, input_.data(), output_.data());
    int element_bytes = 0;
    check(MPI_Type_size(width_of(call.dtype).type, &element_bytes), "MPI_Type_size");
    const Collective sent{.kind = call.kind,
                          .dtype = DType::uint8,
                          .input_numel = call.input_numel * element_bytes,
                          .output_numel = call.output_numel * element_bytes,
                          .ranks = place_in(communicator).ranks};
    return sent.sent().count;
}

void Collectives::verify(const CollectiveCall& call, MPI_Comm communicator) {
    const auto [rank, ranks] = place_in(communicator);
    expect_even(call, ranks);
    make_room(call);
    const std::int64_t width = width_of(call.dtype).bytes;
    for (std::int64_t i = 0; i < call.input_numel; ++i) {
        const std::uint64_t value = put_in(rank, i);
        std::memcpy(input_.data() + i * width, &value, static_cast<std::size_t>(width));
    }
    if (call.kind == CollectiveKind::broadcast) {
        output_ = input_;  // in place
    }
    call_mpi(call, communicator, input_.data(), output_.data());
    const std::uint64_t mask = ~std::uint64_t{0} >> static_cast<unsigned>(64 - 8 * width);
    for (std::int64_t i = 0; i < written_numel(call, rank); ++i) {
        const std::uint64_t want = expected(call, ranks, rank, i) & mask;
        const std::uint64_t got = element(output_, i, width);
        if (got != want) {
            throw Error(ErrorKind::machine, std::string(name(call.kind)),
                        "element " + std::to_string(i) + " of " + std::to_string(call.output_numel) +
                            " came out as " + std::to_string(got) + ", expected " + std::to_string(want));
        }
    }
}

}  // namespace fsdplan::mpi
