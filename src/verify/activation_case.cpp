#include "verify/activation_case.hpp"

#include <filesystem>
#include <optional>

#include "fsdplan/operators.hpp"
#include "model/nested_calls.hpp"
#include "operators/playback.hpp"
#include "verify/case_report.hpp"
#include "verify/nearby_file.hpp"

namespace fsdplan {
namespace {

using Kind = MemoryEvent::Kind;

std::size_t at(std::int32_t i) {
    return static_cast<std::size_t>(i);
}

/// Of each call: bytes that it is the first to keep, and FLOPs, with what it calls.
struct PerCall {
    std::vector<std::int64_t> saved;
    std::vector<std::int64_t> flops;
    std::int64_t saved_in_all = 0;
};

PerCall per_call(const OperatorGraph& graph, const ModuleTree& tree) {
    const std::vector<NestedCall> calls = nested_calls(tree, graph.calls.module);
    PerCall out{.saved = std::vector<std::int64_t>(calls.size()),
                .flops = std::vector<std::int64_t>(calls.size())};
    std::vector<char> seen(graph.storages.size(), 0);
    const Operator* op = nullptr;
    for (const MemoryEvent& event : graph.forward) {
        if (event.kind == Kind::run) {
            op = &graph.operators[at(event.index)];
            for (std::int32_t c = op->call; c >= 0; c = calls[at(c)].parent) {
                out.flops[at(c)] += op->flops;
            }
        } else if (event.kind == Kind::save && seen[at(event.index)] == 0) {
            seen[at(event.index)] = 1;
            const std::int64_t bytes = graph.storages[at(event.index)].bytes;
            out.saved_in_all += bytes;
            out.saved[op->call < 0 ? 0 : at(op->call)] += bytes;  // the loss counts for the root
        }
    }
    return out;
}

std::int64_t new_bytes(const json::Value& saved) {
    std::int64_t bytes = 0;
    for (const json::Value row : saved.elements()) {
        auto part = row.elements().begin();
        if ((*part).string() != "new") {
            continue;
        }
        for (int i = 0; i < 3; ++i) {
            ++part;
        }
        bytes += (*part).integer();
    }
    return bytes;
}

}  // namespace

void replay_activations(const json::Value& recording, const std::string& path, Verification& out) {
    const std::string name = std::filesystem::path(path).stem().string();
    const std::optional<std::filesystem::path> file = export_beside(path, name);
    if (!file) {
        skip_case(name, "there is no export of this model", out);
        return;
    }
    const ModelGraph model = import_model(file->string());
    const ModuleTree tree = flatten(model);
    const OperatorGraph graph = model.operators
                                    ? model.operators(tree, {.batch = model.recorded_batch.value_or(1),
                                                             .sequence = model.longest_sequence.value_or(1)})
                                    : OperatorGraph{};
    CaseReport report(name);
    const auto compare = [&](const std::string& where, std::int64_t expected, std::int64_t got) {
        report.compare(where, std::to_string(expected), std::to_string(got));
    };
    report.compare("events", "", first_fault(graph));
    const PerCall calls = per_call(graph, tree);
    compare("saved_new_bytes", recording.at("saved_new_bytes").integer(), calls.saved_in_all);
    // With checkpoints inside of the model other modules keep their inputs.
    const bool checkpointed = recording.at("case").find("ac").has_value();
    std::size_t c = 0;
    for (const json::Value row : recording.at("modules").elements()) {
        if (c == calls.flops.size()) {
            break;
        }
        const std::string where = "call " + std::to_string(c) + " of " + row.at("fqn").shown();
        compare(where + ", flops", row.at("flops").integer(), calls.flops[c]);
        if (!checkpointed) {
            compare(where + ", saved", new_bytes(row.at("saved")), calls.saved[c]);
        }
        ++c;
    }
    compare("calls", static_cast<std::int64_t>(recording.at("modules").size()),
            static_cast<std::int64_t>(calls.flops.size()));
    Playback playback(graph, tree);
    playback.play(graph.forward);
    compare("forward_peak_bytes", recording.at("forward_peak_bytes").integer(), playback.peak());
    compare("after_forward_bytes", recording.at("after_forward_bytes").integer(), playback.live());
    playback.reset_peak();
    playback.play(graph.backward);
    compare("backward_peak_bytes", recording.at("backward_peak_bytes").integer(), playback.peak());
    report.close(out);
}

}  // namespace fsdplan
