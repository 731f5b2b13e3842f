#include "frontend/deepspeed.hpp"

#include "frontend/writers.hpp"

// A DeepSpeed configuration in JSON.
namespace fsdplan::builtin::frontend_file {

extern const FrontendInfo deepspeed;
constinit const FrontendInfo deepspeed{
    .name = "DeepSpeed",
    .option = "--deepspeed-config",
    .help = "JSON of a DeepSpeed configuration, \"auto\" as the transformers Trainer fills it",
    .read =
        [](const std::string& text, const std::string& file, const FrontendQuestion& about) {
            const json::Document document(text, file);
            return frontend::deepspeed_plan(document.root(), about, {});
        },
    .write = frontend::write_deepspeed,
    .extension = "deepspeed.json",
};

}  // namespace fsdplan::builtin::frontend_file
