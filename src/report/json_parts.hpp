#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "fsdplan/planner.hpp"
#include "report/json_writer.hpp"

// Members that the JSON of every result has.
namespace fsdplan {

/// Begins the object of a result: format, version, command, and the program's version.
JsonWriter begin_result(std::string_view command, std::string_view version);
/// Model, job, cluster and assumptions.
void write_question(JsonWriter& out, const SweepQuestion& question, const TrainingJob& job,
                    const std::vector<Assumption>& assumptions);

void write_model(JsonWriter& out, const SweepQuestion& question);
void write_job(JsonWriter& out, const SweepQuestion& question, const TrainingJob& job);
void write_cluster(JsonWriter& out, const Cluster& cluster);
void write_assumptions(JsonWriter& out, const std::vector<Assumption>& assumptions);
/// true, false or null.
void write_truth(JsonWriter& out, std::string_view key, const std::optional<bool>& truth);

}  // namespace fsdplan
