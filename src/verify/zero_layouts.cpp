#include "verify/zero_layouts.hpp"

#include <algorithm>

#include "schedule/zero12.hpp"
#include "schedule/zero3.hpp"
#include "verify/traffic.hpp"
#include "verify/words.hpp"

namespace fsdplan {
namespace {

void compare_group(const json::Value& row, const zero::FlatGroup& group, const std::string& where,
                   const ZeroCase& run, CaseReport& report) {
    std::vector<std::string> expected;
    for (const json::Value parameter : row.at("params").elements()) {
        expected.push_back(joined(parameter));
    }
    std::vector<std::string> got;
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
        const std::int32_t parameter = group.parameters[i];
        got.push_back(joined({run.table.name_of(parameter),
                              std::to_string(run.parameters[static_cast<std::size_t>(parameter)].numel),
                              std::to_string(group.offsets[i])}));
    }
    compare_lines(where + " parameters", expected, got, report);
    const zero::Partition first = zero::partition_of(group, run.parameters, 0);
    const auto compare = [&](const char* key, const std::string& value) {
        if (const auto recorded = row.find(key)) {
            report.compare(where + " " + key, word_of(*recorded), value);
        }
    };
    compare("flat_numel", std::to_string(group.flat_numel));
    compare("partition_numel", std::to_string(group.partition_numel));
    compare("padding_rank0", std::to_string(first.padding));
    compare("first_offset_rank0", std::to_string(first.first_offset));
    compare("dtype", recorded_name(run.options.dtype));
    compare("master_dtype", recorded_name(DType::float32));
    if (const auto names = row.find("in_partition_rank0")) {
        report.compare(where + " in_partition_rank0", joined(names->strings()),
                       run.table.names_of(first.parameters));
    }
}

void compare_parameters(const json::Value& rows, const zero::Layout3& layout, const ZeroCase& run,
                        CaseReport& report) {
    std::vector<std::string> expected;
    for (const json::Value row : rows.elements()) {
        expected.push_back(joined({std::string(row.at("name").string()), row.at("numel").shown(),
                                   row.at("partition").shown(), row.at("stored").shown(),
                                   row.at("persist").boolean() ? "persists" : "goes"}));
    }
    std::vector<std::string> got;
    for (std::size_t i = 0; i < run.parameters.size(); ++i) {
        const auto row = static_cast<std::int32_t>(i);
        const std::string part = std::to_string(layout.partition_numel[i]);
        const bool persists = std::ranges::find(layout.persistent, row) != layout.persistent.end();
        got.push_back(joined({run.table.name_of(row), std::to_string(run.parameters[i].numel), part, part,
                              persists ? "persists" : "goes"}));
    }
    compare_lines("layout", expected, got, report);
}

void compare_sub_groups(const json::Value& recorded, const zero::Layout3& layout, const ZeroCase& run,
                        CaseReport& report) {
    std::vector<std::string> expected;
    for (const json::Value names : recorded.at("sub_groups").elements()) {
        expected.push_back(joined(names.strings()));
    }
    std::vector<std::string> got;
    for (const std::vector<std::int32_t>& sub_group : layout.sub_groups) {
        got.push_back(run.table.names_of(sub_group));
    }
    compare_lines("sub-groups", expected, got, report);
    expected.clear();
    got.clear();
    for (const json::Value numel : recorded.at("sub_group_numel").elements()) {
        expected.push_back(numel.shown());
    }
    for (const std::int64_t numel : layout.sub_group_numel) {
        got.push_back(std::to_string(numel));
    }
    compare_lines("sub-group elements", expected, got, report);
}

}  // namespace

void compare_zero_groups(const json::Value& recording, const ZeroCase& run, CaseReport& report) {
    const auto layout = recording.find("layout");
    if (!layout || layout->is_null()) {
        return;
    }
    const std::vector<zero::FlatGroup> groups = zero::stored_groups(run.parameters, run.options);
    const json::Value recorded = layout->at("groups");
    report.compare("groups", std::to_string(recorded.size()), std::to_string(groups.size()));
    std::size_t g = 0;
    for (const json::Value row : recorded.elements()) {
        if (g < groups.size()) {
            compare_group(row, groups[g], "group " + std::to_string(g), run, report);
        }
        ++g;
    }
}

void compare_zero_partitions(const json::Value& recording, const ZeroCase& run, CaseReport& report) {
    const json::Value recorded = recording.at("layout");
    const zero::Layout3 layout = zero::layout3(run.parameters, run.options);
    compare_parameters(recorded.at("params"), layout, run, report);
    report.compare("persistent", joined(recorded.at("persistent").strings()),
                   run.table.names_of(layout.persistent));
    compare_sub_groups(recorded, layout, run, report);
}

}  // namespace fsdplan
