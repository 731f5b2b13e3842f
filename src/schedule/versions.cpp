#include <array>

#include "fsdplan/job.hpp"

// All that differs between versions of PyTorch.
namespace fsdplan {
namespace {

constexpr std::array<TorchBehaviour, 2> versions{{
    {.version = "2.13",
     .reduces_in_original_dtype = false,
     .widens_gradients_early = false,
     .releases_gather_before_copy_out = false,
     .keeps_stray_gathers = false,
     .summary = "fully_shard reduces in param_dtype when only that is given, widens gradients all at once "
                "when a unit's are complete, and gives the gather buffer of the unit before back after it "
                "copies out"},
    {.version = "2.15",
     .reduces_in_original_dtype = true,
     .widens_gradients_early = true,
     .releases_gather_before_copy_out = true,
     .keeps_stray_gathers = true,
     .summary =
         "fully_shard reduces in the original dtype when only param_dtype is given, widens gradients as "
         "they arrive, and gives the gather buffer of the unit before back before it copies out"},
}};

static_assert(versions.back().version == newest_torch);

}  // namespace

std::span<const TorchBehaviour> torch_versions() {
    return versions;
}

const TorchBehaviour& torch_behaviour(std::string_view version) {
    const std::size_t first_dot = version.find('.');
    const std::size_t second_dot = version.find('.', first_dot == std::string_view::npos ? 0 : first_dot + 1);
    const std::string_view minor = version.substr(0, second_dot);
    std::string known;
    for (const TorchBehaviour& behaviour : versions) {
        if (behaviour.version == minor) {
            return behaviour;
        }
        known += (known.empty() ? "" : ", ") + std::string(behaviour.version);
    }
    throw Error(ErrorKind::input, "--torch",
                "unknown version \"" + std::string(version) + "\"; expected one of " + known);
}

}  // namespace fsdplan
