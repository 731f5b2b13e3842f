#include "report/json_parts.hpp"

#include "report/facts.hpp"

namespace fsdplan {

JsonWriter begin_result(std::string_view command, std::string_view version) {
    JsonWriter out;
    out.begin_object();
    out.member("format", "fsdplan.result").member("version", std::int64_t{1}).member("command", command);
    out.member("fsdplan", version);
    return out;
}

void write_question(JsonWriter& out, const SweepQuestion& question, const TrainingJob& job,
                    const std::vector<Assumption>& assumptions) {
    write_model(out, question);
    write_job(out, question, job);
    write_cluster(out, question.cluster);
    write_assumptions(out, assumptions);
}

void write_model(JsonWriter& out, const SweepQuestion& question) {
    const ParameterTotals totals = totals_of(question.tree);
    out.key("model").begin_object();
    out.member("name", question.model.name);
    out.member("source", question.model.source);
    out.member("class", std::string(short_name(question.tree.class_info(ModuleIndex{0}).name)));
    out.member("modules", static_cast<std::int64_t>(question.tree.size()));
    out.key("parameters").begin_object();
    out.member("numel", totals.numel);
    out.member("trainable_numel", totals.trainable_numel);
    out.member("bytes", totals.bytes);
    out.end_object();
    out.key("notes").begin_array();
    for (const std::string& note : question.model.notes) {
        out.value(note);
    }
    out.end_array().end_object();
}

void write_job(JsonWriter& out, const SweepQuestion& question, const TrainingJob& job) {
    const Dtypes dtypes = dtypes_of(question.tree, job);
    out.key("job").begin_object();
    out.member("runtime", job.runtime);
    out.member("strategy", name(job.strategy));
    out.member("world_size", job.mesh.ranks());
    out.member("replicate", job.mesh.replicate);
    out.member("shard", job.mesh.shard);
    out.member("batch", job.batch);
    out.member("seq", job.sequence);
    out.member("accumulate", job.accumulate);
    out.member("no_sync", job.no_sync);
    out.member("storage_dtype", name(dtypes.stored));
    out.member("param_dtype", name(dtypes.compute));
    out.member("reduce_dtype", name(dtypes.reduce));
    out.member("optimizer", name(job.optimizer));
    out.member("activation_checkpointing", name(job.activation_checkpointing));
    out.member("loss", name(job.loss));
    out.member("use_orig_params", job.use_orig_params);
    out.member("offload", job.offload);
    out.end_object();
}

void write_cluster(JsonWriter& out, const Cluster& cluster) {
    out.key("cluster").begin_object();
    out.member("name", cluster.name);
    out.member("gpu", cluster.gpu.name);
    out.member("gpus", cluster.gpus);
    out.member("gpus_per_node", cluster.gpus_per_node);
    out.member("memory_bytes", cluster.gpu.memory.count);
    out.member("budget_bytes", cluster.budget.count);
    out.end_object();
}

void write_assumptions(JsonWriter& out, const std::vector<Assumption>& assumptions) {
    out.key("assumptions").begin_array();
    for (const Assumption& a : assumptions) {
        out.begin_object();
        out.member("name", a.name).member("value", a.value).member("from", a.from).member("note", a.note);
        out.end_object();
    }
    out.end_array();
}

void write_truth(JsonWriter& out, std::string_view key, const std::optional<bool>& truth) {
    out.key(key);
    if (truth) {
        out.value(*truth);
    } else {
        out.null();
    }
}

}  // namespace fsdplan
