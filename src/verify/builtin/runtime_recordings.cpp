#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "fsdplan/model.hpp"
#include "fsdplan/operators.hpp"
#include "fsdplan/schedule.hpp"
#include "planner/training_schedule.hpp"
#include "verify/case_report.hpp"
#include "verify/format.hpp"
#include "verify/nearby_file.hpp"
#include "verify/runtime_case.hpp"
#include "verify/runtime_events.hpp"
#include "verify/runtime_units.hpp"
#include "verify/runtime_unread.hpp"
#include "verify/traffic.hpp"

// What FSDP1 and FSDP2 did in a training step, event by event (docs/formats.md).
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.runtime-golden";

/// The recording's model: in models/ beside it, or in that of the folder "runtime" next to its own.
std::string tree_of(const std::string& path, const std::string& model) {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (const auto file = json_file_in({folder / "models", folder / ".." / "runtime" / "models"}, model)) {
        return file->string();
    }
    throw Error(ErrorKind::input, path,
                "its module tree models/" + model + ".json is neither beside it nor in ../runtime/models");
}

class Comparison {
public:
    /// `computed`: what the model computes is known too, and with it the peak.
    Comparison(const json::Value& recording, const TrainingJob& job, bool computed, CaseReport& report)
        : recording_(recording),
          computed_(computed),
          report_(report),
          gathers_move_gradients_(job.offload && job.runtime == "fsdp1") {}

    void compare(const std::vector<RuntimeIteration>& got) {
        std::size_t i = 0;
        for (const json::Value iteration : unfolded_iterations(recording_)) {
            compare(i, iteration, got[i]);
            ++i;
        }
    }

private:
    void compare(std::size_t i, const json::Value& recorded, const RuntimeIteration& got) {
        const std::string where = "iteration " + std::to_string(i);
        std::size_t e = 0;
        const auto mem = recorded.find("mem");
        std::int64_t recorded_before = mem ? mem->at("start").integer() : 0;
        std::int64_t got_before = got.start_bytes;
        for (const json::Value event : recorded.at("events").elements()) {
            const std::string at_event = where + " event " + std::to_string(e);
            if (e >= got.events.size()) {
                report_.compare(at_event, text_of(event), "nothing");
                return;
            }
            const RuntimeEvent& own = got.events[e];
            report_.compare(at_event, text_of(event), own.text);
            if (text_of(event) != own.text) {
                return;  // what follows a first difference differs as a matter of course
            }
            if (const auto live = event.find("m")) {
                const std::int64_t recorded_live = (*live->elements().begin()).integer();
                const bool moves_gradients = gathers_move_gradients_ && own.text.starts_with("all_gather");
                if (!own.after_computation && !lets_go_of_output(own) && !moves_gradients) {
                    compare_change(at_event + " (" + own.text + ") live bytes",
                                   recorded_live - recorded_before, own.live_bytes - got_before);
                }
                recorded_before = recorded_live;
                got_before = own.live_bytes;
            }
            ++e;
        }
        if (e < got.events.size()) {
            report_.compare(where + " event " + std::to_string(e), "nothing", got.events[e].text);
        }
        if (mem) {
            if (computed_) {
                compare_peak(where, *mem, got);
            }
            compare_end(where, *mem, got);
        }
    }

    /// The loop forgets what the forward returned; an export has that behind the forward's last operator.
    bool lets_go_of_output(const RuntimeEvent& event) const {
        return computed_ && event.text.starts_with("loss ");
    }

    void compare_change(const std::string& where, std::int64_t recorded, std::int64_t got) {
        // When the loop lets go of the loss and of the gradient that backward begins with is its own affair.
        constexpr std::int64_t scalars = 2 * sizeof(float);
        if (!computed_ || std::abs(got - recorded) > scalars) {
            report_.compare(where, shown(recorded), shown(got));
        }
    }

    /// A recorder looks on at every operator, and then autograd adds no gradients in place as it does in
    /// training: the recorded peak may be a little too high.
    void compare_peak(const std::string& where, const json::Value& mem, const RuntimeIteration& got) {
        const std::int64_t recorded = mem.at("peak").integer() - mem.at("start").integer();
        const std::int64_t own = got.peak_bytes - got.start_bytes;
        if (own < recorded - recorded / 20 || own > recorded + recorded / 100) {
            report_.compare(where + " peak bytes", std::to_string(recorded), std::to_string(own));
        }
    }

    /// Sums over categories, ours beside the recorder's. What a gradient is called depends on what the
    /// recorder saw last of it, so gradients are compared as one; the other names are exact
    /// (docs/formats.md).
    void compare_end(const std::string& where, const json::Value& mem, const RuntimeIteration& got) {
        const json::Value recorded = mem.at("end_by");
        const auto sum = [&](std::initializer_list<std::string_view> keys) {
            std::int64_t bytes = 0;
            for (const std::string_view key : keys) {
                const auto value = recorded.find(key);
                bytes += value ? value->integer() : 0;
            }
            return bytes;
        };
        const auto own = [&](std::initializer_list<Category> categories) {
            std::int64_t bytes = 0;
            for (const Category category : categories) {
                bytes += got.end_by_category[static_cast<std::size_t>(category)];
            }
            return bytes;
        };
        const auto same = [&](std::string_view what, std::int64_t expected, std::int64_t bytes) {
            report_.compare(where + " end " + std::string(what) + " bytes", std::to_string(expected),
                            std::to_string(bytes));
        };
        same("param", sum({"param"}), own({Category::shard}));
        same("opt", sum({"opt"}), own({Category::optimizer}));
        same("unsharded", sum({"unsharded"}), own({Category::unsharded}));
        same("post_fwd_shard", sum({"post_fwd_shard"}), own({Category::post_forward_shard}));
        same("mp_shard", sum({"mp_shard"}), own({Category::low_precision_shard}));
        same("gather", sum({"ag", "ag_in"}), own({Category::gather_buffer, Category::gather_input}));
        // Buffers that were cast count as act.
        same("gradients and buffers",
             sum({"sgrad", "ugrad", "rs", "rs_in", "rs_out", "tmp", "act", "opt_tmp", "buf"}),
             own({Category::gradient_shard, Category::gradient, Category::reduce_input,
                  Category::reduce_output, Category::module_buffer, Category::temporary,
                  Category::optimizer_temporary}));
    }

    static std::string shown(std::int64_t change) { return (change < 0 ? "" : "+") + std::to_string(change); }

    json::Value recording_;
    bool computed_;
    CaseReport& report_;
    // These were recorded on the CPU alone: FSDP1 then finds the offloaded gradients "on the device" when it
    // gathers, and begins a sum there. With a GPU it leaves them where they are.
    bool gathers_move_gradients_;
};

RecordedRun run_of(const json::Value& recording) {
    constexpr std::int64_t most_ranks = 1 << 24U;
    const json::Value engine = recording.at("case").at("engine");
    if (engine.string() != "fsdp1" && engine.string() != "fsdp2") {
        engine.fail("\"fsdp1\" or \"fsdp2\"");
    }
    return {.runtime = std::string(engine.string()),
            .torch = std::string(recording.at("versions").at("torch").string()),
            .world = recording.at("world").integer(1, most_ranks)};
}

/// What the model computes, when its file is an export of the recorded computation; else empty.
OperatorGraph operators_of(const ModelGraph& model, const ModuleTree& tree, const RuntimeCase& recorded) {
    if (!model.recorded_batch) {
        return {};
    }
    const std::optional<ModuleTree> tracked = runtime(recorded.job.runtime).tracks_whole_units
                                                  ? tracked_by_units(tree, recorded.plan)
                                                  : std::nullopt;
    return model.operators(tracked ? *tracked : tree, {.batch = *model.recorded_batch,
                                                       .sequence = model.longest_sequence.value_or(1),
                                                       .compute = recorded.job.param_dtype});
}

void replay(const json::Value& recording, const std::string& path, Verification& out) {
    const std::string name = std::filesystem::path(path).stem().string();
    const ModelGraph model = import_model(tree_of(path, std::string(recording.at("model_tree").string())));
    const ModuleTree tree = flatten(model);
    const RecordedRun run = run_of(recording);
    const RuntimeCase recorded = runtime_case(recording.at("case"), tree, run);
    const std::vector<TensorIndex> unread = run.runtime == "fsdp2"
                                                ? unread_parameters(recording, tree, recorded.plan)
                                                : std::vector<TensorIndex>{};
    const OperatorGraph operators = operators_of(model, tree, recorded);
    CaseReport report(name);
    const LoweringInput input{.tree = tree,
                              .plan = recorded.plan,
                              .job = recorded.job,
                              .operators = operators.calls.empty() ? nullptr : &operators,
                              .unread = unread,
                              .rank = 0,
                              .iterations = static_cast<int>(recording.at("iterations").size())};
    const Schedule schedule = lower(input);
    report.compare("schedule", "", first_fault(schedule));
    compare_units(recording.at("units"), tree, recorded, report);
    Comparison(recording, recorded.job, !operators.calls.empty(), report).compare(events_of(schedule, tree));
    report.close(out);
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo runtime_recordings;
constinit const RecordingInfo runtime_recordings{
    .name = "runtime",
    .help = "steps of FSDP1 and FSDP2 (*.json, format fsdplan.runtime-golden)",
    .recognises = of_format<format>,
    .replay = replay_json<replay>,
};

}  // namespace builtin::recording
}  // namespace fsdplan
