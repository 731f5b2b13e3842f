#include <algorithm>

#include "base/file.hpp"
#include "fsdplan/wrap.hpp"
#include "wrap/policy_json.hpp"
#include "wrap/policy_text.hpp"

namespace fsdplan {
namespace {

constexpr const char* option = "--policy";

struct Words {
    std::string_view kind;
    std::string_view rest;
};

Words split_kind(std::string_view text) {
    const std::size_t colon = text.find(':');
    return {.kind = text.substr(0, colon),
            .rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1)};
}

void require_classes(const ModuleTree& tree, const std::vector<std::string>& names) {
    std::vector<Fault> faults = missing_classes(tree, names, option);
    if (!faults.empty()) {
        throw Error(ErrorKind::input, std::move(faults));
    }
}

std::vector<std::string> policy_kinds() {
    std::vector<std::string> kinds{"none", "class", "blocks", "rules", "calls"};
    for (const PolicyInfo* info : builtin::policies()) {
        kinds.emplace_back(info->name);
    }
    return kinds;
}

/// The policies that are not or-ed: each stands alone.
std::optional<PolicySpec> parse_single(const Words& words, const ModuleTree& tree) {
    PolicySpec spec;
    if (words.kind == "none") {
        return spec;
    }
    if (words.kind == "class") {
        spec.kind = PolicySpec::Kind::module_classes;
        spec.classes = split_list(words.rest);
        require_classes(tree, spec.classes);
        return spec;
    }
    if (words.kind == "blocks") {
        spec.kind = PolicySpec::Kind::module_classes;
        spec.classes = block_classes(tree);
        if (spec.classes.empty()) {
            throw Error(ErrorKind::input, option,
                        "this model has no repeated blocks; name classes with class:CLASS");
        }
        return spec;
    }
    if (words.kind == "rules" || words.kind == "calls") {
        const std::string file(words.rest);
        const json::Document document(read_text(file), file);
        if (words.kind == "rules") {
            spec.kind = PolicySpec::Kind::custom;
            spec.rules = read_rules(document.root());
        } else {
            spec.kind = PolicySpec::Kind::calls;
            spec.calls = read_calls(document.root(), {});
        }
        return spec;
    }
    return std::nullopt;
}

PolicySpec::Member parse_member(const Words& words, const ModuleTree& tree) {
    const auto known = builtin::policies();
    const auto info = std::ranges::find(known, words.kind, &PolicyInfo::name);
    if (info == known.end()) {
        const std::vector<std::string> kinds = policy_kinds();
        std::string all;
        for (const std::string& kind : kinds) {
            all += (all.empty() ? "" : ", ") + kind;
        }
        const std::string near = did_you_mean(words.kind, kinds);
        throw Error(ErrorKind::input, option,
                    "unknown policy \"" + std::string(words.kind) + '"' +
                        (near.empty() ? "; known are " + all : near));
    }
    PolicySpec::Member member = (*info)->parse(words.rest);
    require_classes(tree, member.classes);
    return member;
}

}  // namespace

PolicySpec parse_policy(std::span<const std::string> texts, const ModuleTree& tree) {
    PolicySpec spec;
    for (const std::string& text : texts) {
        const Words words = split_kind(text);
        if (const std::optional<PolicySpec> single = parse_single(words, tree)) {
            if (texts.size() > 1) {
                throw Error(ErrorKind::input, option,
                            "\"" + text +
                                "\" cannot be combined with another policy; only size, transformer, names " +
                                "and always are or-ed");
            }
            return *single;
        }
        spec.kind = PolicySpec::Kind::recursive;
        spec.members.push_back(parse_member(words, tree));
    }
    return spec;
}

}  // namespace fsdplan
