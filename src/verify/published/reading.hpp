#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "verify/published/row.hpp"

// What files of published measurements have in common.
namespace fsdplan::published {

/// A row of table `table` with its id.
PublishedRow row_of(const json::Value& row, std::string_view table);
/// The same, and why it is not predicted.
PublishedRow outside_of(const json::Value& row, std::string_view table, std::string reason);

/// Adds read(row) for each row of the list `key`.
template <typename Read>
void add_rows(const json::Value& file, std::string_view key, const Read& read,
              std::vector<PublishedRow>& out) {
    for (const json::Value row : file.at(key).elements()) {
        out.push_back(read(row));
    }
}
/// read(row) for each of the file's "rows".
template <typename Read>
std::vector<PublishedRow> rows_of(const json::Value& file, const Read& read) {
    std::vector<PublishedRow> out;
    add_rows(file, "rows", read, out);
    return out;
}

std::int64_t size(const json::Value& value);
bool flag(const json::Value& row, std::string_view key);
/// A positive number of `unit`s each.
double amount(const json::Value& value, double unit = 1.0);
std::optional<double> given_amount(const json::Value& row, std::string_view key, double unit = 1.0);
constexpr double gib = 1024.0 * 1024.0 * 1024.0;
constexpr double gigabyte = 1e9;

/// The sizes of the model that `row` names in the file's own list.
json::Value listed_model(const json::Value& file, const json::Value& row);
/// Takes for the model of `run` the one that `row` names in the file's own list.
void take_llama(const json::Value& file, const json::Value& row, PublishedRun& run);

/// `gpus` GPUs of a name of ours, eight a node as far as that divides.
ClusterRequest machines(std::string_view gpu, std::int64_t gpus);

/// "none", "full", "selective op", "selective layer (2)"; nothing for other words.
std::optional<ActivationCheckpointing> checkpointing(std::string_view words);

}  // namespace fsdplan::published
