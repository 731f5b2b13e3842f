#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fsdplan/wrap.hpp"

namespace fsdplan::cli {

class Arguments;

/// Which modules become units.
struct PolicyOptions {
    std::string default_policy;  ///< what no --policy at all means, as --policy would say it
    std::vector<std::string> policies{};
    std::optional<std::vector<std::string>> force_leaf{};
    std::optional<std::vector<std::string>> exclude{};
    std::vector<std::string> ignore{};

    void declare(Arguments& arguments);
    PolicySpec spec(const ModuleTree& tree) const;
    /// True when min_num_params was left open: `size` without a number.
    bool leaves_threshold_open() const;
    /// The ignored modules and parameters. Throws Error(input) at --ignore for a glob that matches nothing.
    WrapOptions wrap_options(const ModuleTree& tree) const;
    /// fsdp1 for policies that only its constructor takes, else fsdp2.
    std::string default_runtime() const;

private:
    std::vector<std::string> asked_for() const;
};

}  // namespace fsdplan::cli
