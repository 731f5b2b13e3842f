#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "fsdplan/cost.hpp"
#include "fsdplan/job.hpp"
#include "fsdplan/model.hpp"

namespace fsdplan {

/// What a publication says was run, in our words.
struct PublishedRun {
    /// Where the units are.
    enum class Units : std::uint8_t {
        blocks,               ///< every repeated block, and the root
        blocks_and_adapters,  ///< each layer of an adapter too
    };
    std::string config;                           ///< text of the model's config.json
    std::optional<std::int64_t> parameters = {};  ///< as published: the configuration must come to so many
    DType storage = DType::float32;
    std::optional<LoraOptions> lora = {};
    bool four_bit = false;  ///< frozen layers but the head have weights of four bits (QLoRA)
    Units units = Units::blocks;
    bool last_block_stays = false;  ///< FSDP2: every block is told to reshard after forward, the last not to
    bool compiled = false;          ///< torch.compile, which is not modelled: simulated as the eager program
    TrainingJob job;
    int flash_attention = 2;  ///< generation of its kernels
    ClusterRequest cluster;
};

/// One measurement of a published table. What the publication does not say is absent.
struct PublishedRow {
    std::string table;  ///< source and hardware, in words: errors are summed up by it, compiled rows apart
    std::string id;
    std::string outside = {};  ///< why nothing can be predicted; then nothing below is set
    PublishedRun run = {};     ///< what was run
    bool is_judged = true;     ///< false: a row to look at, whose settings are not all known

    std::optional<double> peak_active_bytes = {};
    std::optional<double> peak_reserved_bytes = {};
    std::optional<double> peak_allocated_bytes = {};
    std::optional<double> tokens_per_s = {};  ///< of one GPU
    std::optional<bool> fits = {};            ///< whether it ran on its GPU
};

/// One source of measurements. An entry is one file in src/verify/published/tables.
struct PublishedSource {
    std::string_view repository;  ///< under "source" in the file
    /// A key at the top of its file that no other file of this repository has.
    std::string_view key;
    /// Throws Error(input) for what such a file cannot hold.
    std::vector<PublishedRow> (*read)(const json::Value& file);
};

namespace builtin {
std::span<const PublishedSource* const> published_sources();
}  // namespace builtin

}  // namespace fsdplan
