#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fsdplan/model.hpp"

namespace fsdplan::cli {

class Arguments;

/// The model that a command is about, and what the user changes in it before anything else looks at it.
struct ModelOptions {
    std::string model;
    std::optional<std::string> dtype;
    std::optional<std::string> lora;
    std::vector<std::string> freeze;

    void declare(Arguments& arguments);
    /// Reads the model and applies the options; throws Error(input) for what cannot be used.
    ModelGraph load() const;
};

/// Where the result goes.
struct OutputOptions {
    bool json = false;
    std::string file;

    /// `formats` is what `-o` may write, for its help: "JSON", "JSON or HTML by the suffix".
    void declare(Arguments& arguments, const std::string& formats);
    /// Throws Error(input) when `-o` names anything but a .json file.
    void expect_json() const;
};

/// Prints "note: …" lines to stderr, where they do not get between the results.
void print_notes(const std::vector<std::string>& notes);

}  // namespace fsdplan::cli
