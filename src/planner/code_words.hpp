#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/job.hpp"
#include "fsdplan/wrap.hpp"

// Pieces of the Python that code_of() writes.
namespace fsdplan {

/// More lines of names than this are no code that anybody reads.
constexpr std::size_t most_lines = 24;

/// The number with the fewest digits in [low, high].
std::int64_t readable_number(std::int64_t low, std::optional<std::int64_t> high);
/// "100_000_000"
std::string with_underscores(std::int64_t value);

struct Import {
    std::string line;  ///< empty: the class is of the script itself
    std::string word;
};
Import import_of(const std::string& class_name);

/// `imports` and those lines of `more` that are not among them.
std::string with_imports(std::string imports, std::string_view more);

/// "(A, B, )" without its parentheses, for isinstance; adds what has to be imported.
std::string class_tuple(std::span<const std::string> classes, std::string& imports);

/// Elements of a tuple of module names, inner modules before those around them; numbered ones in one line
/// where they count up.
std::vector<std::string> name_lines(std::vector<std::string> paths);
/// The same in the given order; numbered ones in one line where they count up or down.
std::vector<std::string> ordered_name_lines(std::span<const std::string> paths);
/// "(\n    LINE,\n    …)" at an indentation.
std::string tuple_of(std::span<const std::string> lines, std::string_view indent = "");

/// `"a", "b"`
std::string quoted_names(std::span<const std::string> paths);

/// "param_dtype=torch.bfloat16, …"; buffers only where the runtime knows them.
std::string precision_arguments(const TrainingJob& job, bool with_buffers);
/// Of a hybrid strategy; else nothing.
std::string mesh_lines(const TrainingJob& job);

}  // namespace fsdplan
