#include "verify/error_cases.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "model/builder.hpp"

namespace fsdplan {
namespace {

const ModuleClass sequential{"torch.nn.modules.container.Sequential", {"torch.nn.modules.module.Module"}};
const ModuleClass module_list{"torch.nn.modules.container.ModuleList", {"torch.nn.modules.module.Module"}};
const ModuleClass linear{"torch.nn.modules.linear.Linear", {"torch.nn.modules.module.Module"}};
const ModuleClass embedding{"torch.nn.modules.sparse.Embedding", {"torch.nn.modules.module.Module"}};
const ModuleClass custom{"Custom", {"torch.nn.modules.module.Module"}};

GraphBuilder builder() {
    return {"error case", "written after the recording's description"};
}

void fill_linear(const Scope& layer, std::int64_t inputs, std::int64_t outputs, DType dtype) {
    layer.parameter("weight", {outputs, inputs}, dtype);
    layer.parameter("bias", {outputs}, dtype);
}

struct Layer {
    DType dtype = DType::float32;
    bool frozen = false;
};

/// Linear layers of 8 x 8 one after the other, called "0", "1", …
ModelGraph layers(std::initializer_list<Layer> of, const ModuleClass& container = sequential) {
    GraphBuilder build = builder();
    const Scope root = build.root(container);
    int i = 0;
    for (const Layer& layer : of) {
        const Scope scope = root.child(std::to_string(i++), linear);
        fill_linear(scope, 8, 8, layer.dtype);
        if (layer.frozen) {
            scope.freeze();
        }
    }
    return build.finish();
}

ModelGraph one_linear(std::int64_t inputs = 8) {
    GraphBuilder build = builder();
    fill_linear(build.root(linear), inputs, 8, DType::float32);
    return build.finish();
}

/// A linear layer with a further parameter of integers behind its own.
ModelGraph with_integers() {
    GraphBuilder build = builder();
    const Scope root = build.root(linear);
    fill_linear(root, 8, 8, DType::float32);
    root.parameter("ids", {3}, DType::int64);
    ModelGraph model = build.finish();
    model.tensors.back().requires_grad = false;
    return model;
}

/// A layer whose output is scaled by a parameter "s" without dimensions.
ModelGraph with_scalar() {
    GraphBuilder build = builder();
    const Scope root = build.root(custom);
    root.parameter("s", {});
    fill_linear(root.child("w", linear), 4, 4, DType::float32);
    return build.finish();
}

/// An embedding "0" and a head "1" that share one weight of 8 rows.
ModelGraph tied(std::int64_t columns) {
    GraphBuilder build = builder();
    const Scope root = build.root(sequential);
    const Scope table = root.child("0", embedding);
    table.parameter("weight", {8, columns});
    root.child("1", linear).tie("weight", table, "weight");
    return build.finish();
}

using Calls = std::vector<PolicySpec::Call>;

ErrorCase fsdp1(std::int64_t world, ModelGraph model, bool use_orig_params = false,
                const Calls& nested = {}) {
    ErrorCase out{.model = std::move(model)};
    out.spec.kind = nested.empty() ? PolicySpec::Kind::none : PolicySpec::Kind::manual;
    out.spec.calls = nested;
    out.job.runtime = "fsdp1";
    out.job.mesh = {.replicate = 1, .shard = world};
    out.job.param_dtype.reset();
    out.job.use_orig_params = use_orig_params;
    return out;
}

/// FSDP1 with an own value of one argument in the unit "0".
ErrorCase fsdp1_unlike(std::int64_t world, const char* argument, const char* value) {
    ErrorCase out = fsdp1(world, layers({{}, {}}));
    out.spec.kind = PolicySpec::Kind::custom;
    out.spec.rules = {{.selector = "fqn:0",
                       .answer = PolicySpec::Rule::Answer::arguments,
                       .arguments = {{argument, value}}}};
    return out;
}

ErrorCase fsdp2(std::int64_t world, ModelGraph model, const Calls& before_root = {}) {
    ErrorCase out{.model = std::move(model)};
    out.spec.kind = PolicySpec::Kind::calls;
    out.spec.calls = before_root;
    out.spec.calls.push_back({.modules = {""}});
    out.job.runtime = "fsdp2";
    out.job.mesh = {.replicate = 1, .shard = world};
    out.job.param_dtype.reset();
    return out;
}

template <int ranks>
ErrorCase reshard(std::int64_t world) {
    ErrorCase out = fsdp2(world, one_linear());
    out.arguments = {{"reshard_after_forward", std::to_string(ranks)}};
    return out;
}

template <bool use_orig_params>
ErrorCase mixed_dtype(std::int64_t world) {
    return fsdp1(world, layers({{}, {.dtype = DType::bfloat16}}), use_orig_params);
}

template <bool use_orig_params>
ErrorCase mixed_grad(std::int64_t world) {
    return fsdp1(world, layers({{}, {.frozen = true}}), use_orig_params);
}

template <bool use_orig_params>
ErrorCase scalar(std::int64_t world) {
    return fsdp1(world, with_scalar(), use_orig_params);
}

/// The tied embedding is a unit, its other owner is in the root's.
template <int columns>
ErrorCase shared_across_units(std::int64_t world) {
    return fsdp1(world, tied(columns), true, {{.modules = {"0"}}});
}

ErrorCase hybrid_without_groups(std::int64_t world) {
    ErrorCase out = fsdp1(world, one_linear());
    out.job.strategy = Strategy::hybrid_shard;
    out.job.fsdp1.process_groups = false;
    return out;
}

ErrorCase frozen_low_precision(std::int64_t world, std::optional<DType> param_dtype) {
    ErrorCase out = fsdp2(world, layers({{}, {.dtype = DType::bfloat16, .frozen = true}}));
    out.job.param_dtype = param_dtype;
    return out;
}

/// The first layer runs alone, then the whole model does.
ErrorCase child_first(std::int64_t world) {
    ErrorCase out = fsdp2(world, layers({{}, {}}), {{.modules = {"0"}}});
    const ModuleIndex root = out.model.root;
    const ModuleIndex first = out.model.modules[at(root)].children[0].module;
    const ModuleIndex second = out.model.modules[at(root)].children[1].module;
    out.model.calls = {.module = {first, root, first, second},
                       .from_begin = {0, 1, 1, 2, 3},
                       .from = {-1, -1, 2},
                       .output_from = {3}};
    return out;
}

ErrorCase uneven_dim(std::int64_t world) {
    ErrorCase out = fsdp2(world, one_linear(9));
    out.job.fsdp2.shard_dim = 1;
    return out;
}

constexpr std::array known{
    KnownErrorCase{"fsdp1_mixed_dtype_True", mixed_dtype<true>},
    KnownErrorCase{"fsdp1_mixed_dtype_False", mixed_dtype<false>},
    KnownErrorCase{"fsdp1_mixed_grad_True", mixed_grad<true>},
    KnownErrorCase{"fsdp1_mixed_grad_False", mixed_grad<false>},
    KnownErrorCase{"fsdp1_scalar_True", scalar<true>},
    KnownErrorCase{"fsdp1_scalar_False", scalar<false>},
    KnownErrorCase{"fsdp1_integer", [](std::int64_t w) { return fsdp1(w, with_integers(), true); }},
    KnownErrorCase{"fsdp1_mixed_dtype_two_units",
                   [](std::int64_t w) {
                       return fsdp1(w, layers({{}, {.dtype = DType::bfloat16}}), false, {{.modules = {"0"}}});
                   }},
    KnownErrorCase{"fsdp1_heterogeneous_use_orig_params",
                   [](std::int64_t w) { return fsdp1_unlike(w, "use_orig_params", "true"); }},
    KnownErrorCase{"fsdp1_heterogeneous_limit",
                   [](std::int64_t w) { return fsdp1_unlike(w, "limit_all_gathers", "false"); }},
    KnownErrorCase{"fsdp1_shared_across_units", shared_across_units<8>},
    KnownErrorCase{"fsdp1_shared_across_units_2", shared_across_units<16>},
    KnownErrorCase{"fsdp1_hybrid_no_group", hybrid_without_groups},
    KnownErrorCase{"fsdp2_mixed_orig_dtype",
                   [](std::int64_t w) {
                       return fsdp2(w, layers({{}, {.dtype = DType::bfloat16}}));
                   }},
    KnownErrorCase{"fsdp2_mixed_orig_dtype_frozen",
                   [](std::int64_t w) { return frozen_low_precision(w, DType::bfloat16); }},
    KnownErrorCase{"fsdp2_mixed_ag_dtype",
                   [](std::int64_t w) { return frozen_low_precision(w, std::nullopt); }},
    KnownErrorCase{"fsdp2_mixed_grad",
                   [](std::int64_t w) {
                       return fsdp2(w, layers({{}, {.frozen = true}}));
                   }},
    KnownErrorCase{"fsdp2_scalar", [](std::int64_t w) { return fsdp2(w, with_scalar()); }},
    KnownErrorCase{"fsdp2_reshard_int_0", reshard<0>},
    KnownErrorCase{"fsdp2_reshard_int_1", reshard<1>},
    KnownErrorCase{"fsdp2_reshard_int_3", reshard<3>},
    KnownErrorCase{"fsdp2_reshard_int_4", reshard<4>},
    KnownErrorCase{"fsdp2_reshard_int_8", reshard<8>},
    KnownErrorCase{"fsdp2_reshard_int_16", reshard<16>},
    KnownErrorCase{"fsdp2_reshard_float", nullptr, "reshard_after_forward cannot be a fraction here"},
    KnownErrorCase{"fsdp2_tied_across_units",
                   [](std::int64_t w) { return fsdp2(w, tied(8), {{.modules = {"0"}}}); }},
    KnownErrorCase{"fsdp2_tied_grouped",
                   [](std::int64_t w) {
                       return fsdp2(w, tied(8), {{.modules = {"0", "1"}, .list = true}});
                   }},
    KnownErrorCase{"fsdp2_twice", [](std::int64_t w) { return fsdp2(w, one_linear(), {{.modules = {""}}}); }},
    KnownErrorCase{"fsdp2_modulelist", [](std::int64_t w) { return fsdp2(w, layers({{}}, module_list)); }},
    KnownErrorCase{"fsdp2_child_forward_first", child_first},
    KnownErrorCase{"fsdp2_shard_dim1_uneven", uneven_dim},
    KnownErrorCase{"fsdp2_noncontiguous", nullptr, "the module tree does not record strides"},
};

}  // namespace

const KnownErrorCase* find_error_case(std::string_view name) {
    const auto found = std::ranges::find(known, name, &KnownErrorCase::name);
    return found == known.end() ? nullptr : &*found;
}

}  // namespace fsdplan
