#include "verify/zero_events.hpp"

#include <algorithm>

#include "schedule/zero3.hpp"
#include "verify/traffic.hpp"
#include "verify/words.hpp"

namespace fsdplan {
namespace {

using zero::Event;
using zero::Purpose;

/// The function of DeepSpeed that issues a call.
std::string_view issuer(const Event& event, const ZeroCase& run) {
    switch (event.purpose) {
        case Purpose::broadcast_parameter:
            return "_broadcast_model";
        case Purpose::partition_parameter:
            return "_zero_init_param";
        case Purpose::check_partition:
        case Purpose::external_parameter:
            return "_allgather_params_sequential";
        case Purpose::trace_length:
            return "assert_lst_len_same_as_other_ranks";
        case Purpose::trace_list:
            return "get_lst_from_rank0";
        case Purpose::gradients:
            return "allreduce_bucket";
        case Purpose::undivided_gradients:
            return run.options.stage == 3 ? "__avg_scatter_contiguous_grads"
                                          : "gradient_reduction_w_predivide";
        case Purpose::scattered_gradients:
            return "_torch_reduce_scatter_fn";
        case Purpose::overflow:
            return "has_overflow";
        case Purpose::norm:
            return run.options.stage == 0 ? "clip_grad_norm_" : "get_grad_norm_direct";
        case Purpose::updated_parameters:
            return "all_gather_into_tensor_dp_groups";
        case Purpose::fetch:
            return event.call.kind == CollectiveKind::all_reduce ? "_all_gather_coalesced"
                                                                 : "_dist_allgather_fn";
        case Purpose::persistent_parameters:
            return run.options.allgather_sequential ||
                           zero::layout3(run.parameters, run.options).persistent.size() == 1
                       ? "_allgather_params_sequential"
                       : "_allgather_params_coalesced";
    }
    return "";
}

std::string shown(const Event& event, std::string_view phase, const ZeroCase& run,
                  std::span<const std::string> module_paths) {
    if (event.kind == Event::Kind::microbatch_end) {
        return "microbatch_end step";
    }
    const CollectiveCall& call = event.call;
    std::vector<std::string> words;
    switch (call.kind) {
        case CollectiveKind::all_gather:
            words.emplace_back("all_gather_into_tensor");
            break;
        case CollectiveKind::reduce_scatter:
            words.emplace_back("reduce_scatter_tensor");
            break;
        default:
            words.emplace_back(name(call.kind));
    }
    words.emplace_back(phase);
    words.push_back(recorded_name(call.dtype));
    words.push_back(std::to_string(call.input_numel));
    if (call.kind == CollectiveKind::all_gather || call.kind == CollectiveKind::reduce_scatter) {
        words.push_back("-> " + std::to_string(call.output_numel));
    }
    if (event.destination >= 0) {
        words.push_back("dst " + std::to_string(event.destination));
    }
    words.push_back("by " + std::string(issuer(event, run)));
    if (event.purpose == Purpose::fetch) {
        words.push_back("module '" + module_paths[static_cast<std::size_t>(event.module)] + "'");
        words.emplace_back(event.prefetched ? "prefetched" : "needed");
        for (const std::int32_t row : event.parameters) {
            words.push_back(run.table.name_of(row));
        }
    }
    return joined(words);
}

std::string shown(const json::Value& row) {
    std::vector<std::string> words{std::string(row.at("e").string()), std::string(row.at("p").string())};
    if (const auto dtype = row.find("dt")) {
        words.push_back(recorded_name(recorded_dtype(*dtype)));
    }
    if (const auto numel = row.find("n")) {
        words.push_back(numel->shown());
    }
    if (const auto numel = row.find("in")) {
        words.push_back(numel->shown());
        words.push_back("-> " + row.at("out").shown());
    }
    if (const auto rank = row.find("dst")) {
        words.push_back("dst " + rank->shown());
    }
    if (const auto ranks = row.find("g")) {
        words.push_back("group of " + ranks->shown());
    }
    if (const auto function = row.find("by")) {
        words.push_back("by " + std::string(function->string()));
    }
    if (const auto module = row.find("u")) {
        words.push_back("module '" + std::string(module->string()) + "'");
        words.emplace_back(row.at("pf").integer(0, 1) == 1 ? "prefetched" : "needed");
    }
    if (const auto parameters = row.find("params")) {
        for (const std::string& parameter : parameters->strings()) {
            words.push_back(parameter);
        }
    }
    return joined(words);
}

std::vector<std::string> shown_rows(const json::Value& rows) {
    std::vector<std::string> lines;
    for (const json::Value row : rows.elements()) {
        const auto times = row.find("times");
        lines.insert(lines.end(), times ? static_cast<std::size_t>(times->integer(1, 1'000'000)) : 1U,
                     shown(row));
    }
    return lines;
}

}  // namespace

void compare_zero_construction(const json::Value& recording, const ZeroCase& run, CaseReport& report) {
    const std::vector<Event> events = run.options.stage == 3
                                          ? zero::zero3_construction(run.parameters, run.options)
                                          : zero::broadcast_parameters(run.parameters, run.options);
    std::vector<std::string> got;
    for (const Event& event : events) {
        got.push_back(shown(event, "init", run, {}));
    }
    compare_lines("construction", shown_rows(recording.at("construction")), got, report);
}

void compare_zero_iterations(const json::Value& recording, const ZeroCase& run,
                             const std::vector<std::vector<Event>>& training,
                             std::span<const std::string> module_paths, CaseReport& report) {
    const std::vector<json::Value> recorded = unfolded_iterations(recording);
    report.compare("iterations", std::to_string(recorded.size()), recording.at("case").at("iters").shown());
    for (std::size_t i = 0; i < std::min(recorded.size(), training.size()); ++i) {
        std::vector<std::string> got;
        for (const Event& event : training[i]) {
            got.push_back(shown(event,
                                event.pass == Pass::forward    ? "fwd"
                                : event.pass == Pass::backward ? "bwd"
                                                               : "step",
                                run, module_paths));
        }
        compare_lines("iteration " + std::to_string(i), shown_rows(recorded[i].at("events")), got, report);
    }
}

}  // namespace fsdplan
