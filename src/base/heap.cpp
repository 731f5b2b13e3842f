#include "base/heap.hpp"

#include <cstdlib>  // tells which C library it is

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace fsdplan {

void keep_freed_memory() {
#ifdef __GLIBC__
    constexpr int kept_bytes = 512 << 20;
    constexpr int largest_on_heap = 32 << 20;  // more is refused
    mallopt(M_TRIM_THRESHOLD, kept_bytes);
    mallopt(M_MMAP_THRESHOLD, largest_on_heap);
#endif
}

}  // namespace fsdplan
