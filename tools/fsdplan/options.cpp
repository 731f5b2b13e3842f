#include "options.hpp"

#include <fmt/core.h>

#include "arguments.hpp"

namespace fsdplan::cli {
namespace {

DType parse_dtype(const std::string& text) {
    const std::optional<DType> dtype = dtype_from_name(text);
    if (!dtype || !is_floating_point(*dtype)) {
        throw Error(ErrorKind::input, "--dtype",
                    "expected a floating-point dtype such as bfloat16, found \"" + text + '"' +
                        did_you_mean(text, dtype_names()));
    }
    return *dtype;
}

}  // namespace

void ModelOptions::declare(Arguments& arguments) {
    arguments.positional(
        "MODEL", model,
        "a file or folder (module tree, config.json, safetensors, ONNX), or a name of `fsdplan models`");
    arguments.option("--dtype", dtype, "store floating-point parameters in this dtype, not the model's own",
                     "DTYPE");
    arguments.option("--lora", lora, "add peft's adapters and freeze the rest: r=8,targets=q_proj+v_proj",
                     "SPEC");
    arguments.option("--freeze", freeze,
                     "no gradients for parameters at or below matching paths; may be repeated", "GLOB");
}

ModelGraph ModelOptions::load() const {
    const std::optional<DType> stored = dtype ? std::optional(parse_dtype(*dtype)) : std::nullopt;
    ModelGraph graph = import_model(model, {.dtype = stored});
    if (lora) {
        graph = with_lora(graph, parse_lora(*lora));
    }
    return freeze.empty() ? graph : with_frozen(graph, freeze);
}

void OutputOptions::declare(Arguments& arguments, const std::string& formats) {
    arguments.flag("--json", json, "print the result as JSON");
    arguments.option("-o,--output", file, "write the result to this file: " + formats, "FILE");
}

void OutputOptions::expect_json() const {
    if (!file.empty() && !file.ends_with(".json")) {
        throw Error(ErrorKind::input, "-o " + file, "expected a name that ends in .json");
    }
}

void print_notes(const std::vector<std::string>& notes) {
    for (const std::string& note : notes) {
        fmt::print(stderr, "note: {}\n", note);
    }
}

}  // namespace fsdplan::cli
