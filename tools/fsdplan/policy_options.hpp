#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fsdplan/wrap.hpp"

namespace CLI {
class App;
}

namespace fsdplan::cli {

/// Which modules become units.
struct PolicyOptions {
    std::vector<std::string> policy;
    std::optional<std::vector<std::string>> force_leaf;
    std::optional<std::vector<std::string>> exclude;
    std::vector<std::string> ignore;

    void declare(CLI::App& app, const std::string& help);
    /// The policy; `size` without a number when none was given.
    PolicySpec spec(const ModuleTree& tree) const;
    /// True when min_num_params was left open: no policy at all, or `size` without a number.
    bool leaves_threshold_open() const;
    /// The ignored modules and parameters. Throws Error(input) at --ignore for a glob that matches nothing.
    WrapOptions wrap_options(const ModuleTree& tree) const;
    /// fsdp1 for policies that only its constructor takes.
    std::string default_runtime() const;
};

}  // namespace fsdplan::cli
