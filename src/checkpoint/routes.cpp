#include <algorithm>
#include <array>

#include "fsdplan/compatibility.hpp"

namespace fsdplan {
namespace {

using Form = StateRequest::Form;

constexpr std::array save_table{
    SaveRoute{.name = "fsdp1_full",
              .help = "FULL_STATE_DICT and optim_state_dict, rank 0 calls torch.save",
              .container = Container::full_file,
              .offload_breaks_model = true},
    SaveRoute{.name = "fsdp1_full_dcp",
              .help = "FULL_STATE_DICT on every rank through DCP",
              .container = Container::dcp},
    SaveRoute{.name = "fsdp1_sharded",
              .help = "SHARDED_STATE_DICT, every rank calls torch.save",
              .container = Container::rank_files,
              .form = Form::sharded},
    SaveRoute{.name = "fsdp1_sharded_dcp",
              .help = "SHARDED_STATE_DICT through DCP",
              .container = Container::dcp,
              .form = Form::sharded},
    SaveRoute{.name = "fsdp1_local",
              .help = "LOCAL_STATE_DICT, every rank calls torch.save",
              .container = Container::rank_files,
              .form = Form::local,
              .optimizer = StateKeys::by_position},
    SaveRoute{.name = "fsdp1_local_dcp",
              .help = "LOCAL_STATE_DICT of the model through DCP",
              .container = Container::dcp,
              .form = Form::local,
              .optimizer = StateKeys::none},
    SaveRoute{.name = "naive_rank",
              .help = "state_dict() of model and optimizer as they are, every rank calls torch.save",
              .container = Container::rank_files,
              .optimizer = StateKeys::by_position},
    SaveRoute{.name = "naive_rank0",
              .help = "the same, only rank 0 calls torch.save",
              .container = Container::full_file,
              .optimizer = StateKeys::by_position},
    SaveRoute{.name = "dsd_full",
              .help = "get_state_dict with full_state_dict=True, rank 0 calls torch.save",
              .container = Container::full_file,
              .offload_breaks_model = true},
    SaveRoute{.name = "dsd_dcp",
              .help = "get_state_dict through DCP",
              .container = Container::dcp,
              .form = Form::sharded},
    SaveRoute{.name = "dsd_dcp_flat",
              .help = "the same with flatten_optimizer_state_dict=True",
              .container = Container::dcp,
              .form = Form::sharded,
              .optimizer = StateKeys::by_flattened_name},
    SaveRoute{.name = "dsd_dcp_async",
              .help = "get_state_dict through dcp.async_save",
              .container = Container::dcp,
              .form = Form::sharded,
              .staged = true},
    SaveRoute{.name = "plain_torch",
              .help = "an unwrapped model, torch.save",
              .container = Container::full_file,
              .optimizer = StateKeys::by_position},
    SaveRoute{.name = "plain_dcp",
              .help = "an unwrapped model through DCP",
              .container = Container::dcp,
              .optimizer = StateKeys::by_position},
    SaveRoute{.name = "safetensors",
              .help = "safetensors save_file of the full state dict",
              .container = Container::safetensors,
              .optimizer = StateKeys::none,
              .offload_breaks_model = true},
    SaveRoute{.name = "safetensors_save_model",
              .help = "safetensors save_model",
              .container = Container::safetensors,
              .optimizer = StateKeys::none},
    SaveRoute{.name = "hf_dcp",
              .help = "DCP in safetensors form, consolidated",
              .container = Container::hf_safetensors,
              .form = Form::sharded,
              .optimizer = StateKeys::none},
    SaveRoute{.name = "hf_dcp_sharded",
              .help = "DCP in safetensors form, a file of each rank",
              .container = Container::hf_safetensors,
              .form = Form::sharded,
              .optimizer = StateKeys::none},
};

constexpr std::array load_table{
    LoadRoute{"fsdp1_full", "FULL_STATE_DICT, every rank reads the file", Container::full_file,
              ModelLoader::fsdp1_full, OptimizerLoader::fsdp1},
    LoadRoute{.name = "fsdp1_full_rank0_optim",
              .help = "the same, only rank 0 has the optimizer's dict",
              .container = Container::full_file,
              .model = ModelLoader::fsdp1_full,
              .optimizer = OptimizerLoader::fsdp1,
              .rank0_optimizer = true},
    LoadRoute{"rank0_sync", "rank 0 reads, FSDP1 broadcasts when it wraps", Container::full_file,
              ModelLoader::rank0_sync, OptimizerLoader::none},
    LoadRoute{"fsdp1_sharded", "SHARDED_STATE_DICT, every rank reads its file", Container::rank_files,
              ModelLoader::fsdp1_sharded, OptimizerLoader::fsdp1},
    LoadRoute{"fsdp1_sharded_dcp", "SHARDED_STATE_DICT through DCP", Container::dcp,
              ModelLoader::fsdp1_sharded, OptimizerLoader::fsdp1_from_dcp},
    LoadRoute{"fsdp1_local", "LOCAL_STATE_DICT, every rank reads its file", Container::rank_files,
              ModelLoader::fsdp1_local, OptimizerLoader::raw},
    LoadRoute{"fsdp1_local_dcp", "LOCAL_STATE_DICT through DCP, the model alone", Container::dcp,
              ModelLoader::fsdp1_local, OptimizerLoader::none},
    LoadRoute{"naive_rank", "load_state_dict() as it is, every rank reads its file", Container::rank_files,
              ModelLoader::module, OptimizerLoader::raw},
    LoadRoute{"naive_full", "load_state_dict() as it is, every rank reads the one file", Container::full_file,
              ModelLoader::module, OptimizerLoader::raw},
    LoadRoute{"plain_torch", "an unwrapped model, torch.load", Container::full_file, ModelLoader::module,
              OptimizerLoader::raw},
    LoadRoute{"plain_dcp", "an unwrapped model through DCP", Container::dcp, ModelLoader::module,
              OptimizerLoader::joint_dcp},
    LoadRoute{"dsd_full", "set_state_dict with full_state_dict=True, every rank reads the file",
              Container::full_file, ModelLoader::version_neutral_full, OptimizerLoader::version_neutral},
    LoadRoute{.name = "dsd_full_bcast",
              .help = "the same with broadcast_from_rank0=True, rank 0 reads the file",
              .container = Container::full_file,
              .model = ModelLoader::version_neutral_broadcast,
              .optimizer = OptimizerLoader::version_neutral,
              .rank0_optimizer = true},
    LoadRoute{"dsd_dcp", "set_state_dict through DCP", Container::dcp, ModelLoader::version_neutral_pieces,
              OptimizerLoader::version_neutral},
    LoadRoute{.name = "dsd_dcp_flat",
              .help = "the same with flatten_optimizer_state_dict=True",
              .container = Container::dcp,
              .model = ModelLoader::version_neutral_pieces,
              .optimizer = OptimizerLoader::version_neutral,
              .flat_names = true},
    LoadRoute{.name = "dcp_to_torch_dsd_full",
              .help = "dcp_to_torch_save, then as dsd_full",
              .container = Container::dcp,
              .model = ModelLoader::version_neutral_full,
              .optimizer = OptimizerLoader::version_neutral,
              .converts = true},
    LoadRoute{.name = "dcp_to_torch_plain",
              .help = "dcp_to_torch_save, then as plain_torch",
              .container = Container::dcp,
              .model = ModelLoader::module,
              .optimizer = OptimizerLoader::raw,
              .converts = true},
    LoadRoute{"safetensors", "safetensors load_file", Container::safetensors,
              ModelLoader::version_neutral_full, OptimizerLoader::none},
    LoadRoute{"hf_dcp", "DCP's reader of safetensors", Container::hf_safetensors,
              ModelLoader::version_neutral_pieces, OptimizerLoader::none},
};

template <typename Table>
auto* find_route(const Table& table, std::string_view name) {
    const auto found = std::ranges::find(table, name, [](const auto& route) { return route.name; });
    return found == table.end() ? nullptr : &*found;
}

}  // namespace

std::span<const SaveRoute> save_routes() {
    return save_table;
}

const SaveRoute* find_save_route(std::string_view name) {
    return find_route(save_table, name);
}

std::span<const LoadRoute> load_routes() {
    return load_table;
}

const LoadRoute* find_load_route(std::string_view name) {
    return find_route(load_table, name);
}

}  // namespace fsdplan
