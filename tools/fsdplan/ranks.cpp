#include "ranks.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "command.hpp"

namespace fsdplan::cli {

bool on_every_rank(Backend& backend, const std::function<void()>& work) {
    std::optional<Error> error;
    try {
        work();
    } catch (const Error& thrown) {
        error = thrown;
    }
    const std::vector<std::int64_t> failed = backend.of_all_ranks(error ? 1 : 0);
    const auto count = std::ranges::count(failed, 1);
    if (error && (count < backend.ranks() || backend.rank() == 0)) {
        throw Error(*error);
    }
    return count == 0;
}

void or_stop_all(Backend& backend, const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& error) {
        for (const Fault& fault : error.faults()) {
            fmt::print(stderr, "fsdplan: rank {}: {}: {}\n", backend.rank(), fault.where, fault.message);
        }
        backend.stop_all(error.kind() == ErrorKind::input ? bad_input : machine_lacks);
        throw;
    }
}

}  // namespace fsdplan::cli
