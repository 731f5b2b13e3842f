#include <algorithm>
#include <filesystem>

#include "verify/case_report.hpp"
#include "verify/format.hpp"
#include "verify/nearby_file.hpp"
#include "verify/state_dict_calls.hpp"
#include "verify/state_dict_model.hpp"
#include "verify/words.hpp"

// What calls of state dicts send, allocate, return and write, recorded (docs/formats.md, "Recordings of
// checkpoints").
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.state-dict-cost";

/// Collectives as text, equal neighbours counted.
class EventLines {
public:
    void add(std::string_view operation, std::int64_t input, std::int64_t output) {
        std::string line =
            std::string(operation) + " " + std::to_string(input) + " -> " + std::to_string(output);
        if (!lines_.empty() && lines_.back().first == line) {
            ++lines_.back().second;
        } else {
            lines_.emplace_back(std::move(line), 1);
        }
    }
    std::string text() const {
        std::string out;
        for (const auto& [line, count] : lines_) {
            out += (out.empty() ? "" : ", ") + line + (count > 1 ? " x" + std::to_string(count) : "");
        }
        return out.empty() ? "none" : out;
    }

private:
    std::vector<std::pair<std::string, int>> lines_;
};

std::string recorded_events(const json::Value& rank) {
    EventLines lines;
    for (const json::Value event : rank.at("events").elements()) {
        // The recorder also sees how DTensor makes its gathers differentiable, which sends nothing.
        if (event.at("op").string() != "wrap_tensor_autograd") {
            lines.add(event.at("op").string(), event.at("in").integer(), event.at("out").integer());
        }
    }
    return lines.text();
}

std::string own_events(std::span<const StateEvent> events) {
    EventLines lines;
    for (const StateEvent& event : events) {
        lines.add(name(event.operation), event.input_bytes, event.output_bytes);
    }
    return lines.text();
}

class CostCase {
public:
    CostCase(const json::Value& row, const std::string& file, std::size_t number, Verification& out)
        : row_(row),
          operation_(row.at("operation").string()),
          name_(file + " " + std::to_string(number) + " " + operation_),
          report_(name_),
          out_(out) {}

    const std::string& name() const { return name_; }

    void compare(const RecordedStateModel& model, const json::Value& defaults) {
        const StateDictKnobs knobs = state_dict_knobs(row_.at("config"), defaults);
        layout_ = model.layout(knobs);
        with_optimizer_ = knobs.optimizer != "none";
        if (const auto error = row_.find("error")) {
            compare_error(*error);
        } else if (const RecordedCall* call = find_recorded_call(operation_)) {
            compare_units();
            compare_call(call->request);
        } else if (const RecordedDcpCall* dcp = find_recorded_dcp_call(operation_)) {
            compare_dcp(*dcp);
        } else {
            return skip_case(name_, "an operation that is not known: " + operation_, out_);
        }
        report_.close(out_);
    }

private:
    void compare_error(const json::Value& error) {
        const RecordedCall* call = find_recorded_call(operation_);
        const RecordedDcpCall* dcp = find_recorded_dcp_call(operation_);
        std::optional<StateRefusal> got;
        if (call != nullptr) {
            got = state_refusal(layout_, call->request);
        } else if (dcp != nullptr && dcp->whole_state) {
            got = staging_refusal(layout_);
        }
        report_.compare("error", std::string(error.at("class").string()) + " " + word_of(error.at("code")),
                        got ? got->error_class + " " + got->code : "none");
    }

    /// Sizes of the flat parameters, which everything else follows from.
    void compare_units() {
        if (layout_.runtime != StateRuntime::fsdp1) {
            return;
        }
        std::vector<std::string> recorded;
        for (const json::Value unit : row_.at("units").elements()) {
            recorded.push_back("\"" + std::string(unit.at("unit").string()) + "\" " +
                               joined(unit.at("numels")) + " padded " + unit.at("padded_numel").shown() +
                               " shard " + unit.at("shard_numel").shown());
        }
        std::vector<std::string> got;
        for (const StateUnit& unit : layout_.units) {
            std::vector<std::int64_t> numels;
            for (const std::size_t tensor : unit.tensors) {
                numels.push_back(layout_.tensors[tensor].numel());
            }
            const std::int64_t shard = layout_.sharded ? unit.shard_numel : unit.aligned_numel;
            got.push_back("\"" + unit.path + "\" " + joined(numels) + " padded " +
                          std::to_string(shard * layout_.mesh.shard) + " shard " + std::to_string(shard));
        }
        report_.compare("units", joined(recorded), joined(got));
    }

    void compare_call(const StateRequest& request) {
        std::int64_t number = 0;
        for (const json::Value rank : row_.at("ranks").elements()) {
            const StateCall call = state_call(layout_, request, number, StateDevice::cpu);
            const std::string where = "rank " + std::to_string(number++) + " ";
            report_.compare(where + "events", recorded_events(rank), own_events(call.events));
            const bool exact = !call.sends_objects();
            compare_memory(where + "peak", rank.at("peak_bytes").integer(), call.device_peak_bytes, exact);
            compare_memory(where + "kept", rank.at("kept_bytes").integer(), call.device_kept_bytes, exact);
            compare_returned(rank, where, call.returned_bytes, call.returned_tensors);
        }
    }

    /// `exact`: no pickled objects are in the number, else it need only come close.
    void compare_memory(const std::string& where, std::int64_t recorded, std::int64_t got, bool exact) {
        if (exact) {
            report_.compare(where + " bytes", std::to_string(recorded), std::to_string(got));
            return;
        }
        const bool is_peak = where.ends_with("peak");
        out_.deviations.push_back(
            {.quantity = is_peak ? "peak with pickled objects" : "kept with pickled objects",
             .case_name = name_ + " " + where,
             .expected = recorded,
             .got = got});
    }

    void compare_returned(const json::Value& rank, const std::string& where, std::int64_t bytes,
                          std::int64_t tensors) {
        if (const auto recorded = rank.find("returned_bytes")) {
            report_.compare(where + "returned bytes", recorded->shown(), std::to_string(bytes));
            report_.compare(where + "returned tensors", rank.at("returned_tensors").shown(),
                            std::to_string(tensors));
        }
    }

    void compare_dcp(const RecordedDcpCall& call) {
        std::int64_t number = 0;
        for (const json::Value rank : row_.at("ranks").elements()) {
            StateRequest request{.form = StateRequest::Form::sharded};
            StateCall local = state_call(layout_, request, number, StateDevice::cpu);
            if (with_optimizer_) {
                request.subject = StateRequest::Subject::optimizer;
                const StateCall states = state_call(layout_, request, number, StateDevice::cpu);
                local.returned_bytes += states.returned_bytes;
                local.returned_tensors += states.returned_tensors;
            }
            const std::string where = "rank " + std::to_string(number++) + " ";
            report_.compare(where + "events", recorded_events(rank),
                            call.stages ? "none" : own_events(dcp_events(call.loads)));
            if (const auto bytes = rank.find("state_dict_local_bytes")) {
                report_.compare(where + "state dict bytes", bytes->shown(),
                                std::to_string(local.returned_bytes));
            }
            compare_returned(rank, where, local.returned_bytes, local.returned_tensors);
            if (call.stages) {
                compare_memory(where + "kept", rank.at("kept_bytes").integer(), local.returned_bytes, false);
            }
        }
        if (!call.stages) {
            out_.skips.push_back({.case_name = name_ + " peak and kept bytes",
                                  .reason = "pickled plans and results are in them, whose sizes vary"});
        }
        if (const auto files = row_.find("files")) {
            compare_files(*files, call.threads);
        }
    }

    void compare_files(const json::Value& files, int threads) {
        const DcpSave save = dcp_save(layout_, with_optimizer_, threads);
        std::vector<std::string> recorded;
        for (const json::Value file : files.members()) {
            if (file.key() == ".metadata") {
                out_.deviations.push_back({.quantity = "size of .metadata",
                                           .case_name = name_,
                                           .expected = file.integer(),
                                           .got = save.metadata_bytes});
            } else {
                recorded.push_back(std::string(file.key()) + " " + file.shown());
            }
        }
        std::vector<std::string> got;
        for (const DcpFile& file : save.files) {
            got.push_back(file.name + " " + std::to_string(file.bytes));
        }
        std::ranges::sort(recorded);
        std::ranges::sort(got);
        report_.compare("files", joined(recorded), joined(got));
    }

    json::Value row_;
    std::string operation_;
    std::string name_;
    CaseReport report_;
    Verification& out_;
    StateLayout layout_;
    bool with_optimizer_ = true;
};

void replay(const json::Value& recording, const std::string& path, Verification& out) {
    const std::string file = std::filesystem::path(path).stem().string();
    // The compatibility recording beside it describes the model; a cost says sizes of units only.
    const auto beside = json_file_in({std::filesystem::path(path).parent_path()}, "compat");
    std::optional<json::Document> described;
    if (beside) {
        described.emplace(read_text(beside->string()), beside->string());
    }
    std::size_t number = 0;
    for (const json::Value row : recording.at("cases").elements()) {
        CostCase one(row, file, number++, out);
        if (!described) {
            skip_case(one.name(),
                      "shapes and buffers of its model are in compat.json, which is not beside it", out);
            continue;
        }
        const json::Value about = described->root();
        one.compare(RecordedStateModel(about.at("model")), about.at("defaults"));
    }
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo state_dict_costs;
constinit const RecordingInfo state_dict_costs{
    .name = "state-dict-cost",
    .help = "what calls of state dicts cost (JSON with the format fsdplan.state-dict-cost)",
    .recognises = of_format<format>,
    .replay = replay_json<replay>,
};

}  // namespace builtin::recording
}  // namespace fsdplan
