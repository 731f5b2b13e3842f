#include <benchmark/benchmark.h>

#include "base/heap.hpp"

// As the program runs, so that the figures are its own.
int main(int argc, char** argv) {
    fsdplan::keep_freed_memory();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
        return 1;
    }
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
}
