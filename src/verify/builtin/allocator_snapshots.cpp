#include <filesystem>
#include <map>
#include <optional>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/pickle.hpp"
#include "fsdplan/allocator.hpp"
#include "fsdplan/verify.hpp"
#include "verify/allocator_history.hpp"
#include "verify/case_report.hpp"

// Memory snapshots of PyTorch: the history of allocations in one is replayed, and every address has to come
// out. A JSON file beside it may hold what the allocator itself counted (docs/formats.md).
namespace fsdplan {
namespace {

constexpr std::uintmax_t largest_file = std::uintmax_t{1} << 28U;

std::string settings_of(const pickle::Value& snapshot) {
    if (const auto settings = snapshot.find("allocator_settings")) {
        if (const auto conf = settings->find("PYTORCH_CUDA_ALLOC_CONF")) {
            return std::string(conf->string());
        }
    }
    return "";
}

void compare_counts(const json::Value& counts, const CachingAllocator& allocator, std::int64_t blocks,
                    CaseReport& report) {
    const AllocatorStatistics& s = allocator.statistics();
    const std::map<std::string, std::int64_t> end{
        {"allocated", s.allocated_bytes}, {"active", s.active_bytes}, {"requested", s.requested_bytes},
        {"reserved", s.reserved_bytes},   {"segments", s.segments},   {"blocks", blocks}};
    const std::map<std::string, std::int64_t> peaks{
        {"allocated", s.allocated_peak_bytes}, {"active", s.active_peak_bytes},
        {"requested", s.requested_peak_bytes}, {"reserved", s.reserved_peak_bytes},
        {"retries", s.alloc_retries},          {"ooms", s.ooms}};
    for (const auto& [name, got] : end) {
        report.compare(name + " at the end", counts.at("at_end").at(name).shown(), std::to_string(got));
    }
    for (const auto& [name, got] : peaks) {
        report.compare("peak " + name, counts.at("peaks_since_start_of_history").at(name).shown(),
                       std::to_string(got));
    }
}

void replay_snapshot(const std::string& path, Verification& out) {
    const std::filesystem::path file(path);
    const std::string name = file.filename().string();
    const pickle::Document document(read_file(path, largest_file), path);
    std::filesystem::path beside = file;
    beside.replace_extension(".json");
    std::optional<json::Document> json;
    if (std::filesystem::exists(beside)) {
        json.emplace(read_text(beside), beside.string());
    }
    // Without the size of the device nothing is refused. A retry would then be missed, and show as a
    // difference.
    Bytes memory = CachingAllocator::most_memory;
    if (json) {
        if (const auto given = json->root().at("run").find("memory")) {
            memory = Bytes{given->integer(0, CachingAllocator::most_memory.count)};
        }
    }
    CachingAllocator allocator(memory, parse_alloc_conf(settings_of(document.root()), path));
    CaseReport report(name);
    try {
        const std::int64_t blocks = replay_history(document.root(), allocator, report);
        if (json) {
            compare_counts(json->root(), allocator, blocks, report);
        }
        report.close(out);
    } catch (const Unfit& unfit) {
        skip_case(name, unfit.reason, out);
    }
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo allocator_snapshots;
constinit const RecordingInfo allocator_snapshots{
    .name = "snapshot",
    .help = "memory snapshots (NAME.pickle of torch.cuda.memory._dump_snapshot, with or without NAME.json)",
    .recognises =
        [](const std::string& /*path*/, std::string_view head) {
            return head.starts_with('\x80') && head.find("segments") != head.npos;
        },
    .replay = replay_snapshot,
};

}  // namespace builtin::recording
}  // namespace fsdplan
