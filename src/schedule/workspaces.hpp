#pragma once

#include "schedule/emitter.hpp"

namespace fsdplan {

/// What cuBLAS keeps: a thread's first matrix product takes it, and autograd goes backward in a thread of its
/// own.
class Workspaces {
public:
    Workspaces(std::int64_t bytes, Emitter& emit) : bytes_(bytes), emit_(emit) {}

    void before_product(std::int64_t flops) {
        std::int32_t& workspace = emit_.pass == Pass::forward ? forward_ : backward_;
        if (flops > 0 && workspace < 0) {
            workspace = emit_.buffer({.bytes = bytes_, .category = Category::workspace});
            emit_.allocate(workspace);
        }
    }

private:
    std::int64_t bytes_;
    Emitter& emit_;
    std::int32_t forward_ = -1;
    std::int32_t backward_ = -1;
};

}  // namespace fsdplan
