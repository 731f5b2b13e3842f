#include "verify/published/reading.hpp"

// Answer.AI's LoRA and QLoRA of Llama 2 7B on two RTX 3090, with FSDP1.
namespace fsdplan::builtin::published_source {
namespace {

using namespace published;

constexpr std::string_view table = "fsdp_qlora on 2 RTX 3090";
constexpr std::int64_t gpus = 2;
constexpr double samples = 1024.0;  // whose time is published

/// As train.py has them by default: all projections but attention's last.
LoraOptions adapters() {
    LoraOptions out;
    out.rank = 64;
    out.targets = {"k_proj", "q_proj", "v_proj", "up_proj", "down_proj", "gate_proj"};
    out.dropout = 0.1;
    out.autocast_adapter_dtype = false;  // peft of that time made adapters in the dtype of the layer
    return out;
}

PublishedRow read_row(const json::Value& file, const json::Value& row) {
    const std::string_view method = row.at("method").string();
    const bool four_bit = method.substr(0, 1) == "Q";
    const std::string_view rest = method.substr(four_bit ? 1 : 0);
    if (rest != "LoRA" && rest != "LoRA + DDP") {
        row.at("method").fail(R"("LoRA", "QLoRA", "LoRA + DDP" or "QLoRA + DDP")");
    }
    PublishedRow out = row_of(row, table);
    TrainingJob& job = out.run.job;
    job.runtime = "fsdp1";
    job.strategy = rest == "LoRA" ? Strategy::full_shard : Strategy::no_shard;
    job.mesh = {.replicate = 1, .shard = gpus};
    job.param_dtype = std::nullopt;
    job.batch = size(row.at("lbs"));
    job.sequence = size(row.at("seq"));
    job.torch = "2.13";
    job.loss_in_model = true;
    job.loss.kind = Loss::Kind::shifted;  // transformers of March 2024
    job.reads_loss = true;
    job.output = OutputLife::backward;
    job.fsdp1.built_on_device = true;
    job.activation_checkpointing.mode = ActivationCheckpointing::Mode::blocks;
    // Wrappers around blocks. The script's are reentrant, after a hook that has the frozen embedding's output
    // require gradients; here they are not, which needs no hook.
    job.activation_checkpointing.wrapped = true;
    out.run.storage = DType::bfloat16;
    out.run.lora = adapters();
    out.run.four_bit = four_bit;
    out.run.units = PublishedRun::Units::blocks_and_adapters;
    out.run.cluster = machines("rtx3090", gpus);
    take_llama(file, row, out.run);
    out.run.parameters.reset();  // published without the adapters
    out.peak_reserved_bytes = amount(row.at("peak_reserved_gib"), gib);
    out.peak_allocated_bytes = given_amount(row, "peak_allocated_gib", gib);
    out.tokens_per_s = samples * static_cast<double>(job.sequence) / amount(row.at("time_s")) / gpus;
    out.fits = true;
    return out;
}

std::vector<PublishedRow> read(const json::Value& file) {
    return rows_of(file, [&](const json::Value& row) { return read_row(file, row); });
}

}  // namespace

extern const PublishedSource fsdp_qlora;
constinit const PublishedSource fsdp_qlora{
    .repository = "AnswerDotAI/fsdp_qlora", .key = "rows", .read = read};

}  // namespace fsdplan::builtin::published_source
