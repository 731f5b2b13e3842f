#include <fmt/core.h>

#include <algorithm>

#include "base/json.hpp"
#include "fsdplan/frontend.hpp"
#include "fsdplan/schedule.hpp"
#include "model/named_parameters.hpp"

// The wrap plan that a result of `fsdplan plan` recommends.
namespace fsdplan {
namespace {

constexpr std::int64_t most = std::int64_t{1} << 32U;

/// What `parse` makes of a word; its complaints name the place in the file.
template <typename Parse>
auto parsed(const json::Value& word, const Parse& parse) {
    const std::string text(word.string());
    try {
        return parse(text);
    } catch (const Error& error) {
        throw Error(ErrorKind::input, word.where(), error.faults().front().message);
    }
}

std::optional<DType> dtype_or_null(const json::Value& value) {
    if (value.is_null()) {
        return std::nullopt;
    }
    const std::optional<DType> dtype = dtype_from_name(value.string());
    if (!dtype || !is_floating_point(*dtype)) {
        value.fail("a floating-point dtype such as \"bfloat16\", or null");
    }
    return dtype;
}

std::string shown(const std::vector<std::int64_t>& shape) {
    std::string out;
    for (const std::int64_t size : shape) {
        out += (out.empty() ? "" : ", ") + std::to_string(size);
    }
    return "[" + out + "]";
}

class PlanFile {
public:
    PlanFile(const json::Value& root, const FrontendQuestion& about) : about_(about), plan_(wrap_plan(root)) {
        out_.job = about.job;
    }

    FrontendPlan read() {
        plan_.allow_only({"runtime",
                          "torch",
                          "mesh",
                          "strategy",
                          "param_dtype",
                          "reduce_dtype",
                          "buffer_dtype",
                          "offload",
                          "batch",
                          "sequence",
                          "accumulate",
                          "no_sync",
                          "optimizer",
                          "loss",
                          "attention",
                          "units",
                          "activation_checkpointing",
                          "prefetch",
                          "use_orig_params",
                          "parameters"});
        compare_parameters();
        sharding();
        work();
        units();
        activation_checkpointing();
        prefetch();
        compare_units();
        return std::move(out_);
    }

private:
    static json::Value wrap_plan(const json::Value& root) {
        const json::Value format = root.at("format");
        if (format.string() != "fsdplan.result") {
            format.fail("\"fsdplan.result\"");
        }
        root.at("version").integer(1, 1);
        const auto recommended = root.find("recommended");
        if (!recommended) {
            throw Error(ErrorKind::input, root.where(),
                        "recommends no plan; expected a result of `fsdplan plan`");
        }
        if (recommended->is_null()) {
            throw Error(ErrorKind::input, recommended->where(),
                        "is null: nothing fitted, so there is no plan");
        }
        return recommended->at("wrap_plan");
    }

    TrainingJob& job() { return out_.job; }

    void set(std::string_view name, std::string value) {
        out_.settings.push_back({std::string(name), std::move(value), plan_.where()});
    }

    /// The model must be the one that was planned.
    void compare_parameters() const {
        const std::vector<NamedParameter> own = named_parameters(about_.tree);
        const json::Value planned = plan_.at("parameters");
        std::size_t i = 0;
        for (const json::Value parameter : planned.elements()) {
            const std::string name(parameter.at("name").string());
            if (i == own.size()) {
                differs(parameter, fmt::format("the model has no {}", json::quote(name)));
            }
            if (own[i].name != name) {
                differs(parameter, fmt::format("the model has {} in the place of {}",
                                               json::quote(own[i].name), json::quote(name)));
            }
            compare(parameter, about_.tree.tensors[at(own[i].tensor)], name);
            ++i;
        }
        if (i < own.size()) {
            differs(planned, fmt::format("the model has {} too", json::quote(own[i].name)));
        }
    }

    static void compare(const json::Value& parameter, const Tensor& tensor, const std::string& name) {
        std::vector<std::int64_t> shape;
        for (const json::Value size : parameter.at("shape").elements()) {
            shape.push_back(size.integer(0));
        }
        if (shape != tensor.shape) {
            differs(parameter, fmt::format("the model's {} has the shape {}, not {}", json::quote(name),
                                           shown(tensor.shape), shown(shape)));
        }
        if (const std::string_view dtype = parameter.at("dtype").string();
            dtype != fsdplan::name(tensor.dtype)) {
            differs(parameter, fmt::format("the model's {} is in {}, not {}", json::quote(name),
                                           fsdplan::name(tensor.dtype), dtype));
        }
        if (parameter.at("requires_grad").boolean() != tensor.requires_grad) {
            differs(parameter, fmt::format("the model's {} is {}", json::quote(name),
                                           tensor.requires_grad ? "trainable" : "frozen"));
        }
    }

    [[noreturn]] static void differs(const json::Value& place, const std::string& how) {
        throw Error(ErrorKind::input, place.where(), "is a plan for another model: " + how);
    }

    void sharding() {
        const RuntimeInfo& info =
            parsed(plan_.at("runtime"), [](const std::string& text) { return std::ref(runtime(text)); });
        job().runtime = info.name;
        job().strategy = parse_strategy(plan_.at("strategy").string(), plan_.at("strategy").where());
        job().torch =
            parsed(plan_.at("torch"), [](const std::string& text) { return torch_behaviour(text).version; });
        const json::Value mesh = plan_.at("mesh");
        job().mesh = {.replicate = mesh.at("replicate").integer(1, 1 << 20),
                      .shard = mesh.at("shard").integer(1, 1 << 20)};
        if (job().mesh.ranks() != about_.ranks) {
            throw Error(ErrorKind::input, mesh.where(),
                        fmt::format("{} x {} GPUs are not the {} that are asked about (--gpus)",
                                    job().mesh.replicate, job().mesh.shard, about_.ranks));
        }
        job().reshard_after_forward = std::nullopt;  // every unit says itself
        job().param_dtype = dtype_or_null(plan_.at("param_dtype"));
        job().reduce_dtype = dtype_or_null(plan_.at("reduce_dtype"));
        job().buffer_dtype = dtype_or_null(plan_.at("buffer_dtype"));
        job().offload = plan_.at("offload").boolean();
        const auto original = plan_.given("use_orig_params");
        job().use_orig_params = original && original->boolean();
        out_.wrap = wrap_options(job());
        set("runtime", job().runtime);
        set("mesh", fmt::format("{}x{}", job().mesh.replicate, job().mesh.shard));
        set("offload", job().offload ? "true" : "false");
        set("use_orig_params", job().use_orig_params ? "true" : "false");
    }

    void work() {
        job().batch = plan_.at("batch").integer(1, most);
        job().sequence = plan_.at("sequence").integer(1, most);
        job().accumulate = plan_.at("accumulate").integer(1, most);
        job().no_sync = plan_.at("no_sync").boolean();
        job().optimizer =
            parsed(plan_.at("optimizer"), [](const std::string& t) { return parse_optimizer(t); });
        job().loss = parsed(plan_.at("loss"), [](const std::string& t) { return parse_loss(t); });
        job().attention =
            parsed(plan_.at("attention"), [](const std::string& t) { return parse_attention(t); });
    }

    void units() {
        const json::Value units = plan_.at("units");
        const RuntimeInfo& info = runtime(job().runtime);
        out_.policy.kind = !info.has_units        ? PolicySpec::Kind::none
                           : info.wraps_by_policy ? PolicySpec::Kind::manual
                                                  : PolicySpec::Kind::calls;
        for (const json::Value unit : units.elements()) {
            PolicySpec::Call call;
            for (const json::Value path : unit.at("modules").elements()) {
                call.modules.push_back(module_at(path));
            }
            if (call.modules.empty()) {
                unit.at("modules").fail("a module");
            }
            call.list = call.modules.size() > 1;
            if (const auto reshard = unit.given("reshard_after_forward")) {
                call.arguments.emplace_back("reshard_after_forward", reshard_of(*reshard));
            }
            const bool root_of_fsdp1 =
                out_.policy.kind == PolicySpec::Kind::manual && call.modules.front().empty();
            if (!root_of_fsdp1) {  // it is added
                out_.policy.calls.push_back(std::move(call));
            }
        }
        set("units", fmt::format("{}", units.size()));
    }

    std::string module_at(const json::Value& path) const {
        std::string name(path.string());
        if (!about_.tree.find(name)) {
            throw Error(ErrorKind::input, path.where(), "the model has no module " + json::quote(name));
        }
        return name;
    }

    static std::string reshard_of(const json::Value& value) {
        return value.is_boolean() ? (value.boolean() ? "true" : "false")
                                  : std::to_string(value.integer(2, 1 << 20));
    }

    void activation_checkpointing() {
        const json::Value given = plan_.at("activation_checkpointing");
        const json::Value mode = given.at("mode");
        const json::Value placement = given.at("placement");
        ActivationCheckpointing checkpointing;
        if (mode.string() == "modules") {
            for (const json::Value path : given.at("modules").elements()) {
                checkpointing.modules.push_back(module_at(path));
            }
        } else {
            checkpointing =
                parsed(mode, [](const std::string& t) { return parse_activation_checkpointing(t); });
        }
        using Placement = ActivationCheckpointing::Placement;
        const std::string_view where = placement.string();
        if (where != "inside" && where != "outside" && where != "forward") {
            placement.fail("\"inside\", \"outside\" or \"forward\"");
        }
        checkpointing.placement = where == "inside"    ? Placement::inside
                                  : where == "outside" ? Placement::outside
                                                       : Placement::forward;
        checkpointing.wrapped = where != "forward";
        job().activation_checkpointing = std::move(checkpointing);
    }

    void prefetch() {
        const auto given = plan_.given("prefetch");
        if (!given) {
            return;
        }
        if (!runtime(job().runtime).wraps_by_policy) {
            job().fsdp2.forward_prefetch = prefetch_lists(given->at("forward"));
            job().fsdp2.backward_prefetch = prefetch_lists(given->at("backward"));
            return;
        }
        job().backward_prefetch =
            parsed(given->at("backward"), [](const std::string& t) { return parse_backward_prefetch(t); });
        job().forward_prefetch = given->at("forward").boolean();
        job().limit_all_gathers = given->at("limit_all_gathers").boolean();
        set("backward_prefetch", std::string(name(job().backward_prefetch)));
    }

    Fsdp2Options::PrefetchLists prefetch_lists(const json::Value& lists) const {
        Fsdp2Options::PrefetchLists out;
        for (const json::Value entry : lists.elements()) {
            if (!entry.is_array() || entry.size() != 2) {
                entry.fail("a unit's module and a list of modules");
            }
            auto part = entry.elements().begin();
            std::string unit = module_at(*part);
            ++part;
            std::vector<std::string> targets;
            for (const json::Value target : (*part).elements()) {
                targets.push_back(module_at(target));
            }
            out.emplace_back(std::move(unit), std::move(targets));
        }
        return out;
    }

    /// The units are written down with their sizes: a plan that was changed by hand shows it.
    void compare_units() const {
        if (out_.policy.kind == PolicySpec::Kind::none) {
            return;
        }
        const WrapPlan drawn = wrap(about_.tree, out_.policy, out_.wrap);
        for (const json::Value unit : plan_.at("units").elements()) {
            const json::Value numel = unit.at("numel");
            const std::string path((*unit.at("modules").elements().begin()).string());
            const auto same = std::ranges::find(drawn.units, path, &Unit::path);
            if (same != drawn.units.end() && numel.integer(0) != same->numel) {
                numel.fail(fmt::format("{} elements, as the unit at {} has in this model", same->numel,
                                       json::quote(path)));
            }
        }
    }

    const FrontendQuestion& about_;
    json::Value plan_;
    FrontendPlan out_;
};

}  // namespace

namespace builtin::frontend_file {

extern const FrontendInfo plan;
constinit const FrontendInfo plan{
    .name = "fsdplan",
    .option = "--plan",
    .help = "result of `fsdplan plan` in JSON: what it recommends",
    .read =
        [](const std::string& text, const std::string& file, const FrontendQuestion& about) {
            const json::Document document(text, file);
            return PlanFile(document.root(), about).read();
        },
};

}  // namespace builtin::frontend_file
}  // namespace fsdplan
