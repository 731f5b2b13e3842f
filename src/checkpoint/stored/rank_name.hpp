#pragma once

#include <string_view>

namespace fsdplan {

/// The rank in the name of a file of one rank: the number at the end of its stem, as in "rank3.pt" and
/// "pytorch_model_fsdp_rank3.bin"; -1: none, as in "pytorch_model-00001-of-00002.bin".
int rank_in_name(std::string_view name);

/// The rank that wrote "__3_0.distcp"; -1: another name.
int rank_of_distcp(std::string_view name);

/// The rank that wrote "shard-00004-model-00001-of-00001.safetensors" (they count from 1); -1: another name.
int rank_of_shard(std::string_view name);

}  // namespace fsdplan
