#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>

#include "schedule/zero12.hpp"
#include "schedule/zero3.hpp"
#include "verify/format.hpp"
#include "verify/traffic.hpp"

// Everything that DeepSpeed sends in stages 0 to 3, recorded (docs/formats.md, "Recordings of ZeRO").
//
// Taken from the recording, since nothing in it allows to derive them: the order in which a plain model's
// gradients become ready, the order of module hooks, the members of a second optimizer group, and, in
// stage 3, which parameter another module than its own reads in its forward (the first iteration shows a
// gather that no hook has asked for).
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.zero-golden";

using zero::Event;
using zero::Purpose;

bool setting(const json::Value& settings, std::string_view key, bool otherwise) {
    const auto value = settings.find(key);
    return value ? value->boolean() : otherwise;
}

/// A number of elements; DeepSpeed takes 5e8 for 500000000.
std::int64_t size_setting(const json::Value& settings, std::string_view key, std::int64_t otherwise) {
    const auto value = settings.find(key);
    if (!value) {
        return otherwise;
    }
    const double number = value->number();
    if (!(number >= 0)) {
        value->fail("a number of elements");
    }
    constexpr double largest = 9e18;
    return value->is_integer() ? value->integer(0) : static_cast<std::int64_t>(std::min(number, largest));
}

constexpr std::array known_settings{
    "stage",
    "reduce_bucket_size",
    "allgather_bucket_size",
    "overlap_comm",
    "contiguous_gradients",
    "reduce_scatter",
    "use_multi_rank_bucket_allreduce",
    "round_robin_gradients",
    "parameter_alignment",
    "compute_grad_norm",
    "stage3_prefetch_bucket_size",
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
    "stage3_param_persistence_threshold",
    "stage3_model_persistence_threshold",
    "stage3_allgather_sequential",
    "stage3_use_all_reduce_for_fetch_params",
    "stage3_module_granularity_threshold",
    "sub_group_size",
};

class ZeroRecording {
public:
    ZeroRecording(const json::Value& file, std::string name)
        : file_(file), case_(file.at("case")), name_(std::move(name)) {}

    void replay(Verification& out) {
        std::string reason = unknown_setting();
        if (reason.empty()) {
            read_parameters();
            read_options();
            reason = missing_input();
        }
        if (!reason.empty()) {
            skip_case(name_, reason, out);
            return;
        }
        CaseReport report(name_);
        if (!compare_refusal(report)) {
            compare_construction(report);
            if (options_.stage == 3) {
                compare_stage3(report);
            } else {
                compare_stage12(report);
            }
        }
        report.close(out);
    }

private:
    std::string unknown_setting() const {
        for (const json::Value value : case_.at("zero").members()) {
            if (std::ranges::find(known_settings, value.key()) == known_settings.end()) {
                return "no rule is known for the setting " + std::string(value.key());
            }
        }
        return "";
    }

    void read_parameters() {
        std::int64_t total = 0;
        for (const json::Value row : file_.at("parameters").elements()) {
            const std::string_view name = row.at("name").string();
            if (!rows_.emplace(name, static_cast<std::int32_t>(parameters_.size())).second) {
                row.at("name").fail("a name that no other parameter has");
            }
            names_.emplace_back(name);
            total = checked_add(total, row.at("numel").integer(0, largest_total), row.at("numel").where());
            parameters_.push_back({.numel = row.at("numel").integer(0, largest_total),
                                   .trainable = setting(row, "requires_grad", true),
                                   .created = static_cast<std::int32_t>(parameters_.size())});
        }
        if (const auto order = file_.find("parameter_order")) {
            std::int32_t place = 0;
            for (const json::Value name : order->elements()) {
                parameters_[row_of(name)].created = place++;
            }
        }
        for (const json::Value name : file_.at("gradient_order").elements()) {
            ready_.push_back(static_cast<std::int32_t>(row_of(name)));
        }
        if (setting(case_, "groups", false)) {
            groups_known_ = read_groups();
        }
    }

    /// Which parameters form the second optimizer group.
    bool read_groups() {
        const auto layout = file_.find("layout");
        if (!layout || layout->is_null()) {
            return false;
        }
        if (const auto groups = layout->find("groups")) {
            std::int32_t number = 0;
            for (const json::Value group : groups->elements()) {
                for (const json::Value row : group.at("params").elements()) {
                    parameters_[row_of(*row.elements().begin())].group = number;
                }
                ++number;
            }
            return true;
        }
        // Groups follow each other, each in the order of the parameters: it drops where the second begins.
        std::size_t last = 0;
        std::int32_t number = 0;
        for (const json::Value sub_group : layout->at("sub_groups").elements()) {
            for (const json::Value name : sub_group.elements()) {
                const std::size_t row = row_of(name);
                number += row < last ? 1 : 0;
                last = row;
                parameters_[row].group = number;
            }
        }
        return true;
    }

    void read_options() {
        const json::Value zero = case_.at("zero");
        options_.stage = static_cast<int>(case_.at("stage").integer(0, 3));
        options_.dtype = recorded_dtype(case_.at("dtype"));
        options_.ranks = case_.at("world").integer(1, 1 << 20);
        options_.accumulate = case_.at("accum").integer(1, 1000);
        if (const auto dtype = case_.find("comm")) {
            options_.communication_dtype = recorded_dtype(*dtype);
        }
        if (const auto dtype = case_.find("grad_accum_dtype")) {
            options_.float32_accumulation = recorded_dtype(*dtype) == DType::float32;
        }
        if (const auto clipping = file_.at("ds_config").find("gradient_clipping")) {
            options_.clips_gradients = clipping->number() > 0;
        }
        options_.overlap_comm = setting(zero, "overlap_comm", options_.stage == 3);
        options_.contiguous_gradients = setting(zero, "contiguous_gradients", true);
        options_.reduce_scatter = setting(zero, "reduce_scatter", true);
        options_.use_multi_rank_bucket_allreduce = setting(zero, "use_multi_rank_bucket_allreduce", true);
        options_.round_robin_gradients = setting(zero, "round_robin_gradients", false);
        options_.parameter_alignment = setting(zero, "parameter_alignment", false);
        options_.allgather_sequential = setting(zero, "stage3_allgather_sequential", false);
        options_.use_all_reduce_for_fetch_params =
            setting(zero, "stage3_use_all_reduce_for_fetch_params", false);
        const auto read = [&](std::string_view key, std::int64_t& value) {
            value = size_setting(zero, key, value);
        };
        read("reduce_bucket_size", options_.reduce_bucket_size);
        read("stage3_prefetch_bucket_size", options_.prefetch_bucket_size);
        read("stage3_max_live_parameters", options_.max_live_parameters);
        read("stage3_max_reuse_distance", options_.max_reuse_distance);
        read("stage3_param_persistence_threshold", options_.param_persistence_threshold);
        read("stage3_model_persistence_threshold", options_.model_persistence_threshold);
        read("sub_group_size", options_.sub_group_size);
    }

    /// What a rule needs and the recording does not say, or "".
    std::string missing_input() const {
        const bool refused = file_.find("error") && !file_.find("iterations");
        if (!groups_known_ && !refused && options_.stage > 0) {
            return "the recording does not say which parameters form the second optimizer group";
        }
        if (options_.stage == 3 && !refused && !file_.find("hooks_last_iteration")) {
            return "the recording holds no order of module hooks, since the run broke off";
        }
        return "";
    }

    std::size_t row_of(const json::Value& name) const {
        const auto found = rows_.find(name.string());
        if (found == rows_.end()) {
            name.fail("the name of a parameter");
        }
        return static_cast<std::size_t>(found->second);
    }

    /// True when initialize() is refused, in which case nothing else is recorded.
    bool compare_refusal(CaseReport& report) const {
        std::string got = "none";
        if (options_.stage > 0 && options_.clips_gradients &&
            !setting(case_.at("zero"), "compute_grad_norm", true)) {
            got = "ValueError: zero_optimization.compute_grad_norm=false requires gradient_clipping=0";
        }
        const auto error = file_.find("error");
        report.compare("error",
                       error ? std::string(error->at("type").string()) + ": " +
                                   std::string(error->at("message").string())
                             : "none",
                       got);
        return error || got != "none";
    }

    // ---- showing

    const std::string& name_of(std::int32_t row) const { return names_[static_cast<std::size_t>(row)]; }

    /// The function of DeepSpeed that issues a call.
    std::string issuer(const Event& event) const {
        const bool alone =
            options_.allgather_sequential || zero::layout3(parameters_, options_).persistent.size() == 1;
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
                return options_.stage == 3 ? "__avg_scatter_contiguous_grads"
                                           : "gradient_reduction_w_predivide";
            case Purpose::scattered_gradients:
                return "_torch_reduce_scatter_fn";
            case Purpose::overflow:
                return "has_overflow";
            case Purpose::norm:
                return options_.stage == 0 ? "clip_grad_norm_" : "get_grad_norm_direct";
            case Purpose::updated_parameters:
                return "all_gather_into_tensor_dp_groups";
            case Purpose::fetch:
                return event.call.kind == CollectiveKind::all_reduce ? "_all_gather_coalesced"
                                                                     : "_dist_allgather_fn";
            case Purpose::persistent_parameters:
                return alone ? "_allgather_params_sequential" : "_allgather_params_coalesced";
        }
        return "";
    }

    std::string shown(const Event& event, std::string_view phase) const {
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
        words.push_back("by " + issuer(event));
        if (event.purpose == Purpose::fetch) {
            words.push_back("module '" + modules_by_row_[static_cast<std::size_t>(event.module)] + "'");
            words.emplace_back(event.prefetched ? "prefetched" : "needed");
            for (const std::int32_t row : event.parameters) {
                words.push_back(name_of(row));
            }
        }
        return joined(words);
    }

    std::vector<std::string> shown_all(const std::vector<Event>& events) const {
        std::vector<std::string> lines;
        for (const Event& event : events) {
            lines.push_back(shown(event, event.pass == Pass::forward    ? "fwd"
                                         : event.pass == Pass::backward ? "bwd"
                                                                        : "step"));
        }
        return lines;
    }

    static std::string shown_row(const json::Value& row) {
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

    static std::vector<std::string> shown_rows(const json::Value& rows) {
        std::vector<std::string> lines;
        for (const json::Value row : rows.elements()) {
            const auto times = row.find("times");
            lines.insert(lines.end(), times ? static_cast<std::size_t>(times->integer(1, 1'000'000)) : 1U,
                         shown_row(row));
        }
        return lines;
    }

    std::string shown_names(const std::vector<std::int32_t>& rows) const {
        std::vector<std::string> words;
        for (const std::int32_t row : rows) {
            words.push_back(name_of(row));
        }
        return joined(words);
    }

    // ---- comparing

    void compare_construction(CaseReport& report) const {
        const std::vector<Event> events = options_.stage == 3
                                              ? zero::zero3_construction(parameters_, options_)
                                              : zero::broadcast_parameters(parameters_, options_);
        std::vector<std::string> got;
        for (const Event& event : events) {
            got.push_back(shown(event, "init"));
        }
        compare_lines("construction", shown_rows(file_.at("construction")), got, report);
    }

    void compare_iterations(const std::vector<std::vector<Event>>& training, CaseReport& report) const {
        const std::vector<json::Value> recorded = unfolded_iterations(file_);
        report.compare("iterations", std::to_string(recorded.size()), case_.at("iters").shown());
        for (std::size_t i = 0; i < std::min(recorded.size(), training.size()); ++i) {
            compare_lines("iteration " + std::to_string(i), shown_rows(recorded[i].at("events")),
                          shown_all(training[i]), report);
        }
    }

    std::size_t iteration_count() const {
        return static_cast<std::size_t>(case_.at("iters").integer(1, 1000));
    }

    void compare_stage12(CaseReport& report) const {
        compare_iterations(
            std::vector(iteration_count(), zero::zero12_iteration(parameters_, options_, ready_)), report);
        const auto layout = file_.find("layout");
        if (!layout || layout->is_null()) {
            return;
        }
        const std::vector<zero::FlatGroup> groups = zero::stored_groups(parameters_, options_);
        const json::Value recorded = layout->at("groups");
        report.compare("groups", std::to_string(recorded.size()), std::to_string(groups.size()));
        std::size_t g = 0;
        for (const json::Value row : recorded.elements()) {
            if (g < groups.size()) {
                compare_group(row, groups[g], "group " + std::to_string(g), report);
            }
            ++g;
        }
    }

    void compare_group(const json::Value& row, const zero::FlatGroup& group, const std::string& where,
                       CaseReport& report) const {
        std::vector<std::string> expected;
        for (const json::Value parameter : row.at("params").elements()) {
            std::vector<std::string> words;
            for (const json::Value word : parameter.elements()) {
                words.push_back(word.is_string() ? std::string(word.string()) : word.shown());
            }
            expected.push_back(joined(words));
        }
        std::vector<std::string> got;
        for (std::size_t i = 0; i < group.parameters.size(); ++i) {
            const std::int32_t parameter = group.parameters[i];
            got.push_back(joined({name_of(parameter),
                                  std::to_string(parameters_[static_cast<std::size_t>(parameter)].numel),
                                  std::to_string(group.offsets[i])}));
        }
        compare_lines(where + " parameters", expected, got, report);
        const zero::Partition first = zero::partition_of(group, parameters_, 0);
        const auto compare = [&](const char* key, const std::string& value) {
            if (const auto number = row.find(key)) {
                report.compare(where + " " + key,
                               number->is_string() ? std::string(number->string()) : number->shown(), value);
            }
        };
        compare("flat_numel", std::to_string(group.flat_numel));
        compare("partition_numel", std::to_string(group.partition_numel));
        compare("padding_rank0", std::to_string(first.padding));
        compare("first_offset_rank0", std::to_string(first.first_offset));
        compare("dtype", recorded_name(options_.dtype));
        compare("master_dtype", recorded_name(DType::float32));
        if (const auto names = row.find("in_partition_rank0")) {
            report.compare(where + " in_partition_rank0", joined(names->strings()),
                           shown_names(first.parameters));
        }
    }

    void compare_layout3(CaseReport& report) const {
        const json::Value recorded = file_.at("layout");
        const zero::Layout3 layout = zero::layout3(parameters_, options_);
        std::vector<std::string> expected;
        for (const json::Value row : recorded.at("params").elements()) {
            expected.push_back(joined({std::string(row.at("name").string()), row.at("numel").shown(),
                                       row.at("partition").shown(), row.at("stored").shown(),
                                       row.at("persist").boolean() ? "persists" : "goes"}));
        }
        std::vector<std::string> got;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            const std::string part = std::to_string(layout.partition_numel[i]);
            const bool persists =
                std::ranges::find(layout.persistent, static_cast<std::int32_t>(i)) != layout.persistent.end();
            got.push_back(joined({names_[i], std::to_string(parameters_[i].numel), part, part,
                                  persists ? "persists" : "goes"}));
        }
        compare_lines("layout", expected, got, report);
        report.compare("persistent", joined(recorded.at("persistent").strings()),
                       shown_names(layout.persistent));
        expected.clear();
        got.clear();
        for (const json::Value names : recorded.at("sub_groups").elements()) {
            expected.push_back(joined(names.strings()));
        }
        for (const std::vector<std::int32_t>& sub_group : layout.sub_groups) {
            got.push_back(shown_names(sub_group));
        }
        compare_lines("sub-groups", expected, got, report);
        expected.clear();
        got.clear();
        for (const json::Value numel : recorded.at("sub_group_numel").elements()) {
            expected.push_back(numel.shown());
        }
        for (const std::int64_t numel : layout.sub_group_numel) {
            got.push_back(std::to_string(numel));
        }
        compare_lines("sub-group elements", expected, got, report);
    }

    // ---- stage 3

    std::int32_t module_of(std::string_view path) {
        const auto [found, is_new] =
            modules_.emplace(path, static_cast<std::int32_t>(modules_by_row_.size()));
        if (is_new) {
            modules_by_row_.emplace_back(path);
        }
        return found->second;
    }

    /// Modules with hooks and what is registered in and below them.
    std::vector<zero::Module> read_modules() {
        std::vector<zero::Module> modules(modules_by_row_.size());
        const auto place = [&](std::string_view path, std::int32_t row) {
            const std::size_t dot = path.rfind('.');
            std::string_view owner = dot == std::string_view::npos ? "" : path.substr(0, dot);
            bool direct = true;
            while (true) {
                if (const auto found = modules_.find(owner); found != modules_.end()) {
                    zero::Module& module = modules[static_cast<std::size_t>(found->second)];
                    module.below.push_back(row);
                    if (direct) {
                        module.parameters.push_back(row);
                    }
                }
                if (owner.empty()) {
                    return;
                }
                direct = false;
                const std::size_t end = owner.rfind('.');
                owner = end == std::string_view::npos ? "" : owner.substr(0, end);
            }
        };
        for (std::size_t i = 0; i < names_.size(); ++i) {
            place(names_[i], static_cast<std::int32_t>(i));
        }
        if (const auto aliases = file_.find("aliases")) {
            for (const json::Value alias : aliases->members()) {
                place(alias.key(), static_cast<std::int32_t>(row_of(alias)));
            }
        }
        if (const auto leaves = file_.find("leaf_modules")) {
            for (const json::Value leaf : leaves->elements()) {
                if (const auto found = modules_.find(leaf.string()); found != modules_.end()) {
                    modules[static_cast<std::size_t>(found->second)].leaf = true;
                }
            }
        }
        return modules;
    }

    std::vector<zero::Hook> read_hooks() {
        std::vector<zero::Hook> hooks;
        for (const json::Value row : file_.at("hooks_last_iteration").elements()) {
            const std::string_view text = row.string();
            if (text.size() < 3 || (text[0] != '+' && text[0] != '-') || (text[1] != 'f' && text[1] != 'b')) {
                row.fail("a hook, such as \"+f layers.0\"");
            }
            hooks.push_back(
                {.module = module_of(text.substr(3)), .enter = text[0] == '+', .backward = text[1] == 'b'});
        }
        mark_recomputed(hooks);
        return hooks;
    }

    /// Tells the forwards that checkpoints repeat during backward from the backwards: the recorder writes
    /// both alike. A module that is entered more often than in forward is also recomputed. A repeated forward
    /// begins where a module is entered that does not lie within the one whose backward runs, and may break
    /// off before its modules end.
    void mark_recomputed(std::vector<zero::Hook>& hooks) const {
        struct Count {
            std::int64_t entries = 0;  // that belong to no backward
            std::int64_t exits = 0;
        };
        std::vector<Count> more(modules_by_row_.size());
        const auto count_of = [&](const zero::Hook& hook) -> Count& {
            return more[static_cast<std::size_t>(hook.module)];
        };
        for (const zero::Hook& hook : hooks) {
            if (hook.backward) {
                ++(hook.enter ? count_of(hook).entries : count_of(hook).exits);
            } else if (hook.enter) {
                --count_of(hook).entries;
                --count_of(hook).exits;
            }
        }
        std::vector<std::int32_t> backward;  // modules in their backward, outer ones first
        std::vector<std::int32_t> repeated;  // in a repeated forward
        bool recomputing = false;
        for (zero::Hook& hook : hooks) {
            if (!hook.backward) {
                continue;
            }
            const auto is_in = [&](const std::vector<std::int32_t>& modules) {
                return std::ranges::find(modules, hook.module) != modules.end();
            };
            if (hook.enter) {
                recomputing = count_of(hook).entries > 0 &&
                              (recomputing || is_in(backward) || !lies_within(hook.module, backward));
                hook.recompute = recomputing;
                count_of(hook).entries -= recomputing ? 1 : 0;
                (recomputing ? repeated : backward).push_back(hook.module);
            } else if (count_of(hook).exits > 0 && is_in(repeated)) {
                hook.recompute = true;
                --count_of(hook).exits;
                std::erase(repeated, hook.module);
            } else {
                std::erase(backward, hook.module);
            }
        }
    }

    bool lies_within(std::int32_t module, const std::vector<std::int32_t>& around) const {
        if (around.empty()) {
            return true;
        }
        const std::string& inner = modules_by_row_[static_cast<std::size_t>(module)];
        const std::string& outer = modules_by_row_[static_cast<std::size_t>(around.back())];
        return outer.empty() || inner.starts_with(outer + ".");
    }

    /// Gathers of the first forward that no hook has asked for: the module around reads a parameter of one
    /// that it is about to call, which then need not fetch it.
    std::vector<zero::ExternalRead> read_external(const std::vector<zero::Module>& modules,
                                                  const std::vector<zero::Hook>& hooks) const {
        std::vector<zero::ExternalRead> reads;
        std::vector<json::Value> rows;
        const std::vector<json::Value> iterations = unfolded_iterations(file_);
        if (iterations.empty()) {
            return reads;
        }
        for (const json::Value row : iterations.front().at("events").elements()) {
            if (row.at("p").string() == "fwd" && row.find("in")) {
                rows.push_back(row);
            }
        }
        std::vector<std::int32_t> around;
        auto row = rows.begin();
        for (std::size_t h = 0; h < hooks.size() && row != rows.end(); ++h) {
            const zero::Hook& hook = hooks[h];
            if (hook.backward) {
                break;
            }
            if (!hook.enter) {
                std::erase(around, hook.module);
                continue;
            }
            const std::string& path = modules_by_row_[static_cast<std::size_t>(hook.module)];
            const zero::Module& module = modules[static_cast<std::size_t>(hook.module)];
            while (row != rows.end() && !row->find("u") && !around.empty()) {
                const std::int64_t part = row->at("in").integer();
                const auto read = std::ranges::find_if(module.parameters, [&](std::int32_t p) {
                    return ceil_div(parameters_[static_cast<std::size_t>(p)].numel, options_.ranks) == part;
                });
                if (read == module.parameters.end()) {
                    break;
                }
                reads.push_back({.hook = h, .reader = around.back(), .parameter = *read});
                ++row;
            }
            while (row != rows.end() && row->find("u") && row->at("u").string() == path) {
                ++row;
            }
            around.push_back(hook.module);
        }
        return reads;
    }

    void compare_stage3(CaseReport& report) {
        compare_layout3(report);
        zero::MicroBatch micro_batch{.hooks = read_hooks()};
        const std::vector<zero::Module> modules = read_modules();
        micro_batch.reads = read_external(modules, micro_batch.hooks);
        micro_batch.gradients = zero::place_gradients(modules, micro_batch.hooks, ready_);
        compare_iterations(zero::zero3_training(parameters_, modules, options_, micro_batch,
                                                static_cast<std::int64_t>(iteration_count())),
                           report);
    }

    json::Value file_;
    json::Value case_;
    std::string name_;
    std::vector<std::string> names_;
    std::map<std::string, std::int32_t, std::less<>> rows_;
    std::vector<zero::Parameter> parameters_;
    std::vector<std::int32_t> ready_;
    zero::Options options_;
    bool groups_known_ = true;
    std::map<std::string, std::int32_t, std::less<>> modules_;
    std::vector<std::string> modules_by_row_;
};

void replay(const json::Value& recording, const std::string& path, Verification& out) {
    ZeroRecording(recording, std::filesystem::path(path).filename().string()).replay(out);
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo zero_recordings;
constinit const RecordingInfo zero_recordings{
    .name = "zero",
    .help = "collectives and partitions of DeepSpeed ZeRO (JSON with the format fsdplan.zero-golden)",
    .recognises = of_format<format>,
    .replay = replay_json<replay>,
};

}  // namespace builtin::recording
}  // namespace fsdplan
