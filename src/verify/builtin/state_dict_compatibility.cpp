#include <algorithm>
#include <filesystem>

#include "fsdplan/compatibility.hpp"
#include "verify/case_report.hpp"
#include "verify/format.hpp"
#include "verify/state_dict_model.hpp"
#include "verify/words.hpp"

// Who can load what: pairs of saves and loads that were really made (docs/formats.md, "Recordings of
// checkpoints").
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.state-dict-compat";

bool mixes_requires_grad(const StateLayout& layout) {
    return std::ranges::any_of(layout.units, [&](const StateUnit& unit) {
        return std::ranges::any_of(unit.tensors, [&](std::size_t t) {
            return layout.tensors[t].trainable != layout.tensors[unit.tensors.front()].trainable;
        });
    });
}

CheckpointSide side_of(const json::Value& side, const json::Value& defaults,
                       const RecordedStateModel& model) {
    const StateDictKnobs knobs = state_dict_knobs(side, defaults);
    CheckpointSide out{.layout = model.layout(knobs),
                       .optimizer = knobs.optimizer,
                       .strict = knobs.strict,
                       .offload = knobs.offload,
                       .rank0_only = knobs.rank0_only,
                       .checkpoint_wrapper = knobs.ckpt_wrap,
                       .device = StateDevice::cpu};
    out.mixed_requires_grad = mixes_requires_grad(out.layout);
    return out;
}

/// Numbers as the recording has them, or "none".
std::string recorded_list(const json::Value& row, std::string_view key) {
    const auto list = row.given(key);
    return list ? joined(*list) : "none";
}

std::string recorded_word(const json::Value& row, std::string_view key) {
    const auto word = row.given(key);
    return word ? word_of(*word) : "none";
}

std::string or_none(const std::string& word) {
    return word.empty() ? "none" : word;
}

std::string sorted_words(std::vector<std::string> words) {
    std::ranges::sort(words);
    return or_none(joined(words));
}

void compare(const json::Value& cell, const Compatibility& got, CaseReport& report) {
    report.compare("result", recorded_word(cell, "result"), std::string(name(got.outcome)));
    report.compare("stage", recorded_word(cell, "stage"), or_none(got.stage));
    report.compare("error class", recorded_word(cell, "error_class"), or_none(got.error_class));
    report.compare("cause class", recorded_word(cell, "cause_class"), or_none(got.cause_class));
    report.compare("code", recorded_word(cell, "code"), or_none(got.code));
    report.compare("ranks raising", recorded_list(cell, "ranks_raising"),
                   got.ranks.empty() ? "none" : joined(got.ranks));
    const auto kinds = cell.given("wrong_kinds");
    report.compare("wrong kinds", kinds ? sorted_words(kinds->strings()) : "none",
                   sorted_words(got.wrong_kinds));
    const auto casts = cell.given("casts");
    report.compare("casts", casts ? sorted_words(casts->strings()) : "none", sorted_words(got.casts));
    if (const auto wrong = cell.given("model_tensors_wrong")) {
        report.compare("model tensors wrong", wrong->shown(), std::to_string(got.model_wrong));
        report.compare("optimizer tensors wrong", cell.at("optim_tensors_wrong").shown(),
                       std::to_string(got.optimizer_wrong));
    }
}

void replay_cell(const json::Value& cell, const json::Value& defaults, const RecordedStateModel& model,
                 const std::string& case_name, Verification& out) {
    const SaveRoute* save = find_save_route(cell.at("save").at("api").string());
    const LoadRoute* load = find_load_route(cell.at("load").at("api").string());
    if (save == nullptr || load == nullptr) {
        const json::Value unknown = cell.at(save == nullptr ? "save" : "load").at("api");
        return skip_case(case_name, "a route that is not known: " + std::string(unknown.string()), out);
    }
    CaseReport report(case_name);
    compare(cell,
            compatibility(side_of(cell.at("save"), defaults, model), *save,
                          side_of(cell.at("load"), defaults, model), *load),
            report);
    report.close(out);
}

void replay(const json::Value& recording, const std::string& path, Verification& out) {
    const std::string file = std::filesystem::path(path).stem().string();
    const RecordedStateModel model(recording.at("model"));
    const json::Value defaults = recording.at("defaults");
    std::size_t number = 0;
    for (const json::Value cell : recording.at("cells").elements()) {
        const std::string case_name = file + " " + std::to_string(number++) + " " +
                                      std::string(cell.at("save").at("api").string()) + " => " +
                                      std::string(cell.at("load").at("api").string());
        replay_cell(cell, defaults, model, case_name, out);
    }
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo state_dict_compatibility;
constinit const RecordingInfo state_dict_compatibility{
    .name = "state-dict-compatibility",
    .help = "which checkpoint loads into what (JSON with the format fsdplan.state-dict-compat)",
    .recognises = of_format<format>,
    .replay = replay_json<replay>,
};

}  // namespace builtin::recording
}  // namespace fsdplan
