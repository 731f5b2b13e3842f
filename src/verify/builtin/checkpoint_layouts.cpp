#include <filesystem>

#include "fsdplan/stored_checkpoint.hpp"
#include "verify/checkpoint_layout.hpp"
#include "verify/format.hpp"

// Checkpoints that PyTorch wrote, described byte by byte; the files of some lie beside in files/.
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.checkpoint-layout";

/// Whether our two readers of safetensors take a file, as the library's verdict on a file is worded.
std::string verdict_on(const std::filesystem::path& path) {
    std::string verdict;
    for (const bool as_model : {false, true}) {
        try {
            if (as_model) {
                import_model(path.string());
            } else {
                read_checkpoint(path.string());
            }
            verdict += verdict.empty() ? "accepted" : "";
        } catch (const Error&) {
            verdict = verdict == "accepted" ? "accepted as a checkpoint, not as a model" : "refused";
        }
    }
    return verdict;
}

void compare_with_files(json::Value item, const std::filesystem::path& folder, CaseReport& report) {
    const LayoutLines described = described_lines(item);
    try {
        compare_lines(described, found_lines(item, folder), report);
        const StoredCheckpoint checkpoint = read_checkpoint(folder.string());
        report.compare("complete", "yes", checkpoint.is_complete() ? "yes" : "no");
    } catch (const Error& error) {
        report.compare("files", "can be read", error.what());
    }
}

void replay(const json::Value& recording, const std::string& path, Verification& out) {
    const std::filesystem::path files = std::filesystem::path(path).parent_path() / "files";
    std::error_code ignored;
    for (const json::Value item : recording.at("items").members()) {
        if (item.find("error")) {
            skip_case(std::string(item.key()), "PyTorch could not save it", out);
            continue;
        }
        CaseReport report(std::string(item.key()));
        check_rules(item, report);
        if (const auto folder = files / item.key(); std::filesystem::is_directory(folder, ignored)) {
            compare_with_files(item, folder, report);
        }
        report.close(out);
    }
    for (const json::Value verdict : recording.at("safetensors_cases").members()) {
        const std::string name(verdict.key());
        const std::filesystem::path file = files / "safetensors_cases" / (name + ".safetensors");
        if (!std::filesystem::is_regular_file(file, ignored)) {
            skip_case(name, "its file is not beside the recording", out);
            continue;
        }
        CaseReport report(name);
        report.compare("verdict", verdict.at("file").string() == "accepted" ? "accepted" : "refused",
                       verdict_on(file));
        report.close(out);
    }
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo checkpoint_layouts;
constinit const RecordingInfo checkpoint_layouts{
    .name = "checkpoint layouts",
    .help = "files of checkpoints (JSON with the format fsdplan.checkpoint-layout)",
    .recognises = of_format<format>,
    .replay = replay_json<replay>,
};

}  // namespace builtin::recording
}  // namespace fsdplan
