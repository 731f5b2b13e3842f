#include <algorithm>
#include <array>

#include "model/library.hpp"
#include "verify/published/reading.hpp"

// LitGPT's LoRA on one A100 40 GB. The lengths of the samples vary, so its rows are looked at, not judged.
namespace fsdplan::builtin::published_source {
namespace {

using namespace published;

constexpr std::string_view table = "LitGPT on one A100";
constexpr std::int64_t longest_sample = 1304;  // that LitGPT reports of Alpaca: the peak is reached there

constexpr std::array<std::pair<std::string_view, std::string_view>, 2> models{
    {{"Llama 2 7B", "meta-llama/Llama-2-7b-hf"}, {"Llama 2 13B", "meta-llama/Llama-2-13b-hf"}}};

LoraOptions adapters() {
    LoraOptions out;
    out.rank = 8;
    out.targets = {"q_proj", "v_proj"};
    out.autocast_adapter_dtype = false;
    return out;
}

PublishedRow read_row(const json::Value& row) {
    const std::string_view name = row.at("model").string();
    const auto found = std::ranges::find(models, name, &std::pair<std::string_view, std::string_view>::first);
    if (found == models.end()) {
        return outside_of(row, table, "the sizes of " + std::string(name) + " are not in the file");
    }
    PublishedRow out = row_of(row, table);
    out.is_judged = false;
    TrainingJob& job = out.run.job;
    job.runtime = "single";
    job.strategy = Strategy::no_shard;
    job.param_dtype = std::nullopt;
    job.batch = size(row.at("micro_batch"));
    job.sequence = longest_sample;
    job.torch = "2.13";
    out.run.config = library_entry(found->second).config;
    out.run.storage = DType::bfloat16;
    out.run.lora = adapters();
    out.run.cluster = machines("a100-40gb-sxm", 1);
    out.peak_allocated_bytes = given_amount(row, "max_gb", gigabyte);
    out.fits = out.peak_allocated_bytes.has_value();
    return out;
}

std::vector<PublishedRow> read(const json::Value& file) {
    return rows_of(file, [&](const json::Value& row) { return read_row(row); });
}

}  // namespace

extern const PublishedSource litgpt;
constinit const PublishedSource litgpt{.repository = "Lightning-AI/litgpt", .key = "rows", .read = read};

}  // namespace fsdplan::builtin::published_source
