#include <algorithm>
#include <filesystem>

#include "fsdplan/model.hpp"
#include "fsdplan/schedule.hpp"
#include "verify/case_report.hpp"
#include "verify/format.hpp"
#include "verify/runtime_case.hpp"
#include "verify/runtime_events.hpp"
#include "verify/runtime_units.hpp"
#include "verify/traffic.hpp"

// What FSDP1 and FSDP2 did in a training step, event by event (docs/formats.md).
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.runtime-golden";

/// The recording's model: in models/ beside it, or in that of the folder "runtime" next to its own.
std::string tree_of(const std::string& path, const std::string& model) {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    const std::array places{folder / "models", folder / ".." / "runtime" / "models"};
    for (const std::filesystem::path& place : places) {
        for (const char* ending : {".json", ".json.gz"}) {
            const std::filesystem::path file = place / (model + ending);
            if (std::filesystem::exists(file)) {
                return file.string();
            }
        }
    }
    throw Error(ErrorKind::input, path,
                "its module tree models/" + model + ".json is neither beside it nor in ../runtime/models");
}

class Comparison {
public:
    Comparison(const json::Value& recording, const TrainingJob& job, CaseReport& report)
        : recording_(recording),
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
                const bool is_gather = own.text.starts_with("all_gather");
                if (!own.after_computation && !(gathers_move_gradients_ && is_gather)) {
                    report_.compare(at_event + " (" + own.text + ") live bytes",
                                    shown(recorded_live - recorded_before),
                                    shown(own.live_bytes - got_before));
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
            compare_end(where, *mem, got);
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
    CaseReport& report_;
    // These were recorded on the CPU alone: FSDP1 then finds the offloaded gradients "on the device" when it
    // gathers, and begins a sum there. With a GPU it leaves them where they are.
    bool gathers_move_gradients_;
};

void replay(const json::Value& recording, const std::string& path, Verification& out) {
    const std::string name = std::filesystem::path(path).stem().string();
    const ModuleTree tree =
        flatten(import_model(tree_of(path, std::string(recording.at("model_tree").string()))));
    const RuntimeCase recorded = runtime_case(recording, tree);
    CaseReport report(name);
    const LoweringInput input{.tree = tree,
                              .plan = recorded.plan,
                              .job = recorded.job,
                              .unread = recorded.unread,
                              .rank = 0,
                              .iterations = static_cast<int>(recording.at("iterations").size())};
    const Schedule schedule = lower(input);
    report.compare("schedule", "", first_fault(schedule));
    compare_units(recording.at("units"), tree, recorded, report);
    Comparison(recording, recorded.job, report).compare(events_of(schedule, tree));
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
