#include "verify/published/torchtitan.hpp"

#include <algorithm>
#include <array>

namespace fsdplan::published {
namespace {

/// Why this row is no plain data parallelism, or "".
std::string other_parallelism(const json::Value& row) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 3> degrees{
        {{"tp", "tensor"}, {"pp", "pipeline"}, {"cp", "context"}}};
    for (const auto& [key, name] : degrees) {
        if (const auto degree = row.given(key); degree && size(*degree) > 1) {
            return std::string(name) + " parallelism is outside the model so far";
        }
    }
    return {};
}

/// "peak reserved" of whoever prints torchtitan's own figure.
void take_figures(const json::Value& row, PublishedRow& out) {
    out.peak_reserved_bytes = given_amount(row, "peak_reserved_gib", gib);
    out.tokens_per_s = given_amount(row, "tps_per_gpu");
    const auto outcome = row.given("outcome");
    out.fits = !outcome || outcome->string().substr(0, 3) != "OOM";
}

}  // namespace

void take_torchtitan_llama(const json::Value& file, const json::Value& row, const TorchtitanCode& code,
                           PublishedRun& run) {
    const json::Value model = listed_model(file, row);
    const auto number = [&](const char* name, const char* key) {
        return ", \"" + std::string(name) + "\": " + std::to_string(size(model.at(key)));
    };
    const bool fused =
        code.has_fused_norms && std::ranges::find(code.unfused, model.key()) == code.unfused.end();
    // The width of the feed-forward is published; torchtitan rounds a smaller one up to a multiple.
    run.config = R"({"model_type": "torchtitan_llama", "torchtitan_version": ")" + std::string(code.version) +
                 R"(", "norm_type": ")" + (fused ? "fused_rmsnorm\"" : "rmsnorm\"") + number("dim", "dim") +
                 number("n_layers", "n_layers") + number("n_heads", "n_heads") +
                 number("n_kv_heads", "n_kv_heads") + number("vocab_size", "vocab") +
                 number("multiple_of", "ffn_hidden") +
                 (flag(model, "tied") ? R"(, "enable_weight_tying": true})" : "}");
    if (const auto parameters = model.given("n_params")) {
        run.parameters = parameters->integer(1, largest_total);
    }
}

void take_torchtitan(const json::Value& file, const json::Value& setting, const TorchtitanCode& code,
                     std::string_view runtime, PublishedRun& run) {
    const std::int64_t gpus = size(setting.at("gpus"));
    take_torchtitan_llama(file, setting, code, run);
    run.last_block_stays = runtime == "fsdp2";
    TrainingJob& job = run.job;
    job.runtime = runtime;
    job.mesh = {.replicate = 1, .shard = gpus};
    job.batch = size(setting.at("lbs"));
    job.sequence = size(setting.at("seq"));
    job.param_dtype = DType::bfloat16;
    job.reduce_dtype = DType::float32;
    job.torch = "2.13";
    job.clip_norm = 2.0;
    job.use_orig_params = true;
    job.reads_loss = true;
    job.output = code.keeps_prediction ? OutputLife::next_forward : OutputLife::loss;
    job.zero_grad_first = true;
}

PublishedRow torchtitan_row(const json::Value& file, const json::Value& row, const TorchtitanTable& table) {
    if (std::string reason = other_parallelism(row); !reason.empty()) {
        return outside_of(row, table.name, std::move(reason));
    }
    const auto ac = row.given("ac");
    if (!ac) {
        return outside_of(row, table.name, "its activation checkpointing is not stated");
    }
    const auto policy = checkpointing(ac->string());
    if (!policy) {
        return outside_of(row, table.name,
                          "the checkpointing " + json::quote(ac->string()) + " is not known");
    }
    PublishedRow out = row_of(row, table.name);
    take_torchtitan(file, row, table.code, "fsdp2", out.run);
    out.run.job.activation_checkpointing = *policy;
    out.run.compiled =
        flag(row, "compile");  // float8 rows are: their products keep what they read in bfloat16
    out.run.cluster = machines(table.gpu, out.run.job.mesh.ranks());
    take_figures(row, out);
    return out;
}

}  // namespace fsdplan::published
