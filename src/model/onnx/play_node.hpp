#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/onnx/step.hpp"

namespace fsdplan::onnx {

/// Plays single nodes: on the host what the host knows, else by the operator's entry.
class NodePlayer {
public:
    NodePlayer(const Graph& graph, Eager& f);

    /// Throws NotPlayable when the operator is not described and the file does not say how large its results
    /// are.
    std::vector<Datum> play(const Step& step);
    /// One note for each kind of operator that was not described.
    void note_unknown();

private:
    std::optional<Datum> scalar_result(const Step& step);
    std::vector<Datum> unknown(const Step& step, const std::string& why);

    const Graph& graph_;
    Eager& f_;
    std::unordered_map<std::string_view, Play> plays_;
    std::map<std::string, std::pair<std::string, std::int64_t>>
        unknown_;  // the first of a kind, and how many
};

}  // namespace fsdplan::onnx
