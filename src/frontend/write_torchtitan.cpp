#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "frontend/compare_plans.hpp"
#include "frontend/writers.hpp"

// torchtitan's TOML.
namespace fsdplan::frontend {
namespace {

const char* shown(bool value) {
    return value ? "true" : "false";
}

[[noreturn]] void refuse(const std::string& why) {
    throw Error(ErrorKind::input, "settings of torchtitan", why);
}

std::string_view reshard_word(const PlanToWrite& plan) {
    const auto frees = [&](auto which) {
        const auto unit = std::ranges::find_if(plan.plan.units, which);
        return unit != plan.plan.units.end() && reshard_of(*unit, plan.job) != 0;
    };
    const bool layers =
        frees([](const Unit& unit) { return at(unit.module) != 0 && unit.modules.size() == 1; });
    const bool ends = frees([](const Unit& unit) { return unit.modules.size() > 1; });
    return !layers ? "never" : ends ? "always" : "default";
}

/// Listed modules as a mode that means the same ones.
ActivationCheckpointing mode_of(const ActivationCheckpointing& wanted, const ModuleTree& tree) {
    if (wanted.modules.empty()) {
        return wanted;
    }
    const std::vector<ModuleIndex> modules = wanted.regions(tree);
    ActivationCheckpointing out{.mode = ActivationCheckpointing::Mode::blocks, .wrapped = true};
    const auto blocks = static_cast<int>(out.regions(tree).size());
    for (out.every = 1; out.every <= blocks; ++out.every) {
        out.mode =
            out.every == 1 ? ActivationCheckpointing::Mode::blocks : ActivationCheckpointing::Mode::every;
        if (out.regions(tree) == modules) {
            return out;
        }
    }
    refuse("checkpoint every n-th block, and the plan other modules");
}

std::string checkpoint_lines(const ActivationCheckpointing& checkpointing) {
    using Mode = ActivationCheckpointing::Mode;
    switch (checkpointing.mode) {
        case Mode::blocks:
            return "mode = \"full\"\n";
        case Mode::every:
            return fmt::format("mode = \"selective\"\nselective_ac_option = \"{}\"\n", checkpointing.every);
        case Mode::selective:
            return "mode = \"selective\"\nselective_ac_option = \"op\"\n";
        case Mode::none:
            break;
    }
    return "mode = \"none\"\n";
}

std::string optimizer_lines(const Optimizer& optimizer) {
    if (optimizer.kind != "adam" && optimizer.kind != "adamw") {
        refuse("know Adam and AdamW, and the plan's optimizer is " + name(optimizer));
    }
    const bool loops = optimizer.implementation == Optimizer::Implementation::for_loop;
    return fmt::format("name = \"{}\"\nimplementation = \"{}\"\n",
                       optimizer.kind == "adam" ? "Adam" : "AdamW",
                       loops ? "for-loop" : name(optimizer.implementation));
}

std::string_view stored_dtype(const ModuleTree& tree) {
    const auto trained = std::ranges::find_if(tree.tensors, [](const Tensor& tensor) {
        return tensor.requires_grad && is_floating_point(tensor.dtype);
    });
    return name(trained == tree.tensors.end() ? DType::float32 : trained->dtype);
}

}  // namespace

std::string write_torchtitan(const PlanToWrite& plan) {
    const TrainingJob& job = plan.job;
    if (job.runtime != "fsdp2") {
        refuse("say fully_shard only, and the plan's runtime is " + job.runtime);
    }
    if (job.no_sync && job.accumulate > 1) {
        refuse("reduce gradients in every micro-batch, and the plan only in the last one");
    }
    std::string out = "# Written by fsdplan. Left to torchtitan's code: loss " + name(job.loss) +
                      ", attention " + std::string(name(job.attention)) + "\n";
    out += fmt::format(
        "[parallelism]\ndata_parallel_replicate_degree = {}\ndata_parallel_shard_degree = {}\n"
        "fsdp_reshard_after_forward = \"{}\"\n\n",
        job.mesh.replicate, job.mesh.shard, reshard_word(plan));
    out += fmt::format(
        "[training]\nlocal_batch_size = {}\nglobal_batch_size = {}\nseq_len = {}\nmax_norm = {}\n"
        "enable_cpu_offload = {}\nmixed_precision_param = \"{}\"\nmixed_precision_reduce = \"{}\"\n"
        "dtype = \"{}\"\n\n",
        job.batch, job.batch * job.accumulate * job.mesh.ranks(), job.sequence, job.clip_norm ? "1.0" : "0.0",
        shown(job.offload), name(job.param_dtype.value_or(DType::float32)),
        name(reduction_dtype(job).value_or(DType::float32)), stored_dtype(plan.tree));
    out += "[activation_checkpoint]\n" + checkpoint_lines(mode_of(job.activation_checkpointing, plan.tree));
    out += "\n[optimizer]\n" + optimizer_lines(job.optimizer);
    return out;
}

}  // namespace fsdplan::frontend
