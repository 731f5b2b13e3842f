#include "fsdplan/checkpoint_cost.hpp"

namespace fsdplan {
namespace {

constexpr std::string_view dcp_imports =
    "import torch.distributed.checkpoint as dcp\n"
    "from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, "
    "set_state_dict\n\n";

std::string options(bool full, bool offload, bool broadcast) {
    std::string text;
    const auto add = [&](bool given, std::string_view option) {
        if (given) {
            text += (text.empty() ? "" : ", ") + std::string(option) + "=True";
        }
    };
    add(full, "full_state_dict");
    add(offload, "cpu_offload");
    add(broadcast, "broadcast_from_rank0");
    return text.empty() ? std::string() : ", options=StateDictOptions(" + text + ")";
}

std::string through_dcp(const CheckpointFormat& format) {
    const bool async = format.staging != Staging::none;
    const std::string states =
        "get_state_dict(model, optimizer" + options(false, format.model.offload, false) + ")\n";
    std::string code(dcp_imports);
    if (format.staging == Staging::kept) {
        code +=
            "from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions\n\n"
            "stager = DefaultStager(StagingOptions(use_pinned_memory=True, use_shared_memory=False,\n"
            "                                      use_async_staging=False,\n"
            "                                      use_non_blocking_copy=False))\n";
    }
    code += "states = dict(zip((\"model\", \"optim\"), " + states.substr(0, states.size() - 1) + "))\n";
    code += async ? "saving = dcp.async_save(states, checkpoint_id=path" +
                        std::string(format.staging == Staging::kept ? ", async_stager=stager" : "") + ")\n"
                  : std::string("dcp.save(states, checkpoint_id=path)\n");
    code += async ? "saving.result()  # before the next one\n" : "";
    code +=
        "# to load, into any number of ranks:\n"
        "states = dict(zip((\"model\", \"optim\"), get_state_dict(model, optimizer)))\n"
        "dcp.load(states, checkpoint_id=path)\n"
        "set_state_dict(model, optimizer, model_state_dict=states[\"model\"],\n"
        "               optim_state_dict=states[\"optim\"])\n";
    return code;
}

std::string as_safetensors() {
    return "import torch.distributed.checkpoint as dcp\n"
           "from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, "
           "HuggingFaceStorageWriter\n"
           "from torch.distributed.checkpoint.state_dict import get_model_state_dict, "
           "set_model_state_dict\n\n"
           "dcp.save(get_model_state_dict(model), storage_writer=HuggingFaceStorageWriter(\n"
           "    path, save_distributed=True, enable_consolidation=True))\n"
           "# to load:\n"
           "state = get_model_state_dict(model)\n"
           "dcp.load(state, storage_reader=HuggingFaceStorageReader(path))\n"
           "set_model_state_dict(model, state)\n";
}

std::string whole_file(const CheckpointFormat& format) {
    std::string code(dcp_imports.substr(dcp_imports.find('\n') + 1));
    code += "model_state, optim_state = get_state_dict(model, optimizer" +
            options(true, format.model.offload, false) +
            ")  # on every rank\n"
            "if torch.distributed.get_rank() == 0:\n"
            "    torch.save({\"model\": model_state, \"optim\": optim_state}, path)\n"
            "# to load: rank 0 reads, the others get it tensor by tensor\n"
            "rank0 = torch.distributed.get_rank() == 0\n"
            "states = torch.load(path, mmap=True) if rank0 else {\"model\": {}, \"optim\": {}}\n"
            "set_state_dict(model, optimizer, model_state_dict=states[\"model\"],\n"
            "               optim_state_dict=states[\"optim\"]" +
            options(true, false, true) + ")\n";
    return code;
}

std::string fsdp1_type(const CheckpointFormat& format) {
    const bool full = format.model.form == StateRequest::Form::full;
    const std::string type = full                                               ? "Full"
                             : format.model.form == StateRequest::Form::sharded ? "Sharded"
                                                                                : "Local";
    const auto arguments = [&](const StateRequest& request) {
        std::string text = std::string("offload_to_cpu=") + (request.offload ? "True" : "False");
        return text + (full ? std::string(", rank0_only=") + (request.rank0_only ? "True" : "False") : "");
    };
    const std::string upper = full ? "FULL" : type == "Sharded" ? "SHARDED" : "LOCAL";
    const bool own_states = type == "Local";
    std::string code =
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType\n"
        "from torch.distributed.fsdp import " +
        type + "OptimStateDictConfig, " + type + "StateDictConfig\n\n" +
        "with FSDP.state_dict_type(model, StateDictType." + upper + "_STATE_DICT,\n" +
        "                          " + type + "StateDictConfig(" + arguments(format.model) +
        "),\n                          " + type + "OptimStateDictConfig(" + arguments(format.optimizer) +
        ")):\n" + "    states = {\"model\": model.state_dict(),  # on every rank\n" +
        "              \"optim\": " +
        (own_states ? "optimizer.state_dict()" : "FSDP.optim_state_dict(model, optimizer)") + "}\n";
    code += full ? "if torch.distributed.get_rank() == 0:\n    torch.save(states, path)\n"
                 : "torch.save(states, f\"{path}/rank{torch.distributed.get_rank()}.pt\")\n";
    return code;
}

}  // namespace

std::string checkpoint_code(const CheckpointFormat& format) {
    switch (format.writer) {
        case CheckpointWriter::dcp:
            return through_dcp(format);
        case CheckpointWriter::dcp_safetensors:
            return as_safetensors();
        case CheckpointWriter::rank0:
            return format.runtime == StateRuntime::fsdp1 ? fsdp1_type(format) : whole_file(format);
        case CheckpointWriter::every_rank:
            break;
    }
    if (format.runtime == StateRuntime::fsdp1) {
        return fsdp1_type(format);
    }
    return "torch.save({\"model\": model.state_dict(), \"optim\": optimizer.state_dict()},\n"
           "           f\"{path}/rank{torch.distributed.get_rank()}.pt\")  # for this very mesh only\n";
}

}  // namespace fsdplan
