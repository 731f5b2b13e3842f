#include "verify/cuda_memory_live.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

namespace fsdplan {
namespace {

/// Rows of a recording and categories of ours that mean the same.
struct Kind {
    std::string_view name;
    std::vector<std::string_view> owners;  ///< behind the bar, or the whole text
    std::vector<Category> categories;
};

const std::vector<Kind>& kinds() {
    using enum Category;
    static const std::vector<Kind> known{
        {"sharded parameters", {"before|parameter"}, {shard, replicated}},
        {"optimizer states", {"before|optimizer state"}, {optimizer}},
        {"kept gradients", {"before|gradient", "gradient"}, {gradient_shard}},
        {"buffers, inputs and workspaces",
         {"before|buffer", "before|other"},
         {module_buffer, input, workspace}},
        {"gathered parameters",
         {"@unsharded", "@all-gather", "@low-precision shard"},
         {unsharded, gather_buffer, gather_input, low_precision_shard, post_forward_shard}},
        {"reductions", {"@reduce"}, {reduce_input, reduce_output}},
        {"activations, loss and what backward computes",
         {},
         {gradient, activation, logits, temporary, optimizer_temporary}},
    };
    return known;
}

std::size_t kind_of(std::string_view what) {
    const std::string_view owner = what.substr(what.find('|') + 1);
    for (std::size_t k = 0; k + 1 < kinds().size(); ++k) {
        for (const std::string_view known : kinds()[k].owners) {
            if (known == what || known == owner) {
                return k;
            }
        }
    }
    return kinds().size() - 1;
}

std::vector<std::int64_t> recorded_bytes(const json::Value& rows) {
    std::vector<std::int64_t> out(kinds().size());
    for (const json::Value row : rows.elements()) {
        std::vector<json::Value> parts;
        for (const json::Value part : row.elements()) {
            parts.push_back(part);
        }
        if (parts.size() != 3) {
            row.fail("[what, bytes, how many]");
        }
        const std::int64_t bytes =
            checked_mul(parts[1].integer(0, largest_total), parts[2].integer(0, largest_total), row.where());
        std::int64_t& sum = out[kind_of(parts[0].string())];
        sum = checked_add(sum, bytes, row.where());
    }
    return out;
}

}  // namespace

void compare_live(const std::string& where, const json::Value& rows,
                  const std::array<std::int64_t, category_count>& got, CaseReport& report) {
    struct Row {
        std::string_view name;
        std::int64_t expected;
        std::int64_t got;
        std::int64_t distance() const { return expected > got ? expected - got : got - expected; }
    };
    constexpr std::size_t most_shown = 3;
    const std::vector<std::int64_t> expected = recorded_bytes(rows);
    std::vector<Row> found;
    for (std::size_t k = 0; k < kinds().size(); ++k) {
        Row row{.name = kinds()[k].name, .expected = expected[k], .got = 0};
        for (const Category category : kinds()[k].categories) {
            row.got += got[static_cast<std::size_t>(category)];
        }
        found.push_back(row);
    }
    std::ranges::stable_sort(found, std::ranges::greater{}, &Row::distance);
    for (std::size_t i = 0; i < std::min(most_shown, found.size()); ++i) {
        report.compare(where + " " + std::string(found[i].name), std::to_string(found[i].expected) + " bytes",
                       std::to_string(found[i].got) + " bytes");
    }
}

}  // namespace fsdplan
