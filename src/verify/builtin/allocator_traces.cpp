#include <algorithm>
#include <filesystem>

#include "base/file.hpp"
#include "base/json.hpp"
#include "fsdplan/allocator.hpp"
#include "fsdplan/verify.hpp"
#include "verify/allocator_trace.hpp"
#include "verify/case_report.hpp"
#include "verify/format.hpp"

// The caching allocator of PyTorch, recorded step by step under one PYTORCH_ALLOC_CONF a file, and a list of
// option strings with what became of them (docs/formats.md).
namespace fsdplan {
namespace {

void replay_traces(const json::Value& file, const std::string& name, Verification& out) {
    require_version(file, "schema");
    const json::Value conf = file.at("conf");
    const AllocatorOptions options = parse_alloc_conf(conf.string(), conf.where());
    CachingAllocator allocator{Bytes{0}};
    std::size_t number = 0;
    for (const json::Value trace : file.at("traces").elements()) {
        CaseReport report(name + " trace " + std::to_string(number++) + " (" +
                          std::string(trace.at("name").string()) + ")");
        allocator.reset(Bytes{trace.at("memory").integer(0, CachingAllocator::most_memory.count)}, options);
        replay_trace(trace, allocator, report);
        report.close(out);
    }
}

// What one request of 3 MiB reserves under each option string, or that PyTorch refuses the string.
void replay_options(const json::Value& file, const std::string& name, Verification& out) {
    for (const json::Value row : file.elements()) {
        const std::string_view conf = row.at("conf").string();
        CaseReport report(name + " \"" + std::string(conf) + "\"");
        std::string expected = "refused";
        if (const auto reserved = row.find("reserved")) {
            expected = reserved->shown() + " bytes";
        } else if (row.at("error").string() == "OutOfMemoryError") {
            expected = "out of memory";
        }
        std::string got;
        try {
            CachingAllocator allocator(80_GiB, parse_alloc_conf(conf));
            got = allocator.allocate(3_MiB, 0).out_of_memory()
                      ? "out of memory"
                      : std::to_string(allocator.statistics().reserved_bytes) + " bytes";
        } catch (const Error&) {
            got = "refused";
        }
        report.compare("outcome", expected, got);
        report.close(out);
    }
}

bool has(std::string_view head, std::initializer_list<std::string_view> keys) {
    return std::ranges::all_of(keys, [&](std::string_view key) { return head.find(key) != head.npos; });
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo allocator_traces;
constinit const RecordingInfo allocator_traces{
    .name = "allocator",
    .help = "allocator traces (NAME.json[.gz] with conf and traces, or options.json)",
    .recognises =
        [](const std::string& path, std::string_view head) {
            const bool json = path.ends_with(".json") || path.ends_with(".json.gz");
            return json && (has(head, {"\"schema\"", "\"conf\"", "\"traces\""}) ||
                            (head.starts_with("[") && has(head, {"\"conf\"", "\"reserved\""})));
        },
    .replay =
        [](const std::string& path, Verification& out) {
            const json::Document document(read_text(path), path);
            const std::string name = std::filesystem::path(path).filename().string();
            const auto replay = document.root().is_array() ? replay_options : replay_traces;
            replay(document.root(), name, out);
        },
};

}  // namespace builtin::recording
}  // namespace fsdplan
