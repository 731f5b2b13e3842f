#include "checkpoint_options.hpp"

#include <charconv>
#include <vector>

#include "arguments.hpp"
#include "base/quantity.hpp"
#include "fsdplan/schedule.hpp"

namespace fsdplan::cli {
namespace {

std::vector<std::string> items_of(const std::string& text) {
    std::vector<std::string> items;
    std::size_t begin = 0;
    while (begin <= text.size()) {
        const std::size_t comma = std::min(text.find(',', begin), text.size());
        items.push_back(text.substr(begin, comma - begin));
        begin = comma + 1;
    }
    return items;
}

constexpr const char* load_into = "--load-into";

bool truth(const std::string& text, const std::string& key) {
    if (text != "true" && text != "false") {
        throw Error(ErrorKind::input, load_into, key + ": expected true or false, found \"" + text + "\"");
    }
    return text == "true";
}

std::int64_t ranks_of(const std::string& text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    constexpr std::int64_t most = 16'384;
    if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most) {
        throw Error(ErrorKind::input, load_into,
                    "world: expected a number of ranks from 1 to 16384, found \"" + text + "\"");
    }
    return value;
}

std::vector<std::int64_t> shape_of(const std::string& text) {
    std::vector<std::int64_t> shape;
    const char* begin = text.data();
    const char* const end = text.data() + text.size();
    std::int64_t numel = 1;
    while (true) {
        std::int64_t size = 0;
        const auto [stop, error] = std::from_chars(begin, end, size);
        if (error != std::errc() || size < 1 || (stop != end && *stop != 'x')) {
            throw Error(ErrorKind::input, "--mismatch",
                        "expected sizes joined by x, as in 257152x2048:131661824, found \"" + text + "\"");
        }
        numel = checked_mul(numel, size, "--mismatch");
        shape.push_back(size);
        if (stop == end) {
            return shape;
        }
        begin = stop + 1;
    }
}

double rate(const std::string& text, const char* option) {
    const std::string suffix = "/s";
    const std::string bytes = text.ends_with(suffix) ? text.substr(0, text.size() - suffix.size()) : text;
    const auto count = static_cast<double>(parse_bytes(bytes, option).count);
    if (count <= 0) {
        throw Error(ErrorKind::input, option, "expected more than nothing, found \"" + text + "\"");
    }
    return count;
}

/// The mesh of so many ranks under a strategy, when none is given.
Mesh mesh_on(std::int64_t ranks, Strategy strategy, const Mesh& like) {
    if (!is_hybrid(strategy) || ranks % like.shard != 0) {
        return {.replicate = 1, .shard = ranks};
    }
    return {.replicate = ranks / like.shard, .shard = like.shard};
}

void set(LoadInto& out, const std::string& key, const std::string& value, std::optional<std::int64_t>& world,
         bool& has_mesh) {
    const std::vector<std::string> known = {"world", "mesh",      "strategy",    "use-orig-params",
                                            "route", "optimizer", "device-mesh", "dtype"};
    if (key == "world") {
        world = ranks_of(value);
    } else if (key == "mesh") {
        out.job.mesh = parse_mesh(value);
        has_mesh = true;
    } else if (key == "strategy") {
        out.job.strategy = parse_strategy(value, load_into);
    } else if (key == "use-orig-params") {
        out.job.use_orig_params = truth(value, key);
    } else if (key == "device-mesh") {
        out.device_mesh = truth(value, key);
    } else if (key == "dtype") {
        out.dtype = value;
    } else if (key == "optimizer") {
        out.with_optimizer = value != "none";
        out.job.optimizer = out.with_optimizer ? parse_optimizer(value) : out.job.optimizer;
    } else if (key == "route") {
        if (find_load_route(value) == nullptr) {
            std::vector<std::string> routes;
            for (const LoadRoute& route : load_routes()) {
                routes.emplace_back(route.name);
            }
            throw Error(ErrorKind::input, load_into,
                        "unknown route \"" + value + "\"" + did_you_mean(value, routes));
        }
        out.route = value;
    } else {
        throw Error(ErrorKind::input, load_into, "unknown key \"" + key + "\"" + did_you_mean(key, known));
    }
}

}  // namespace

void SaveOptions::declare_type(Arguments& arguments) {
    arguments.option(
        "--save-type", type,
        "how checkpoints are saved, e.g. dcp or full,offload,rank0; plans that run out of memory "
        "while saving so do not fit",
        "TYPE");
}

void SaveOptions::declare(Arguments& arguments) {
    declare_type(arguments);
    arguments.option("--write-bandwidth", write_bandwidth, "of one rank to storage, e.g. 2GB/s; 1GB/s",
                     "RATE");
    arguments.option("--store-bandwidth", store_bandwidth, "of all ranks together; no limit", "RATE");
    arguments.option("--timeout", timeout_minutes, "of the process group, in minutes; 10", 1, 100'000);
    arguments.flag("--model-only", model_only, "without the optimizer's state");
}

CheckpointWish SaveOptions::wish() const {
    CheckpointWish out{.type = type, .with_optimizer = !model_only};
    if (!write_bandwidth.empty()) {
        out.storage.rank_bytes_per_s = rate(write_bandwidth, "--write-bandwidth");
    }
    if (!store_bandwidth.empty()) {
        out.storage.store_bytes_per_s = rate(store_bandwidth, "--store-bandwidth");
    }
    constexpr double seconds_per_minute = 60.0;
    out.storage.timeout_s = static_cast<double>(timeout_minutes) * seconds_per_minute;
    return out;
}

CheckpointWish SaveOptions::wish(const AskedQuestion& asked, const TrainingJob& job) const {
    CheckpointWish out = wish();
    for (const Assumption& setting : asked.assumptions) {
        if (!out.type && setting.name == "fsdp_state_dict_type") {
            const std::string_view format = accelerate_format(setting.value, job.runtime);
            if (!format.empty()) {
                out.type = std::string(format);
            }
        }
    }
    return out;
}

std::vector<Assumption> SaveOptions::assumptions(const CheckpointWish& wish) const {
    const auto from = [](bool given, const char* option) { return std::string(given ? option : "default"); };
    const std::int64_t store = static_cast<std::int64_t>(wish.storage.store_bytes_per_s);
    const std::string saved = type ? "--save-type" : wish.type ? "fsdp_state_dict_type" : "default";
    return {{"save type", wish.type.value_or("none chosen"), saved, ""},
            {"write bandwidth of a rank",
             show_bytes(static_cast<std::int64_t>(wish.storage.rank_bytes_per_s)) + "/s",
             from(!write_bandwidth.empty(), "--write-bandwidth"), "not in any data sheet: measure it"},
            {"bandwidth of the store", store > 0 ? show_bytes(store) + "/s" : "no limit",
             from(store > 0, "--store-bandwidth"), ""},
            {"timeout of the process group", std::to_string(timeout_minutes) + " min",
             from(timeout_minutes != 10, "--timeout"), "NCCL's default is 10 minutes"}};
}

ShapeMismatch parse_mismatch(const std::string& text) {
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos) {
        throw Error(ErrorKind::input, "--mismatch",
                    "expected two shapes, as in 257152x2048:131661824, found \"" + text + "\"");
    }
    const std::vector<std::int64_t> saved = shape_of(text.substr(0, colon));
    return explain_mismatch(saved, shape_of(text.substr(colon + 1)));
}

LoadInto parse_load_into(const std::string& text, const TrainingJob& from) {
    LoadInto out{.job = from};
    const std::vector<std::string> items = items_of(text);
    out.job.runtime = std::string(runtime(items.front()).name);
    std::optional<std::int64_t> world;
    bool has_mesh = false;
    for (std::size_t i = 1; i < items.size(); ++i) {
        const std::size_t equals = items[i].find('=');
        if (equals == std::string::npos) {
            throw Error(ErrorKind::input, load_into, "expected key=value, found \"" + items[i] + "\"");
        }
        set(out, items[i].substr(0, equals), items[i].substr(equals + 1), world, has_mesh);
    }
    const bool wrapped = out.job.runtime.starts_with("fsdp");
    const std::int64_t ranks = world.value_or(wrapped ? from.mesh.ranks() : 1);
    if (!has_mesh) {
        out.job.mesh = mesh_on(ranks, out.job.strategy, from.mesh);
    } else if (world && out.job.mesh.ranks() != *world) {
        throw Error(ErrorKind::input, load_into, "mesh and world name different numbers of ranks");
    }
    return out;
}

}  // namespace fsdplan::cli
