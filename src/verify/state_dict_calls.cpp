#include "verify/state_dict_calls.hpp"

#include <algorithm>
#include <array>

namespace fsdplan {
namespace {

using enum StateRequest::Subject;
using enum StateRequest::Direction;
using enum StateRequest::Form;

// clang-format off
constexpr std::array recorded_calls{
    RecordedCall{"model_full", {model, save, full}},
    RecordedCall{"model_full_rank0", {model, save, full, false, true}},
    RecordedCall{"model_sharded", {model, save, sharded}},
    RecordedCall{"model_local", {model, save, local}},
    RecordedCall{"optim_full", {optimizer, save, full}},
    RecordedCall{"optim_full_cpu", {optimizer, save, full, true}},
    RecordedCall{"optim_full_rank0", {optimizer, save, full, false, true}},
    RecordedCall{"optim_full_rank0_cpu", {optimizer, save, full, true, true}},
    RecordedCall{"optim_sharded", {optimizer, save, sharded}},
    RecordedCall{"load_model_full", {model, load, full}},
    RecordedCall{"load_model_sharded", {model, load, sharded}},
    RecordedCall{"load_model_local", {model, load, local}},
    RecordedCall{"load_optim_full", {optimizer, load, full}},
    RecordedCall{"load_optim_full_rank0", {optimizer, load, full, false, true}},
    RecordedCall{"load_optim_sharded", {optimizer, load, sharded}},
    RecordedCall{"v2_raw", {model, save, sharded}},
    RecordedCall{"v2_model_full", {model, save, full}},
    RecordedCall{"v2_model_full_cpu", {model, save, full, true}},
    RecordedCall{"v2_optim_full", {optimizer, save, full}},
    RecordedCall{"v2_optim_full_cpu", {optimizer, save, full, true}},
    RecordedCall{"v2_load_full", {model, load, full}},
    RecordedCall{"v2_load_full_bcast", {model, load, full, false, true}},
};

constexpr std::array recorded_dcp_calls{
    RecordedDcpCall{"dcp_save"},
    RecordedDcpCall{"dcp_save_fsdp1"},
    RecordedDcpCall{"dcp_save_threads", 3},
    RecordedDcpCall{.name = "dcp_load", .loads = true},
    RecordedDcpCall{.name = "dcp_async_thread", .stages = true, .whole_state = true},
    RecordedDcpCall{.name = "dcp_async_writer", .stages = true},
};
// clang-format on

template <typename Calls>
auto* find_call(const Calls& calls, std::string_view name) {
    const auto found = std::ranges::find(calls, name, [](const auto& call) { return call.name; });
    return found == calls.end() ? nullptr : &*found;
}

}  // namespace

const RecordedCall* find_recorded_call(std::string_view name) {
    return find_call(recorded_calls, name);
}

const RecordedDcpCall* find_recorded_dcp_call(std::string_view name) {
    return find_call(recorded_dcp_calls, name);
}

}  // namespace fsdplan
