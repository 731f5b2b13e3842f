#include "verify/published/torchtitan.hpp"

// torchao's float8 recipes, run through torchtitan, and its low-bit optimizers.
namespace fsdplan::builtin::published_source {
namespace {

using namespace published;

constexpr std::string_view table = "torchao on 8 H100";

PublishedRow read_row(const json::Value& file, const json::Value& row) {
    const json::Value common = file.at("common");
    const auto ac = checkpointing(common.at("ac").string());
    if (!ac) {
        common.at("ac").fail("\"none\", \"full\", \"selective op\" or \"selective layer (2)\"");
    }
    PublishedRow out = row_of(row, table);
    take_torchtitan(file, common, torchtitan_of_december, "fsdp2", out.run);
    out.run.job.activation_checkpointing = *ac;
    out.run.compiled = flag(common, "compile");
    out.run.cluster = machines("h100-96gb-sxm", out.run.job.mesh.ranks());
    out.peak_reserved_bytes = amount(row.at("peak_mem"), gib);
    out.tokens_per_s = amount(row.at("median_tps"));
    out.fits = true;
    return out;
}

std::vector<PublishedRow> read(const json::Value& file) {
    std::vector<PublishedRow> out =
        rows_of(file, [&](const json::Value& row) { return read_row(file, row); });
    add_rows(
        file, "optimizer_rows",
        [](const json::Value& row) {
            return outside_of(row, table, "its model, or the length of its sequences, is not stated");
        },
        out);
    return out;
}

}  // namespace

extern const PublishedSource torchao;
constinit const PublishedSource torchao{.repository = "pytorch/ao", .key = "optimizer_rows", .read = read};

}  // namespace fsdplan::builtin::published_source
