#pragma once

#include <functional>

#include "fsdplan/execute.hpp"

// Commands that several ranks run together. mpirun ends all of them as soon as one does so with a status
// other than 0: a rank that has nothing to say leaves the status to those that have.
namespace fsdplan::cli {

/// Runs `work` on this rank and says whether it went well on all of them. An Error that every rank has is
/// thrown on the first one alone, any other one where it happened.
bool on_every_rank(Backend& backend, const std::function<void()>& work);

/// Runs `work`, in which ranks wait for each other: one that fails says why and stops the others too.
void or_stop_all(Backend& backend, const std::function<void()>& work);

}  // namespace fsdplan::cli
