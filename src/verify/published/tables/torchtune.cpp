#include "verify/published/torchtitan.hpp"

// torchtune's ladder of techniques for Llama 3.2 3B on one A100, each step on top of the one before.
namespace fsdplan::builtin::published_source {
namespace {

using namespace published;

constexpr std::string_view table = "torchtune on one A100";

/// What the steps up to here have switched on.
struct Ladder {
    bool packed = false;
    bool compiled = false;
    bool chunked_loss = false;
    bool checkpointed = false;
    std::string unknown;  ///< the first step that is not modelled
};

void climb(const json::Value& change, Ladder& ladder) {
    const std::string_view step = change.string();
    if (step.find("+ packed") == 0) {
        ladder.packed = true;
    } else if (step == "+ compile") {
        ladder.compiled = true;
    } else if (step == "+ chunked cross entropy") {
        ladder.chunked_loss = true;
    } else if (step.find("+ activation checkpointing") == 0) {
        ladder.checkpointed = true;
    } else if (step.find("+ ") == 0 && ladder.unknown.empty()) {
        ladder.unknown = step.substr(2);
    }
}

PublishedRow read_row(const json::Value& file, const json::Value& row, const Ladder& ladder) {
    if (!ladder.packed) {
        return outside_of(row, table, "the lengths of its samples are not stated");
    }
    if (!ladder.unknown.empty()) {
        return outside_of(row, table, ladder.unknown + ": not modelled");
    }
    PublishedRow out = row_of(row, table);
    TrainingJob& job = out.run.job;
    job.runtime = "single";
    job.strategy = Strategy::no_shard;
    job.param_dtype = std::nullopt;
    job.batch = size(row.at("lbs"));
    job.sequence = size(row.at("max_seq"));
    job.torch = "2.13";
    job.optimizer.implementation = Optimizer::Implementation::fused;
    job.reads_loss = true;
    job.output = OutputLife::loss;
    if (ladder.chunked_loss) {
        job.loss.kind = Loss::Kind::chunked;
    }
    if (ladder.checkpointed) {
        job.activation_checkpointing.mode = ActivationCheckpointing::Mode::blocks;
    }
    out.run.storage = DType::bfloat16;
    out.run.compiled = ladder.compiled;
    out.run.cluster = machines("a100-80gb-sxm", 1);
    // Its layers compute what torchtitan's do: k and v repeated for the heads that share them, norms and
    // rotation in float32, logits raised to float32 by the model and gone before backward.
    take_torchtitan_llama(file, row, {.version = "2024-04", .has_fused_norms = false}, out.run);
    out.peak_active_bytes = amount(row.at("peak_active_gib"), gib);
    out.tokens_per_s = amount(row.at("tok_s"));
    out.fits = true;
    return out;
}

std::vector<PublishedRow> read(const json::Value& file) {
    std::vector<PublishedRow> out;
    Ladder ladder;
    for (const json::Value row : file.at("rows_single_gpu").elements()) {
        climb(row.at("change"), ladder);
        out.push_back(read_row(file, row, ladder));
    }
    add_rows(
        file, "rows_multi",
        [](const json::Value& row) {
            return outside_of(row, table, "its samples are shorter than the stated length");
        },
        out);
    return out;
}

}  // namespace

extern const PublishedSource torchtune;
constinit const PublishedSource torchtune{
    .repository = "pytorch/torchtune", .key = "rows_single_gpu", .read = read};

}  // namespace fsdplan::builtin::published_source
