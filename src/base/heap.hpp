#pragma once

namespace fsdplan {

/// Lets the process keep the memory that it frees. Simulations take and drop tables of some megabytes
/// hundreds of times; handed back to the system in between, their pages cost as much as the work on them. For
/// programs, not for a library in somebody else's process. Does nothing outside the GNU C library.
void keep_freed_memory();

}  // namespace fsdplan
