#include "execute/mpi/communicators.hpp"

#include <array>
#include <string>

namespace fsdplan::mpi {
namespace {

int world_rank() {
    int rank = 0;
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
    return rank;
}

}  // namespace

void check(int status, const char* call) {
    if (status != MPI_SUCCESS) {
        std::array<char, MPI_MAX_ERROR_STRING> text{};
        int size = 0;
        MPI_Error_string(status, text.data(), &size);
        throw Error(ErrorKind::machine, call, std::string(text.data(), static_cast<std::size_t>(size)));
    }
}

void Communicators::reset(const Mesh& mesh) {
    if (!(mesh == mesh_)) {
        clear();
        mesh_ = mesh;
    }
}

void Communicators::clear() {
    for (auto& [group, communicator] : made_) {
        MPI_Comm_free(&communicator);
    }
    made_.clear();
}

int Communicators::color_of(const CollectiveCall& call) const {
    const int rank = world_rank();
    switch (call.group) {
        case RankGroup::shard:
            return rank / static_cast<int>(mesh_.shard);
        case RankGroup::replicate:
            return rank % static_cast<int>(mesh_.shard);
        case RankGroup::post_forward:
            return rank / static_cast<int>(call.ranks);
        case RankGroup::world:
            return 0;
    }
    return 0;
}

void Communicators::prepare(const CollectiveCall& call) {
    const std::pair key{call.group, call.ranks};
    if (made_.contains(key)) {
        return;
    }
    MPI_Comm made = MPI_COMM_NULL;
    check(MPI_Comm_split(MPI_COMM_WORLD, color_of(call), world_rank(), &made), "MPI_Comm_split");
    made_[key] = made;
    check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    int size = 0;
    check(MPI_Comm_size(made, &size), "MPI_Comm_size");
    if (size != call.ranks) {
        throw Error(ErrorKind::machine, std::string(name(call.kind)),
                    "the schedule has " + std::to_string(call.ranks) + " ranks in this group, but " +
                        std::to_string(size) + " are running");
    }
}

}  // namespace fsdplan::mpi
