#include "verify/published/torchtitan.hpp"

#include <array>

// torchtitan's own tables of Llama 2, 3 and 3.1.
namespace fsdplan::builtin::published_source {
namespace {

using namespace published;

struct Section {
    std::string_view key;
    TorchtitanTable table;
};
constexpr std::array<Section, 4> sections{
    {{"rows_h100", {"torchtitan on H100", "h100-96gb-sxm", torchtitan_of_december}},
     {"rows_a100", {"torchtitan on A100", "a100-80gb-sxm", torchtitan_of_april}},
     {"rows_405b_128gpu", {"torchtitan 405B on H100", "h100-96gb-sxm", torchtitan_of_december}},
     {"rows_b200", {"torchtitan on B200", "b200", torchtitan_of_december}}}};

std::vector<PublishedRow> read(const json::Value& file) {
    std::vector<PublishedRow> out;
    for (const Section& section : sections) {
        add_rows(
            file, section.key,
            [&](const json::Value& row) { return torchtitan_row(file, row, section.table); }, out);
    }
    return out;
}

}  // namespace

extern const PublishedSource torchtitan;
constinit const PublishedSource torchtitan{
    .repository = "pytorch/torchtitan", .key = "rows_h100", .read = read};

}  // namespace fsdplan::builtin::published_source
