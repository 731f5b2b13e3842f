#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "base/file.hpp"
#include "base/json.hpp"
#include "verify/case_report.hpp"
#include "verify/cuda_memory_case.hpp"
#include "verify/cuda_memory_live.hpp"
#include "verify/cuda_memory_model.hpp"
#include "verify/cuda_memory_steps.hpp"

// What PyTorch's caching allocator reported while real training steps ran (docs/formats.md).
namespace fsdplan {
namespace {

constexpr double peak_tolerance = 0.005;

std::string percent(double share) {
    std::array<char, 32> text{};
    const auto end =
        std::to_chars(text.data(), text.data() + text.size(), 100.0 * share, std::chars_format::fixed, 2);
    return std::string(text.data(), end.ptr) + " %";
}

std::int64_t bytes_at(const json::Value& object, std::string_view key) {
    return object.at(key).integer(0, largest_total);
}

/// The phases of a step, looked up where the step says that it equals another.
json::Value phases_of(const std::vector<json::Value>& steps, std::size_t i) {
    while (const auto same = steps[i].find("same_as")) {
        i = static_cast<std::size_t>(same->integer(0, static_cast<std::int64_t>(i) - 1));
    }
    return steps[i].at("phases");
}

class Comparison {
public:
    Comparison(std::string name, const json::Value& recording, Verification& out)
        : name_(std::move(name)), recording_(recording), report_(name_), out_(out) {}

    void compare(const ModuleTree& tree, const CudaMemoryCase& recorded, const SimulatedMemory& got) {
        compare_facts(tree, recorded);
        compare_outcome(got);
        if (const auto setup = recording_.find("after_setup")) {
            report_.compare("after setup requested bytes", std::to_string(bytes_at(*setup, "requested")),
                            std::to_string(got.setup.requested_bytes));
            note("allocated after setup", "setup", bytes_at(*setup, "allocated"), got.setup.allocated_bytes);
            note("peak of allocated in setup", "setup", bytes_at(*setup, "peak_allocated"),
                 got.setup.peak_allocated_bytes);
            note("peak of reserved in setup", "setup", bytes_at(*setup, "peak_reserved"),
                 got.setup.peak_reserved_bytes);
        }
        std::vector<json::Value> steps;
        for (const json::Value step : recording_.at("steps").elements()) {
            steps.push_back(step);
        }
        for (std::size_t i = 0; i < steps.size(); ++i) {
            compare_step(i, phases_of(steps, i),
                         i < got.steps.size() ? got.steps[i] : std::vector<PhaseMemory>{});
        }
        const auto live = recording_.find("live_at_peak");
        if (live && last_peak_differs_) {
            compare_live("at the peak of step " + std::to_string(steps.size() - 1), live->at("rows"),
                         got.at_peak, report_);
        }
        report_.close(out_);
    }

private:
    void compare_facts(const ModuleTree& tree, const CudaMemoryCase& recorded) {
        const auto facts = recording_.find("facts");
        if (!facts) {
            return;
        }
        if (!breaks_ties(recording_.at("case"))) {  // counted before they broke
            report_.compare("parameters", facts->at("parameters").shown(), std::to_string(tree.numel[0]));
        }
        if (const auto units = facts->find("units")) {
            report_.compare("units", units->shown(), std::to_string(recorded.plan.units.size()));
        }
    }

    void compare_outcome(const SimulatedMemory& got) {
        std::string expected(recording_.at("outcome").string());
        if (expected == "oom") {
            const json::Value oom = recording_.at("oom");
            expected += " in step " + oom.at("step").shown() + " " + std::string(oom.at("phase").string());
        }
        report_.compare("outcome", expected,
                        got.out_of_memory ? "oom in step " + std::to_string(got.out_of_memory->step) + " " +
                                                got.out_of_memory->phase
                                          : "ok");
    }

    void compare_step(std::size_t step, const json::Value& phases, const std::vector<PhaseMemory>& got) {
        const std::string where = "step " + std::to_string(step);
        std::int64_t allocated = 0;
        std::int64_t reserved = 0;
        std::int64_t own_allocated = 0;
        std::int64_t own_reserved = 0;
        std::size_t i = 0;
        for (const json::Value phase : phases.elements()) {
            const std::string name(phase.at("phase").string());
            if (i >= got.size() || got[i].phase != name) {
                report_.compare(where + " phase", name, i < got.size() ? got[i].phase : "none");
                return;
            }
            const PhaseMemory& own = got[i++];
            const std::int64_t peak = bytes_at(phase, "peak_allocated");
            allocated = std::max(allocated, peak);
            reserved = std::max(reserved, bytes_at(phase, "peak_reserved"));
            own_allocated = std::max(own_allocated, own.peak_allocated_bytes);
            own_reserved = std::max(own_reserved, own.peak_reserved_bytes);
            compare_near(where + " " + name + " peak of allocated", peak, own.peak_allocated_bytes);
            note("allocated at the end of a phase", where + " " + name, bytes_at(phase, "allocated"),
                 own.allocated_bytes);
            if (name == "end") {
                compare_end(where, phase, own);
            }
            if ((name == "clip" || name == "optimizer") && nothing_waits(phase)) {
                note("peak of requested in " + name, where, bytes_at(phase, "peak_requested"),
                     own.peak_requested_bytes);
            }
        }
        last_peak_differs_ = !compare_near(where + " peak of allocated", allocated, own_allocated);
        note("peak of allocated", where, allocated, own_allocated);
        note("peak of reserved", where, reserved, own_reserved);
    }

    // Blocks that wait for another stream still count as requested: when they are done depends on the clock.
    static bool nothing_waits(const json::Value& phase) {
        return bytes_at(phase, "active") == bytes_at(phase, "allocated") &&
               bytes_at(phase, "peak_active") == bytes_at(phase, "peak_allocated");
    }

    void compare_end(const std::string& where, const json::Value& phase, const PhaseMemory& own) {
        if (nothing_waits(phase)) {
            report_.compare(where + " end requested bytes", std::to_string(bytes_at(phase, "requested")),
                            std::to_string(own.requested_bytes));
        }
    }

    bool compare_near(const std::string& where, std::int64_t expected, std::int64_t got) {
        const Deviation deviation{.quantity = {}, .case_name = {}, .expected = expected, .got = got};
        const bool near = deviation.error() <= peak_tolerance;
        if (!near) {
            report_.compare(where, std::to_string(expected) + " bytes",
                            std::to_string(got) + " bytes (" + (got < expected ? "-" : "+") +
                                percent(deviation.error()) + ")");
        }
        return near;
    }

    void note(std::string quantity, const std::string& where, std::int64_t expected, std::int64_t got) {
        out_.deviations.push_back({.quantity = std::move(quantity),
                                   .case_name = name_ + " " + where,
                                   .expected = expected,
                                   .got = got});
    }

    std::string name_;
    json::Value recording_;
    CaseReport report_;
    Verification& out_;
    bool last_peak_differs_ = false;
};

void skip(const std::string& name, std::string reason, Verification& out) {
    ++out.cases;
    ++out.skipped;
    out.skips.push_back({.case_name = name, .reason = std::move(reason)});
}

void replay(const std::string& path, Verification& out) {
    const json::Document document(read_text(path), path);
    const json::Value root = document.root();
    const std::string name = std::filesystem::path(path).stem().string();
    const json::Value recorded_case = root.at("case");
    RecordedModel model = recorded_model(path, recorded_case);
    if (!model.graph) {
        skip(name, model.reason, out);
        return;
    }
    if (breaks_ties(recorded_case)) {
        untie(*model.graph);
    }
    const ModuleTree tree = flatten(*model.graph);
    try {
        const CudaMemoryCase recorded = cuda_memory_case(recorded_case, tree);
        Comparison(name, root, out).compare(tree, recorded, simulated_memory(*model.graph, tree, recorded));
    } catch (const Unsupported& unsupported) {
        skip(name, unsupported.reason, out);
    }
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo cuda_memory_recordings;
constinit const RecordingInfo cuda_memory_recordings{
    .name = "cuda memory",
    .help = "CUDA memory of real training steps (JSON with case, outcome and steps)",
    .recognises =
        [](const std::string& path, std::string_view head) {
            const bool json = path.ends_with(".json") || path.ends_with(".json.gz");
            return json && head.find("\"case\"") != head.npos && head.find("\"outcome\"") != head.npos &&
                   head.find("\"strategy\"") != head.npos;
        },
    .replay = replay,
};

}  // namespace builtin::recording
}  // namespace fsdplan
