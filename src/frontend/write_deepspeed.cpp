#include <fmt/core.h>

#include <utility>
#include <vector>

#include "base/json.hpp"
#include "frontend/writers.hpp"

// A DeepSpeed configuration.
namespace fsdplan::frontend {
namespace {

using Members = std::vector<std::pair<std::string, std::string>>;

std::string object(const Members& members, const std::string& indent) {
    std::string out;
    for (const auto& [key, value] : members) {
        out += (out.empty() ? "" : ",") + std::string("\n") + indent + "  " + json::quote(key) + ": " + value;
    }
    return "{" + out + "\n" + indent + "}";
}

std::string shown(bool value) {
    return value ? "true" : "false";
}

std::string zero(const TrainingJob& job, int stage) {
    const ZeroOptions& options = job.zero;
    const auto number = [](std::int64_t value) { return std::to_string(value); };
    Members out{{"stage", std::to_string(stage)},
                {"reduce_bucket_size", number(options.reduce_bucket_size)},
                {"overlap_comm", shown(options.overlap_comm)},
                {"contiguous_gradients", shown(options.contiguous_gradients)},
                {"reduce_scatter", shown(options.reduce_scatter)},
                {"use_multi_rank_bucket_allreduce", shown(options.use_multi_rank_bucket_allreduce)},
                {"round_robin_gradients", shown(options.round_robin_gradients)},
                {"parameter_alignment", shown(options.parameter_alignment)}};
    if (stage == 3) {
        const Members of_stage_3{
            {"sub_group_size", number(options.sub_group_size)},
            {"stage3_prefetch_bucket_size", number(options.prefetch_bucket_size)},
            {"stage3_max_live_parameters", number(options.max_live_parameters)},
            {"stage3_max_reuse_distance", number(options.max_reuse_distance)},
            {"stage3_param_persistence_threshold", number(options.param_persistence_threshold)},
            {"stage3_model_persistence_threshold", number(options.model_persistence_threshold)},
            {"stage3_allgather_sequential", shown(options.allgather_sequential)},
            {"stage3_use_all_reduce_for_fetch_params", shown(options.use_all_reduce_for_fetch_params)}};
        out.insert(out.end(), of_stage_3.begin(), of_stage_3.end());
    }
    return object(out, "  ");
}

std::string_view short_name_of(DType dtype) {
    return dtype == DType::float16 ? "fp16" : dtype == DType::bfloat16 ? "bf16" : "fp32";
}

}  // namespace

std::string write_deepspeed(const PlanToWrite& plan) {
    const TrainingJob& job = plan.job;
    const int stage = job.runtime == "ddp"     ? 0
                      : job.runtime == "zero1" ? 1
                      : job.runtime == "zero2" ? 2
                      : job.runtime == "zero3" ? 3
                                               : -1;
    if (stage < 0) {
        throw Error(ErrorKind::input, "settings of DeepSpeed",
                    "say ZeRO and plain data parallelism, and the plan's runtime is " + job.runtime);
    }
    Members out{{"train_micro_batch_size_per_gpu", std::to_string(job.batch)},
                {"gradient_accumulation_steps", std::to_string(job.accumulate)},
                {"gradient_clipping", job.clip_norm ? "1.0" : "0.0"},
                {"zero_optimization", zero(job, stage)}};
    for (const DType dtype : {DType::bfloat16, DType::float16}) {
        if (job.param_dtype == dtype) {
            out.emplace_back(short_name_of(dtype), "{\"enabled\": true}");
        }
    }
    if (job.reduce_dtype) {
        out.emplace_back("communication_data_type", json::quote(short_name_of(*job.reduce_dtype)));
    }
    if (job.zero.float32_accumulation) {
        out.emplace_back("data_types", "{\"grad_accum_dtype\": \"fp32\"}");
    }
    const bool adam = job.optimizer.kind == "adam" || job.optimizer.kind == "adamw";
    if (adam && job.optimizer.implementation == Optimizer::Implementation::fused) {
        out.emplace_back("optimizer", job.optimizer.kind == "adamw"
                                          ? R"({"type": "AdamW"})"
                                          : R"({"type": "Adam", "params": {"adam_w_mode": false}})");
    }
    return object(out, "") + "\n";
}

}  // namespace fsdplan::frontend
