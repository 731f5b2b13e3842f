#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fsdplan/frontend.hpp"

namespace fsdplan::frontend {

/// The answer; throws Error(input) at `file` where accelerate stops with an exception.
template <typename T>
T or_error(OrRefused<T> answer, const std::string& file) {
    if (const auto* error = std::get_if<FrontendError>(&answer)) {
        throw Error(ErrorKind::input, file,
                    "accelerate stops with " + error->error_type + ": " + error->message);
    }
    return std::get<T>(std::move(answer));
}

/// Fills a plan with what Accelerator.prepare() makes of a model under this plugin. `mixed_precision`: "no",
/// "bf16", …. Throws Error(input) at `file` where it raises.
void prepare_plan(const AcceleratePlugin& plugin, std::string_view mixed_precision,
                  const FrontendQuestion& about, const std::string& file, FrontendPlan& out);

/// What the plugin was constructed with, by accelerate's names without their prefix "fsdp_".
std::vector<std::pair<std::string, std::string>> plugin_settings(const AcceleratePlugin& plugin,
                                                                 const ModelGraph& model);

}  // namespace fsdplan::frontend
