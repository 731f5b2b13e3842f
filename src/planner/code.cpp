#include <algorithm>
#include <charconv>
#include <set>

#include "planner/evaluation.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_classes = 4;
constexpr std::size_t most_lines = 24;

/// The number with the fewest digits in [low, high].
std::int64_t readable_number(std::int64_t low, std::optional<std::int64_t> high) {
    const std::int64_t top = high.value_or(largest_total);
    if (low == 0 && top == 0) {
        return 0;
    }
    std::int64_t step = 1;
    while (step <= top / 10) {
        step *= 10;
    }
    for (; step > 1; step /= 10) {
        const std::int64_t candidate = std::max(step, round_up(low, step));
        if (candidate <= top) {
            return candidate;
        }
    }
    return std::max<std::int64_t>(low, low == 0 ? 1 : low);
}

std::string with_underscores(std::int64_t value) {
    const std::string digits = std::to_string(value);
    std::string out;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        out += i > 0 && (digits.size() - i) % 3 == 0 ? "_" : "";
        out += digits[i];
    }
    return out;
}

std::set<std::string> inner_paths(const WrapPlan& plan) {
    std::set<std::string> paths;
    for (const Unit& unit : plan.units) {
        if (at(unit.module) != 0) {
            paths.insert(unit.path);
        }
    }
    return paths;
}

/// The classes whose instances are just these units, when a ModuleWrapPolicy of them draws the same
/// boundaries.
std::vector<std::string> classes_of(const SweepQuestion& question, const PlanResult& plan) {
    std::vector<std::string> classes;
    for (const Unit& unit : plan.wrap.units) {
        const std::string& name = question.tree.class_info(unit.module).name;
        if (at(unit.module) != 0 && std::ranges::find(classes, name) == classes.end()) {
            classes.push_back(name);
        }
    }
    if (classes.empty() || classes.size() > most_classes) {
        return {};
    }
    PolicySpec spec;
    spec.kind = PolicySpec::Kind::module_classes;
    spec.classes = classes;
    const WrapPlan same = wrap(question.tree, spec, question.wrap);
    return inner_paths(same) == inner_paths(plan.wrap) ? classes : std::vector<std::string>{};
}

struct Import {
    std::string line;
    std::string word;
};

Import import_of(const std::string& class_name) {
    const std::size_t dot = class_name.rfind('.');
    const std::string word = class_name.substr(dot == std::string::npos ? 0 : dot + 1);
    if (dot == std::string::npos || class_name.starts_with("__main__")) {
        return {"", word};
    }
    return {"from " + class_name.substr(0, dot) + " import " + word + "\n", word};
}

std::string torch_name(DType dtype) {
    return "torch." + std::string(name(dtype));
}

std::string precision_arguments(const TrainingJob& job) {
    std::string arguments;
    const auto add = [&](std::string_view key, const std::optional<DType>& dtype) {
        if (dtype) {
            arguments += (arguments.empty() ? "" : ", ") + std::string(key) + "=" + torch_name(*dtype);
        }
    };
    add("param_dtype", job.param_dtype);
    add("reduce_dtype", job.reduce_dtype);
    return arguments;
}

std::string mesh_lines(const TrainingJob& job) {
    if (!is_hybrid(job.strategy)) {
        return "";
    }
    return "mesh = init_device_mesh(\"cuda\", (" + std::to_string(job.mesh.replicate) + ", " +
           std::to_string(job.mesh.shard) + "), mesh_dim_names=(\"replicate\", \"shard\"))\n";
}

std::string checkpointing_lines(const SweepQuestion& question, const TrainingJob& job, std::string& imports) {
    if (job.activation_checkpointing.mode != ActivationCheckpointing::Mode::blocks) {
        return "";
    }
    std::string tuple;
    for (const std::string& block : block_classes(question.tree)) {
        const Import import = import_of(block);
        if (imports.find(import.line) == std::string::npos) {
            imports += import.line;
        }
        tuple += import.word + ", ";
    }
    if (tuple.empty()) {
        return "";
    }
    imports +=
        "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import "
        "apply_activation_checkpointing\n";
    return "apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, (" + tuple + ")))\n";
}

std::string fsdp1_code(const SweepQuestion& question, const PlanResult& plan, const TrainingJob& job,
                       const std::vector<std::string>& classes, bool by_size) {
    std::string imports = "import torch\n";
    std::string policy;
    if (!classes.empty()) {
        std::string set;
        for (const std::string& c : classes) {
            const Import import = import_of(c);
            imports += import.line;
            set += (set.empty() ? "" : ", ") + import.word;
        }
        policy = "ModuleWrapPolicy({" + set + "})";
        imports += "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n";
    } else if (by_size) {
        policy = "partial(size_based_auto_wrap_policy, min_num_params=" +
                 with_underscores(readable_number(plan.threshold_low, plan.threshold_high)) + ")";
        imports = "from functools import partial\n" + imports;
        imports += "from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy\n";
    } else if (inner_paths(plan.wrap).empty()) {
        policy = "None";
    } else {
        return "";
    }
    if (is_hybrid(job.strategy)) {
        imports += "from torch.distributed.device_mesh import init_device_mesh\n";
    }
    const std::string precision = precision_arguments(job);
    imports += "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy" +
               std::string(precision.empty() ? "" : ", MixedPrecision") + "\n";
    const std::string checkpointing = checkpointing_lines(question, job, imports);
    std::string code = imports + "\n" + mesh_lines(job) + "model = FSDP(\n    model,\n";
    code += "    auto_wrap_policy=" + policy + ",\n";
    code += "    sharding_strategy=ShardingStrategy." + std::string(name(job.strategy)) + ",\n";
    if (!precision.empty()) {
        code += "    mixed_precision=MixedPrecision(" + precision + "),\n";
    }
    if (job.use_orig_params) {
        code += "    use_orig_params=True,\n";
    }
    if (is_hybrid(job.strategy)) {
        code += "    device_mesh=mesh,\n";
    }
    code += "    device_id=torch.cuda.current_device(),\n)\n";
    return code + checkpointing;
}

/// A path with its first number as "{i}", and that number: "model.layers.{i}.mlp", 7.
std::pair<std::string, std::optional<std::int64_t>> numbered(const std::string& path) {
    for (std::size_t begin = 0; begin < path.size();) {
        const std::size_t end = std::min(path.find('.', begin), path.size());
        std::int64_t number = 0;
        const auto [rest, error] = std::from_chars(path.data() + begin, path.data() + end, number);
        if (error == std::errc{} && rest == path.data() + end) {
            return {path.substr(0, begin) + "{i}" + path.substr(end), number};
        }
        begin = end + 1;
    }
    return {path, std::nullopt};
}

/// The inner units' paths as elements of a Python tuple, inner ones before those around them; numbered ones
/// in one line where they count up.
std::vector<std::string> name_lines(const WrapPlan& plan) {
    struct Line {
        std::string pattern;
        std::vector<std::int64_t> numbers;
        std::int64_t depth = 0;
    };
    std::vector<Line> lines;
    for (const std::string& path : inner_paths(plan)) {
        const auto [pattern, number] = numbered(path);
        auto line = std::ranges::find(lines, pattern, &Line::pattern);
        if (line == lines.end()) {
            lines.push_back({pattern, {}, std::ranges::count(pattern, '.')});
            line = lines.end() - 1;
        }
        if (number) {
            line->numbers.push_back(*number);
        }
    }
    std::ranges::stable_sort(lines, std::greater<>{}, &Line::depth);
    std::vector<std::string> text;
    for (Line& line : lines) {
        std::ranges::sort(line.numbers);
        const auto count = static_cast<std::int64_t>(line.numbers.size());
        if (count == 0) {
            text.push_back('"' + line.pattern + '"');
        } else if (count > 1 && line.numbers.back() - line.numbers.front() == count - 1) {
            const std::string from =
                line.numbers.front() == 0 ? "" : std::to_string(line.numbers.front()) + ", ";
            text.push_back("*(f\"" + line.pattern + "\" for i in range(" + from +
                           std::to_string(line.numbers.back() + 1) + "))");
        } else {
            std::string numbers;
            for (const std::int64_t n : line.numbers) {
                numbers += std::to_string(n) + ", ";
            }
            text.push_back("*(f\"" + line.pattern + "\" for i in (" + numbers + "))");
        }
    }
    return text;
}

std::string fsdp2_code(const SweepQuestion& question, const PlanResult& plan, const TrainingJob& job,
                       const std::vector<std::string>& classes) {
    std::string imports = "import torch\n";
    std::string loop;
    const std::string keywords = ", **sharding)";
    if (!classes.empty()) {
        std::string tuple;
        for (const std::string& c : classes) {
            const Import import = import_of(c);
            imports += import.line;
            tuple += import.word + ", ";
        }
        // Inner modules first: a unit takes what those below it have left.
        loop =
            "for module in reversed(list(model.modules())):\n    if module is not model and "
            "isinstance(module, (" +
            tuple + ")):\n        fully_shard(module" + keywords + "\n";
    } else if (const std::vector<std::string> lines = name_lines(plan.wrap); lines.size() <= most_lines) {
        for (const std::string& line : lines) {
            loop += (loop.empty() ? "for name in (\n" : "") + ("    " + line + ",\n");
        }
        loop += loop.empty() ? "" : "):\n    fully_shard(model.get_submodule(name)" + keywords + "\n";
    } else {
        return "";
    }
    if (is_hybrid(job.strategy)) {
        imports += "from torch.distributed.device_mesh import init_device_mesh\n";
    }
    const std::string precision = precision_arguments(job);
    imports += "from torch.distributed.fsdp import fully_shard" +
               std::string(precision.empty() ? "" : ", MixedPrecisionPolicy") + "\n";
    const std::string checkpointing = checkpointing_lines(question, job, imports);
    std::string sharding;
    const auto add = [&](const std::string& item) { sharding += (sharding.empty() ? "" : ", ") + item; };
    if (is_hybrid(job.strategy)) {
        add("\"mesh\": mesh");
    }
    if (!precision.empty()) {
        add("\"mp_policy\": MixedPrecisionPolicy(" + precision + ")");
    }
    if (!frees_after_forward(job.strategy)) {
        add("\"reshard_after_forward\": False");
    }
    return imports + "\n" + checkpointing + mesh_lines(job) + "sharding = {" + sharding + "}\n" + loop +
           "fully_shard(model" + keywords + "\n";
}

}  // namespace

PlanCode code_of(const SweepQuestion& question, const PlanResult& plan, const TrainingJob& job) {
    const RuntimeInfo& info = runtime(job.runtime);
    if (!info.has_units || !plan.wrap.complete) {
        return {};
    }
    const std::vector<std::string> classes = classes_of(question, plan);
    PlanCode code;
    code.fsdp1 = fsdp1_code(question, plan, job, classes, question.sweep_thresholds);
    code.fsdp2 = job.strategy == Strategy::no_shard ? "" : fsdp2_code(question, plan, job, classes);
    return code;
}

}  // namespace fsdplan
