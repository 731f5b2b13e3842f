#pragma once

#include <string>
#include <vector>

#include "fsdplan/wrap.hpp"

namespace fsdplan::cli {

class Arguments;

/// Which boundaries are asked for, and of which runtime.
struct PolicyOptions {
    std::vector<std::string> policies;
    std::vector<std::string> force_leaf;
    std::vector<std::string> exclude;
    std::vector<std::string> ignore;
    std::string runtime;
    bool use_orig_params = false;

    void declare(Arguments& arguments);

    /// The policy in its own terms; `absent` when none was given.
    PolicySpec written(const ModuleTree& tree, const std::string& absent) const;
    /// True for fully_shard: by --runtime, else unless a policy is asked for that only FSDP1 has.
    bool is_fsdp2() const;
    /// The policy in the runtime's own terms: for fully_shard its boundaries as calls. `blocks` when none is
    /// given.
    PolicySpec spec(const ModuleTree& tree, const WrapOptions& options) const;
    /// use_orig_params and what is ignored; the caller adds the mesh and mixed precision.
    WrapOptions wrap_options(const ModuleTree& tree) const;
};

}  // namespace fsdplan::cli
