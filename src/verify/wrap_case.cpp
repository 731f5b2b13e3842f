#include "verify/wrap_case.hpp"

#include "wrap/policy_json.hpp"

namespace fsdplan {
namespace {

PolicySpec::Member recursive_member(std::string_view policy, const json::Value& arguments,
                                    const json::Value& where) {
    const auto names = [&](std::string_view key) {
        const auto found = arguments.find(key);
        return found ? std::optional(found->strings()) : std::nullopt;
    };
    PolicySpec::Member member;
    if (policy == "size_based") {
        member.name = "size";
        if (const auto least = arguments.find("min_num_params")) {
            member.min_num_params = least->number();
        }
        member.force_leaf = names("force_leaf_modules");
        member.exclude = names("exclude_wrap_modules");
    } else if (policy == "transformer" || policy == "module_wrap") {
        // A ModuleWrapPolicy that is a member of _or_policy is called like a transformer policy.
        member.name = "transformer";
        member.classes = names(policy == "transformer" ? "transformer_layer_cls" : "module_classes").value();
    } else if (policy == "lambda") {
        member.name = "names";
        member.modules = names("modules").value();
    } else if (policy == "always") {
        member.name = "always";
    } else {
        where.fail("a policy that this fsdplan knows");
    }
    return member;
}

}  // namespace

PolicySpec recorded_policy(const json::Value& row) {
    const json::Value policy = row.at("policy");
    const json::Value arguments = row.at("arguments");
    PolicySpec spec;
    if (policy.string() == "module_wrap") {
        spec.kind = PolicySpec::Kind::module_classes;
        spec.classes = arguments.at("module_classes").strings();
    } else if (policy.string() == "custom") {
        spec.kind = PolicySpec::Kind::custom;
        spec.rules = read_rules(arguments.at("rules"));
    } else if (policy.string() == "fully_shard") {
        spec.kind = PolicySpec::Kind::calls;
        const auto ignored = arguments.find("ignored_params");
        spec.calls =
            read_calls(arguments.at("calls"), ignored ? ignored->strings() : std::vector<std::string>{});
    } else if (policy.string() == "none") {
        spec.kind = PolicySpec::Kind::none;
    } else {
        spec.kind = PolicySpec::Kind::recursive;
        if (policy.string() == "or") {
            for (const json::Value part : arguments.at("policies").elements()) {
                const json::Value name = part.at("policy");
                spec.members.push_back(recursive_member(name.string(), part.at("arguments"), name));
            }
        } else {
            spec.members.push_back(recursive_member(policy.string(), arguments, policy));
        }
    }
    return spec;
}

WrapOptions recorded_options(const json::Value& file, const json::Value& row) {
    const auto fsdp = row.find("fsdp");
    const auto setting = [&](std::string_view key) { return fsdp ? fsdp->find(key) : std::nullopt; };
    WrapOptions options;
    options.world_size =
        static_cast<int>(setting("world_size").value_or(file.at("world_size")).integer(1, 1 << 24));
    options.rank = static_cast<int>(setting("rank").value_or(file.at("rank")).integer(0, 1 << 24));
    if (const auto use_orig_params = setting("use_orig_params")) {
        options.use_orig_params = use_orig_params->boolean();
    }
    if (const auto modules = setting("ignored_modules")) {
        options.ignored_modules = modules->strings();
    }
    if (const auto states = setting("ignored_states")) {
        options.ignored_parameters = states->strings();
    }
    if (const auto mixed = setting("mixed_precision")) {
        options.mixed_precision = true;
        if (const auto dtype = mixed->given("param_dtype")) {
            options.param_dtype = dtype_from_name(dtype->string());
        }
        if (const auto classes = mixed->find("module_classes_to_ignore")) {
            options.keep_full_precision = classes->strings();
        }
    }
    return options;
}

}  // namespace fsdplan
