#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

#include "planner/decode/decode.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_near = 3;

std::int64_t full_numel(const CollectiveCall& call) {
    return std::max(call.input_numel, call.output_numel);
}

std::string classes_of(const ModuleTree& tree, const Unit& unit) {
    std::string text;
    for (const ModuleIndex m : unit.modules) {
        text += (text.empty() ? "" : " + ") + std::string(short_name(tree.class_info(m).name));
    }
    return text;
}

/// What a runtime without units in the plan gathers together: a module's own parameters.
Unit own_parameters(const ModuleTree& tree, ModuleIndex m) {
    Unit unit{.module = m, .path = tree.path(m), .modules = {m}};
    for (std::size_t p = 0; p < tree.parameters(m).size(); ++p) {
        unit.parameters.push_back(tree.parameters(m)[p]);
        unit.parameter_paths.push_back(join_path(unit.path, tree.parameter_names(m)[p]));
        unit.numel += tree.tensors[at(unit.parameters.back())].numel;
    }
    return unit;
}

/// The units that a schedule's names stand for.
class NamedUnits {
public:
    NamedUnits(const ModuleTree& tree, const WrapPlan& plan) : tree_(tree) {
        for (const Unit& unit : plan.units) {
            std::vector<ModuleIndex> modules = unit.modules;
            std::ranges::sort(modules);
            std::string name;
            for (const ModuleIndex m : modules) {
                name += (m == modules.front() ? "" : ",") + tree.path(m);
            }
            planned_.emplace(std::move(name), &unit);
        }
        whole_.numel = tree.numel.front();
    }

    /// nullptr for a call of no unit that is not of the whole model either.
    const Unit* of(const PredictedCall& predicted) {
        if (!predicted.unit) {
            const std::int64_t more = full_numel(predicted.call) - whole_.numel;
            return more >= 0 && more < predicted.call.ranks ? &whole_ : nullptr;
        }
        const auto planned = planned_.find(*predicted.unit);
        if (planned != planned_.end()) {
            return planned->second;
        }
        const std::optional<ModuleIndex> module = tree_.find(*predicted.unit);
        return module ? &own_.try_emplace(*predicted.unit, own_parameters(tree_, *module)).first->second
                      : nullptr;
    }

private:
    const ModuleTree& tree_;
    std::map<std::string, const Unit*> planned_;
    std::map<std::string, Unit> own_;
    Unit whole_{.module = ModuleIndex{0}, .modules = {ModuleIndex{0}}};
};

/// The most that a runtime adds to a unit: rows of each parameter for ranks that have none.
std::int64_t most_padding(const ModuleTree& tree, const Unit& unit, std::int64_t ranks) {
    std::int64_t rows = 0;
    for (const TensorIndex t : unit.parameters) {
        const Tensor& tensor = tree.tensors[at(t)];
        rows += tensor.shape.empty() ? 1 : row_shard(tensor.shape, ranks, 0).row_numel;
    }
    rows = std::max<std::int64_t>(rows, 1);
    return rows > largest_total / ranks ? largest_total : rows * ranks;
}

DecodedPart part_of(const ModuleTree& tree, const PredictedCall& predicted, const Unit* unit) {
    const CollectiveCall& call = predicted.call;
    if (unit == nullptr) {
        const bool of_parameters =
            call.kind == CollectiveKind::all_gather || predicted.pass == DecodedPass::reduction;
        return of_parameters && full_numel(call) > 1 ? DecodedPart::bucket : DecodedPart::small;
    }
    if (call.group == RankGroup::replicate && full_numel(call) < unit->numel) {
        return DecodedPart::shard;
    }
    const std::int64_t more = full_numel(call) - unit->numel;
    return more >= 0 && more <= most_padding(tree, *unit, call.ranks) ? DecodedPart::unit
                                                                      : DecodedPart::bucket;
}

void describe_unit(const ModuleTree& tree, const Unit& unit, DecodeMatch& match) {
    match.class_name = classes_of(tree, unit);
    if (match.part == DecodedPart::unit) {
        match.padding = match.numel - unit.numel;
    }
    if (unit.parameters.size() == 1) {
        match.parameter = unit.parameter_paths.front();
        match.shape = tree.tensors[at(unit.parameters.front())].shape;
    }
}

/// "model.norm, lm_head": the modules of a unit.
std::string paths_of(const ModuleTree& tree, const Unit& unit) {
    if (unit.modules.size() < 2) {
        return unit.path;
    }
    std::string text;
    for (const ModuleIndex m : unit.modules) {
        text += (text.empty() ? "" : ", ") + tree.path(m);
    }
    return text;
}

void note_call(const PredictedCall& predicted, DecodeMatch& match) {
    ++match.passes[predicted.pass];
    if (predicted.position > 0) {
        match.positions.first = match.positions.first == 0
                                    ? predicted.position
                                    : std::min(match.positions.first, predicted.position);
        match.positions.last = std::max(match.positions.last, predicted.position);
    }
}

/// Paths by module, so that they come in the order of the tree.
using Members = std::map<ModuleIndex, std::string>;

void count_units(const Members& members, DecodeMatch& match) {
    for (const auto& [module, path] : members) {
        match.units.push_back(path);
    }
    const bool of_units = match.part == DecodedPart::unit || match.part == DecodedPart::shard;
    if (of_units) {
        match.count = static_cast<std::int64_t>(match.units.size());
    } else {
        for (const auto& [pass, calls] : match.passes) {
            match.count += calls;
        }
    }
    if (match.count > 1 || !of_units) {
        match.parameter.clear();
        match.shape.clear();
    }
}

DecodedPass pass_of(const Op& op, const CollectiveCall& call) {
    if (call.kind == CollectiveKind::all_gather) {
        return op.pass == Pass::forward                                  ? DecodedPass::forward
               : op.pass == Pass::backward || op.pass == Pass::recompute ? DecodedPass::backward
                                                                         : DecodedPass::step;
    }
    return op.pass == Pass::backward  ? DecodedPass::reduction
           : op.pass == Pass::forward ? DecodedPass::forward
                                      : DecodedPass::step;
}

void append_calls(const Schedule& schedule, std::span<const Op> ops, bool construction, bool last,
                  std::vector<PredictedCall>& out) {
    std::int64_t position = 0;
    for (const Op& op : ops) {
        if (op.kind != OpKind::collective) {
            continue;
        }
        const CollectiveCall& call = schedule.collectives[static_cast<std::size_t>(op.target)];
        out.push_back({.call = call,
                       .unit = op.unit < 0 ? std::nullopt
                                           : std::optional(schedule.units[static_cast<std::size_t>(op.unit)]),
                       .pass = construction ? DecodedPass::construction : pass_of(op, call),
                       .position = last ? ++position : 0});
    }
}

}  // namespace

std::int64_t Sighting::full_numel() const {
    return std::max(input_numel.value_or(0), output_numel.value_or(0));
}

std::vector<PredictedCall> predicted_calls(const Schedule& schedule) {
    const std::span<const Op> all(schedule.ops);
    std::vector<PredictedCall> out;
    append_calls(schedule, schedule.iteration(schedule.iteration_begin.size() - 1), false, true, out);
    std::vector<PredictedCall> earlier;
    const auto begin = static_cast<std::size_t>(schedule.iteration_begin.front());
    append_calls(schedule, all.first(begin), true, false, earlier);
    append_calls(schedule, schedule.iteration(0), false, false, earlier);
    // What every step does needs no second mention; DDP's first buckets and a constructor's broadcasts do.
    std::vector<CollectiveCall> known;
    for (const PredictedCall& predicted : out) {
        if (std::ranges::find(known, predicted.call) == known.end()) {
            known.push_back(predicted.call);
        }
    }
    for (PredictedCall& predicted : earlier) {
        if (std::ranges::find(known, predicted.call) == known.end()) {
            out.push_back(predicted);
        }
    }
    return out;
}

bool may_be(const CollectiveCall& call, const Sighting& seen) {
    if (seen.kind ? call.kind != *seen.kind : !seen.op.empty()) {
        return false;
    }
    const bool some = seen.input_numel || seen.output_numel;
    return some && call.input_numel == seen.input_numel.value_or(call.input_numel) &&
           call.output_numel == seen.output_numel.value_or(call.output_numel);
}

std::vector<DecodeMatch> matches_of(const ModuleTree& tree, const WrapPlan& plan,
                                    const std::vector<PredictedCall>& calls, const Sighting& seen,
                                    std::size_t sighting) {
    NamedUnits units(tree, plan);
    std::vector<DecodeMatch> out;
    std::vector<Members> members;  // by match
    std::int64_t in_step = 0;
    for (const PredictedCall& predicted : calls) {
        in_step = std::max(in_step, predicted.position);
        if (!may_be(predicted.call, seen)) {
            continue;
        }
        const Unit* unit = units.of(predicted);
        DecodeMatch match{.sighting = sighting,
                          .op = predicted.call.kind,
                          .part = part_of(tree, predicted, unit),
                          .group = predicted.call.group,
                          .numel = full_numel(predicted.call)};
        if (unit != nullptr) {
            describe_unit(tree, *unit, match);
        }
        const auto same = std::ranges::find_if(out, [&](const DecodeMatch& other) {
            return std::tie(other.op, other.part, other.class_name, other.padding) ==
                   std::tie(match.op, match.part, match.class_name, match.padding);
        });
        const auto index = static_cast<std::size_t>(same - out.begin());
        if (same == out.end()) {
            out.push_back(std::move(match));
            members.emplace_back();
        }
        note_call(predicted, out[index]);
        if (unit != nullptr) {
            members[index].emplace(unit->module, paths_of(tree, *unit));
        }
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
        out[i].positions.of = in_step;
        count_units(members[i], out[i]);
    }
    return out;
}

void add_near_sizes(const ModuleTree& tree, const WrapPlan& plan, const std::vector<PredictedCall>& calls,
                    const Sighting& seen, std::size_t sighting, std::vector<NearSize>& near) {
    if (seen.full_numel() == 0) {
        return;
    }
    NamedUnits units(tree, plan);
    for (const PredictedCall& predicted : calls) {
        if (seen.kind && predicted.call.kind != *seen.kind) {
            continue;
        }
        const std::int64_t numel = full_numel(predicted.call);
        const bool known = std::ranges::any_of(near, [&](const NearSize& other) {
            return other.numel == numel && other.op == predicted.call.kind;
        });
        if (!known) {
            const Unit* unit = units.of(predicted);
            near.push_back({.sighting = sighting,
                            .op = predicted.call.kind,
                            .unit = unit == nullptr ? std::string() : paths_of(tree, *unit),
                            .class_name = unit == nullptr ? std::string() : classes_of(tree, *unit),
                            .ranks = predicted.call.ranks,
                            .numel = numel,
                            .distance = seen.full_numel() - numel});
        }
    }
    std::ranges::stable_sort(near, {}, [](const NearSize& n) { return std::abs(n.distance); });
    near.resize(std::min(near.size(), most_near));
}

}  // namespace fsdplan
