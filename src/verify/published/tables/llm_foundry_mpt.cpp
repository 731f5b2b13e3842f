#include <algorithm>
#include <array>

#include "verify/published/reading.hpp"

// MosaicML's tables of MPT from 125M to 70B: speed, and that each row fitted.
namespace fsdplan::builtin::published_source {
namespace {

using namespace published;

/// A row of a file that names its columns once.
class Cells {
public:
    Cells(const json::Value& columns, const json::Value& row) : columns_(columns) {
        if (row.size() != columns.size()) {
            row.fail(std::to_string(columns.size()) + " cells");
        }
        for (const json::Value cell : row.elements()) {
            cells_.push_back(cell);
        }
    }

    json::Value at(std::string_view name) const {
        std::size_t i = 0;
        for (const json::Value column : columns_.elements()) {
            if (column.string() == name) {
                return cells_[i];
            }
            ++i;
        }
        columns_.fail("a column " + json::quote(name));
    }

private:
    json::Value columns_;
    std::vector<json::Value> cells_;
};

struct Hardware {
    std::string_view name;  ///< the file's
    std::string_view gpu;   ///< ours
    std::string_view cluster;
    std::string_view table;
};
// 1600 Gb/s a node between A100 nodes; what was between H100 nodes is not said.
constexpr std::array<Hardware, 3> hardware{
    {{"h100_80gb", "h100-sxm", "dgx-h100", "llm-foundry MPT on H100 80GB"},
     {"a100_80gb", "a100-80gb-sxm", "dgx-a100", "llm-foundry MPT on A100 80GB"},
     {"a100_40gb", "a100-40gb-sxm", "dgx-a100", "llm-foundry MPT on A100 40GB"}}};

const Hardware& hardware_of(const json::Value& name) {
    const auto found = std::ranges::find(hardware, name.string(), &Hardware::name);
    if (found == hardware.end()) {
        name.fail("\"h100_80gb\", \"a100_80gb\" or \"a100_40gb\"");
    }
    return *found;
}

std::string config_of(const json::Value& common, const Cells& row) {
    const auto number = [&](const char* name) { return std::to_string(size(row.at(name))); };
    return R"({"model_type": "mpt", "architectures": ["MPTForCausalLM"], "vocab_size": )" +
           std::to_string(size(common.at("vocab_size"))) + ", \"max_seq_len\": " + number("seq_len") +
           ", \"d_model\": " + number("d_model") + ", \"n_heads\": " + number("n_heads") +
           ", \"n_layers\": " + number("n_layers") + "}";
}

TrainingJob job_of(const Cells& row, std::int64_t gpus) {
    TrainingJob job;
    job.runtime = "fsdp1";
    job.strategy = parse_strategy(row.at("sharding").string(), row.at("sharding").where());
    job.mesh = {.replicate = 1, .shard = gpus};
    job.torch = "2.13";
    job.batch = size(row.at("micro_batch"));
    job.sequence = size(row.at("seq_len"));
    job.accumulate = size(row.at("grad_accum"));
    job.param_dtype = DType::bfloat16;
    const json::Value precision = row.at("fsdp_mixed_precision");
    if (precision.string() != "DEFAULT" && precision.string() != "PURE") {
        precision.fail("\"DEFAULT\" or \"PURE\"");
    }
    job.reduce_dtype = precision.string() == "DEFAULT" ? DType::float32 : DType::bfloat16;
    job.buffer_dtype = job.param_dtype;
    job.backward_prefetch = BackwardPrefetch::post;
    job.use_orig_params = true;
    job.clip_norm = 2.0;
    job.fsdp1.built_on_device = true;
    job.output = OutputLife::next_forward;  // Composer's state keeps it
    job.zero_grad_first = true;
    if (row.at("activation_checkpointing").boolean()) {
        job.activation_checkpointing.mode = ActivationCheckpointing::Mode::blocks;
    }
    job.optimizer.implementation = Optimizer::Implementation::for_loop;
    return job;
}

PublishedRow read_row(const json::Value& common, const Cells& row) {
    const Hardware& machine = hardware_of(row.at("gpu"));
    const std::int64_t gpus = size(row.at("gpus"));
    PublishedRow out{.table = std::string(machine.table), .id = std::string(row.at("id").string())};
    if (row.at("activation_cpu_offload").boolean()) {
        out.outside = "activations in host memory are not modelled";
        return out;
    }
    out.run.config = config_of(common, row);
    out.run.parameters = row.at("n_params").integer(1, largest_total);
    out.run.job = job_of(row, gpus);
    // The table's sweep.sh pins llm-foundry 0.0.4, which is older than FlashAttention 2.
    out.run.flash_attention = 1;
    out.run.cluster = machines(machine.gpu, gpus);
    out.run.cluster.cluster = machine.cluster;
    out.tokens_per_s = amount(row.at("tokens_per_s")) / static_cast<double>(gpus);
    out.fits = true;
    return out;
}

std::vector<PublishedRow> read(const json::Value& file) {
    return rows_of(file, [&](const json::Value& row) {
        return read_row(file.at("common"), Cells(file.at("columns"), row));
    });
}

}  // namespace

extern const PublishedSource llm_foundry_mpt;
constinit const PublishedSource llm_foundry_mpt{
    .repository = "mosaicml/llm-foundry", .key = "columns", .read = read};

}  // namespace fsdplan::builtin::published_source
