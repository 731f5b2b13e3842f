#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "fsdplan/planner.hpp"

// What the reports for a terminal have in common.
namespace fsdplan {

constexpr std::size_t text_width = 100;  ///< columns

/// Text cut to `columns`, with "..." where something is missing.
std::string fitted(const std::string& text, std::size_t columns);

/// Words in lines of at most `text_width`, those after the first behind `indent` spaces.
std::string wrapped(const std::string& text, std::size_t indent);

/// "Head       text", further lines below the text.
std::string row(std::string_view head, const std::string& text);

/// "the root" for the empty path.
std::string shown_path(const std::string& path);

/// Model, GPUs and job in two paragraphs.
std::string question_lines(const SweepQuestion& question, const TrainingJob& job);

}  // namespace fsdplan
