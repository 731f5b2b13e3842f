#include <algorithm>

#include "verify/published/torchtitan.hpp"

// FSDP1 beside FSDP2 on one run of Llama 2 7B, as torchtitan's pull request 165 gives it, and partial figures
// from other places.
namespace fsdplan::builtin::published_source {
namespace {

using namespace published;

constexpr std::string_view table = "FSDP1 and FSDP2 on 8 H100 (torchtitan PR 165)";

PublishedRow read_row(const json::Value& file, const json::Value& row) {
    const json::Value common = file.at("common");
    const json::Value runtime = row.at("impl");
    const auto ac = checkpointing(row.at("ac").string());
    if (runtime.string() != "FSDP1" && runtime.string() != "FSDP2") {
        runtime.fail("\"FSDP1\" or \"FSDP2\"");
    }
    if (!ac) {
        row.at("ac").fail("\"none\", \"full\", \"selective op\" or \"selective layer (2)\"");
    }
    PublishedRow out = row_of(row, table);
    take_torchtitan(file, common, torchtitan_of_march, runtime.string() == "FSDP1" ? "fsdp1" : "fsdp2",
                    out.run);
    out.run.job.activation_checkpointing = *ac;
    out.run.compiled = flag(row, "compile");
    out.run.cluster = machines("h100-96gb-sxm", out.run.job.mesh.ranks());
    out.peak_active_bytes = given_amount(row, "peak_active_gib", gib);
    out.peak_reserved_bytes = given_amount(row, "peak_reserved_gib", gib);
    if (const auto wps = row.given("wps_range")) {
        double sum = 0.0;  // the middle of the published range counts
        for (const json::Value end : wps->elements()) {
            sum += amount(end);
        }
        out.tokens_per_s = sum / static_cast<double>(std::max<std::size_t>(1, wps->size()));
    }
    out.fits = true;
    return out;
}

std::vector<PublishedRow> read(const json::Value& file) {
    std::vector<PublishedRow> out =
        rows_of(file, [&](const json::Value& row) { return read_row(file, row); });
    for (const char* rest : {"llama_recipes", "t5"}) {
        add_rows(
            file, rest,
            [](const json::Value& row) {
                return outside_of(row, table, "the batch and the length of its sequences are not stated");
            },
            out);
    }
    return out;
}

}  // namespace

extern const PublishedSource fsdp1_vs_fsdp2;
constinit const PublishedSource fsdp1_vs_fsdp2{
    .repository = "pytorch/torchtitan", .key = "llama_recipes", .read = read};

}  // namespace fsdplan::builtin::published_source
