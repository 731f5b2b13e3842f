#include "verify/published/reading.hpp"

// IBM's Llama 2 on 128 A100: speeds of FSDP1, sharded over all ranks or inside each node.
namespace fsdplan::builtin::published_source {
namespace {

using namespace published;

constexpr std::string_view table = "fms-fsdp on 128 A100";
constexpr std::int64_t node = 8;

Mesh mesh_of(const json::Value& row, std::int64_t gpus) {
    const json::Value sharding = row.at("sharding");
    if (sharding.string() == "FSDP") {
        return {.replicate = 1, .shard = gpus};
    }
    if (sharding.string() != "HSDP" || gpus % node != 0) {
        sharding.fail("\"FSDP\", or \"HSDP\" over whole nodes of 8");
    }
    return {.replicate = gpus / node, .shard = node};
}

PublishedRow read_row(const json::Value& file, const json::Value& row) {
    const auto ac = checkpointing(row.at("ac").string());
    if (!ac) {
        return outside_of(row, table, "which blocks are checkpointed is not stated");
    }
    PublishedRow out = row_of(row, table);
    const std::int64_t gpus = size(row.at("gpus"));
    TrainingJob& job = out.run.job;
    job.runtime = "fsdp1";
    job.mesh = mesh_of(row, gpus);
    job.strategy = job.mesh.replicate > 1 ? Strategy::hybrid_shard : Strategy::full_shard;
    job.param_dtype = DType::bfloat16;
    job.reduce_dtype = DType::bfloat16;
    job.buffer_dtype = DType::bfloat16;
    job.batch = size(row.at("lbs"));
    job.sequence = size(row.at("seq"));
    job.clip_norm = 2.0;
    job.use_orig_params = true;
    job.torch = "2.13";
    job.output = OutputLife::next_forward;
    job.zero_grad_first = true;
    job.activation_checkpointing = *ac;
    out.run.compiled = flag(row, "compile");
    out.run.cluster = machines("a100-80gb-sxm", gpus);
    take_llama(file, row, out.run);
    out.tokens_per_s = amount(row.at("tps_per_gpu"));
    out.fits = true;
    return out;
}

std::vector<PublishedRow> read(const json::Value& file) {
    return rows_of(file, [&](const json::Value& row) { return read_row(file, row); });
}

}  // namespace

extern const PublishedSource fms_fsdp;
constinit const PublishedSource fms_fsdp{
    .repository = "foundation-model-stack/fms-fsdp", .key = "rows", .read = read};

}  // namespace fsdplan::builtin::published_source
