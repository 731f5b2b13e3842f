#include "verify/published/torchtitan.hpp"

#include <array>

namespace fsdplan::published {
namespace {

/// Why this row is no plain data parallelism, or "".
std::string other_parallelism(const json::Value& row) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 3> degrees{
        {{"tp", "tensor"}, {"pp", "pipeline"}, {"cp", "context"}}};
    for (const auto& [key, name] : degrees) {
        if (const auto degree = given(row, key); degree && size(*degree) > 1) {
            return std::string(name) + " parallelism is outside the model so far";
        }
    }
    return {};
}

bool is_float8(const json::Value& row) {
    const auto value = given(row, "float8");
    const auto quantized = given(row, "quant");
    return (value && value->boolean()) || (quantized && quantized->string().find("float8") == 0);
}

/// "peak reserved" of whoever prints torchtitan's own figure.
void take_figures(const json::Value& row, PublishedRow& out) {
    if (const auto reserved = given(row, "peak_reserved_gib")) {
        out.peak_reserved_bytes = amount(*reserved, gib);
    }
    if (const auto rate = given(row, "tps_per_gpu")) {
        out.tokens_per_s = amount(*rate);
    }
    const auto outcome = given(row, "outcome");
    out.fits = !outcome || outcome->string().substr(0, 3) != "OOM";
}

}  // namespace

void take_torchtitan_llama(const json::Value& file, const json::Value& row, std::string_view version,
                           PublishedRun& run) {
    take_llama(file, row, run);
    (void)version;
}

TrainingJob torchtitan_job(std::string_view runtime, std::int64_t gpus) {
    TrainingJob job;
    job.runtime = runtime;
    job.mesh = {.replicate = 1, .shard = gpus};
    job.param_dtype = DType::bfloat16;
    job.reduce_dtype = DType::float32;
    job.torch = "2.13";
    job.clip_norm = 2.0;
    job.use_orig_params = true;
    job.reads_loss = true;
    job.output = OutputLife::next_forward;  // `pred` is a name in the loop
    job.zero_grad_first = true;
    return job;
}

PublishedRow torchtitan_row(const json::Value& file, const json::Value& row, const TorchtitanTable& table) {
    if (std::string reason = other_parallelism(row); !reason.empty()) {
        return outside_of(row, table.name, std::move(reason));
    }
    const auto ac = given(row, "ac");
    if (!ac) {
        return outside_of(row, table.name, "its activation checkpointing is not stated");
    }
    const auto policy = checkpointing(ac->string());
    if (!policy) {
        return outside_of(row, table.name,
                          "the checkpointing " + json::quote(ac->string()) + " is not known");
    }
    PublishedRow out = row_of(row, table.name);
    const std::int64_t gpus = size(row.at("gpus"));
    out.run.job = torchtitan_job("fsdp2", gpus);
    out.run.job.batch = size(row.at("lbs"));
    out.run.job.sequence = size(row.at("seq"));
    out.run.job.activation_checkpointing = *policy;
    out.run.last_block_stays = true;
    out.run.compiled = flag(row, "compile");
    out.run.cluster = machines(table.gpu, gpus);
    take_torchtitan_llama(file, row, table.version, out.run);
    if (is_float8(row)) {
        out.notes.emplace_back("float8 products keep their bfloat16 inputs: memory as in bfloat16");
    }
    if (out.run.compiled) {
        out.table += ", compiled";
    }
    take_figures(row, out);
    return out;
}

}  // namespace fsdplan::published
