#include "verify/cuda_memory_case.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "planner/layers.hpp"
#include "verify/traffic.hpp"
#include "verify/wrapping.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t most_ranks = 1 << 20U;
constexpr std::int64_t most_microbatches = 256;  // of all steps together
constexpr std::int64_t image_side = 224;
constexpr std::int64_t image_channels = 3;
constexpr std::int64_t id_bytes = 8;  // of a token or a label

struct Device {
    std::string_view name;  ///< the recorder's
    std::string_view gpu;   ///< ours
    std::int64_t memory_bytes;
};
constexpr std::array<Device, 6> devices{{{"h100-80", "h100-sxm", 85028634624},
                                         {"h100-96", "h100-96gb-sxm", 102047940608},
                                         {"h200", "h200", 150110011392},
                                         {"b200", "b200", 191501697024},
                                         {"a100-80", "a100-80gb-sxm", 84987740160},
                                         {"a100-40", "a100-40gb-sxm", 42298834944}}};

class Reader {
public:
    Reader(const json::Value& recorded_case, const ModuleTree& tree) : case_(recorded_case), tree_(tree) {}

    CudaMemoryCase read() {
        const std::string_view strategy = case_.at("strategy").string();
        is_fsdp1_ = strategy == "fsdp1";
        is_fsdp2_ = strategy == "fsdp2";
        if (!is_fsdp1_ && !is_fsdp2_ && strategy != "ddp" && strategy != "none") {
            throw Unsupported{"the strategy " + json::quote(strategy) + " is not known"};
        }
        out_.job.runtime = strategy == "none" ? "single" : strategy;
        out_.job.torch = "2.13";
        read_mesh();
        read_device();
        read_batch();
        read_precision();
        read_training();
        read_optimizer();
        read_checkpointing();
        read_switches();
        check(out_.job, world_);
        draw_units();
        return std::move(out_);
    }

private:
    std::optional<json::Value> given(std::string_view key) const { return case_.given(key); }
    bool flag(std::string_view key, bool otherwise = false) const {
        const auto value = given(key);
        return value ? value->boolean() : otherwise;
    }
    std::int64_t number(std::string_view key, std::int64_t otherwise, std::int64_t most) const {
        const auto value = given(key);
        return value ? value->integer(1, most) : otherwise;
    }
    std::string_view word(std::string_view key, std::string_view otherwise) const {
        const auto value = given(key);
        return value ? value->string() : otherwise;
    }
    /// The entry of a list of pairs that a word stands for.
    template <typename Value, std::size_t n>
    Value chosen(std::string_view key, std::string_view otherwise,
                 const std::array<std::pair<std::string_view, Value>, n>& known) const {
        const std::string_view text = word(key, otherwise);
        for (const auto& [name, value] : known) {
            if (name == text) {
                return value;
            }
        }
        throw Unsupported{std::string(key) + " " + json::quote(text) + " is not known"};
    }

    void read_mesh() {
        const std::int64_t world = number("world", 8, most_ranks);
        Mesh& mesh = out_.job.mesh;
        mesh = is_fsdp1_ || is_fsdp2_ ? Mesh{.replicate = 1, .shard = world}
                                      : Mesh{.replicate = world, .shard = 1};
        world_ = world;
        const auto list = given("mesh");
        if (list && (is_fsdp1_ || is_fsdp2_)) {
            std::vector<std::int64_t> sizes;
            for (const json::Value size : list->elements()) {
                sizes.push_back(size.integer(1, world));
            }
            if (sizes.size() != 2 || sizes[0] * sizes[1] != world) {
                list->fail("[replicate, shard] of all ranks");
            }
            mesh = {.replicate = sizes[0], .shard = sizes[1]};
            has_mesh_ = true;
        }
    }

    void read_device() {
        constexpr std::int64_t usual_node = 8;
        const std::string_view name = word("device", "h100-80");
        const auto device = std::ranges::find(devices, name, &Device::name);
        if (device == devices.end()) {
            throw Unsupported{"the device " + json::quote(name) + " is not known"};
        }
        const std::int64_t node = world_ % usual_node == 0 ? usual_node : world_ < usual_node ? world_ : 1;
        out_.cluster = find_cluster({.gpu = std::string(device->gpu), .gpus = world_, .gpus_per_node = node});
        out_.cluster.budget = {number("memory", device->memory_bytes, CachingAllocator::most_memory.count)};
        out_.allocator.expandable_segments = flag("expandable");
        out_.timing = chosen("events", "clock",
                             std::array{std::pair{std::string_view("clock"), FreeTiming::by_clock},
                                        std::pair{std::string_view("now"), FreeTiming::at_once},
                                        std::pair{std::string_view("never"), FreeTiming::when_waited_for}});
        out_.steps = static_cast<int>(number("steps", 3, 64));
    }

    void read_batch() {
        constexpr std::int64_t most = std::int64_t{1} << 24U;
        TrainingJob& job = out_.job;
        job.batch = number("batch", 1, most);
        job.sequence = number("seq", 2048, most);
        const std::string where = case_.where();
        const bool images = std::ranges::any_of(tree_.classes, [](const ModuleClass& c) {
            return short_name(c.name).ends_with("ForImageClassification");
        });
        const auto ids = [&](std::int64_t length) {
            return checked_mul(checked_mul(job.batch, length, where), id_bytes, where);
        };
        if (images) {
            const std::int64_t pixels =
                checked_mul(job.batch, image_channels * image_side * image_side, where);
            out_.input_bytes = {bytes_of(pixels, storage()).count, ids(1)};
        } else {
            out_.job.target_sequence = number("target_seq", job.sequence, most);
            out_.input_bytes = {ids(job.sequence), ids(*out_.job.target_sequence)};
        }
    }

    DType storage() const {
        const auto value = given("storage");
        return value ? recorded_dtype(*value) : DType::float32;
    }

    // An absent `mixed` is bf16, null is no policy.
    void read_precision() {
        const auto mixed = case_.find("mixed");
        TrainingJob& job = out_.job;
        job.param_dtype.reset();
        if (!(is_fsdp1_ || is_fsdp2_) || (mixed && mixed->is_null())) {
            return;
        }
        job.param_dtype = mixed ? recorded_dtype(*mixed) : DType::bfloat16;
        const auto reduce = given("reduce");
        job.reduce_dtype = reduce ? recorded_dtype(*reduce) : DType::float32;
        if (is_fsdp1_) {
            job.buffer_dtype = job.param_dtype;
        }
    }

    void read_training() {
        TrainingJob& job = out_.job;
        job.accumulate = number("accumulate", 1, 1 << 16U);
        if (job.accumulate * out_.steps > most_microbatches) {
            throw Unsupported{"it has more than " + std::to_string(most_microbatches) + " micro-batches"};
        }
        job.no_sync = flag("no_sync");
        job.offload = flag("cpu_offload");
        if (flag("use_cache")) {
            throw Unsupported{"the cache of keys and values in training is not modelled"};
        }
        job.loss_in_model = true;  // transformers, given labels
        job.reads_loss = true;
        const auto clip = case_.find("clip");
        if (!clip || !clip->is_null()) {
            job.clip_norm = 2.0;
        }
        if (const auto kept = given("keep_logits")) {
            if (kept->is_boolean()) {
                job.output = kept->boolean() ? OutputLife::backward : OutputLife::loss;
            } else if (kept->string() == "next") {
                job.output = OutputLife::next_forward;
            } else {
                kept->fail("true, false or \"next\"");
            }
        }
        job.zero_grad_first = chosen("zero_grad", "after",
                                     std::array{std::pair{std::string_view("after"), false},
                                                std::pair{std::string_view("before"), true}});
    }

    // A name, and how it steps: "adamw-forloop".
    void read_optimizer() {
        constexpr std::array implementations{std::pair{std::string_view("-foreach"), ":foreach"},
                                             std::pair{std::string_view("-fused"), ":fused"},
                                             std::pair{std::string_view("-forloop"), ":for-loop"}};
        const std::string_view text = word("optimizer", "adamw-foreach");
        std::string option(text);
        for (const auto& [suffix, implementation] : implementations) {
            if (text.ends_with(suffix)) {
                option = std::string(text.substr(0, text.size() - suffix.size())) + implementation;
            }
        }
        try {
            out_.job.optimizer = parse_optimizer(option);
        } catch (const Error&) {
            throw Unsupported{"optimizer " + json::quote(text) + " is not known"};
        }
    }

    // FSDP2 hangs its hooks on the module itself: transformers checkpoints the call with them, and only where
    // the wrapper was sharded does the unit lie outside.
    void read_checkpointing() {
        using Mode = ActivationCheckpointing::Mode;
        using Placement = ActivationCheckpointing::Placement;
        ActivationCheckpointing& out = out_.job.activation_checkpointing;
        const std::string_view ac = word("ac", "none");
        out.mode = chosen("ac", "none",
                          std::array{std::pair{std::string_view("none"), Mode::none},
                                     std::pair{std::string_view("full"), Mode::blocks},
                                     std::pair{std::string_view("wrapper"), Mode::blocks},
                                     std::pair{std::string_view("alternate"), Mode::every},
                                     std::pair{std::string_view("selective-op"), Mode::selective}});
        out.every = 2;
        out.wrapped = ac != "full";
        const bool around_units = out.mode == Mode::every || out.by_model(tree_);
        out.placement = is_fsdp2_ && around_units ? Placement::outside : Placement::inside;
    }

    void read_switches() {
        TrainingJob& job = out_.job;
        job.gradient_as_bucket_view = flag("ddp_bucket_view");
        if (!is_fsdp1_ && !is_fsdp2_) {
            job.strategy = Strategy::no_shard;
            return;
        }
        job.strategy = has_mesh_ ? Strategy::hybrid_shard : Strategy::full_shard;
        if (is_fsdp2_) {
            return;
        }
        job.fsdp1.built_on_device = true;
        job.use_orig_params = flag("use_orig_params", true);
        job.limit_all_gathers = flag("limit_all_gathers", true);
        job.forward_prefetch = flag("forward_prefetch");
        if (const auto prefetch = case_.find("backward_prefetch")) {
            job.backward_prefetch = prefetch->is_null()           ? BackwardPrefetch::none
                                    : prefetch->string() == "pre" ? BackwardPrefetch::pre
                                                                  : BackwardPrefetch::post;
        }
        job.strategy =
            chosen("sharding", has_mesh_ ? "hybrid" : "full",
                   std::array{std::pair{std::string_view("full"), Strategy::full_shard},
                              std::pair{std::string_view("grad"), Strategy::shard_grad_op},
                              std::pair{std::string_view("no"), Strategy::no_shard},
                              std::pair{std::string_view("hybrid"), Strategy::hybrid_shard},
                              std::pair{std::string_view("hybrid-grad"), Strategy::hybrid_shard_zero2}});
    }

    /// Embedding and head around the blocks.
    std::vector<ModuleIndex> with_ends(std::vector<ModuleIndex> out) const {
        const ModelShape shape = shape_of(tree_);
        const Layer* embedding = nullptr;
        for (const Layer& layer : shape.layers) {
            if (layer.kind == LayerKind::embedding && (embedding == nullptr || layer.in > embedding->in)) {
                embedding = &layer;
            }
        }
        if (embedding == nullptr || !shape.head) {
            throw Unsupported{"the model's embedding or head was not found"};
        }
        out.insert(out.begin(), static_cast<ModuleIndex>(embedding->row));
        out.push_back(static_cast<ModuleIndex>(shape.layers[*shape.head].row));
        return out;
    }

    /// The children of blocks that are large enough, in front of the blocks.
    std::vector<ModuleIndex> with_children(const std::vector<ModuleIndex>& around) const {
        constexpr std::int64_t large = 1'000'000;
        std::vector<ModuleIndex> out;
        for (const ModuleIndex block : around) {
            for (const ModuleIndex child : tree_.children(block)) {
                if (tree_.numel[at(child)] > large) {
                    out.push_back(child);
                }
            }
        }
        out.insert(out.end(), around.begin(), around.end());
        return out;
    }

    void draw_units() {
        if (!is_fsdp1_ && !is_fsdp2_) {
            out_.plan = wrap(tree_, {}, {});
            return;
        }
        const auto given_wrap = given("wrap");
        const std::string_view kind = given_wrap ? given_wrap->at("kind").string() : "blocks";
        const WrapOptions options = wrap_options(out_.job);
        PolicySpec spec;
        if (kind == "size") {
            spec.kind = PolicySpec::Kind::recursive;
            spec.members.push_back(
                {.name = "size", .min_num_params = given_wrap->at("min_num_params").number()});
        } else if (kind == "blocks" && is_fsdp1_) {
            spec.kind = PolicySpec::Kind::module_classes;
            spec.classes = block_classes(tree_);
        } else {
            spec = by_path(kind);
        }
        out_.plan = is_fsdp1_ ? wrap_fsdp1(tree_, spec, options) : wrap_fsdp2(tree_, spec, options);
        if (is_fsdp2_) {
            set_reshard();
        }
        if (const Diagnostic* error = out_.plan.construction_error()) {
            throw Unsupported{"these units cannot be: " + error->message};
        }
    }

    PolicySpec by_path(std::string_view kind) const {
        std::vector<ModuleIndex> modules;
        if (kind == "blocks") {
            modules = blocks_of(tree_);
        } else if (kind == "blocks+ends") {
            modules = with_ends(blocks_of(tree_));
        } else if (kind == "mlp+attention") {
            modules = with_children(blocks_of(tree_));
        } else if (kind != "root") {
            throw Unsupported{"the wrapping " + json::quote(kind) + " is not known"};
        }
        PolicySpec spec;
        if (is_fsdp1_) {
            spec.kind = modules.empty() ? PolicySpec::Kind::none : PolicySpec::Kind::custom;
            for (const ModuleIndex m : modules) {
                spec.rules.push_back({.selector = "fqn:" + tree_.path(m)});
            }
            return spec;
        }
        spec.kind = PolicySpec::Kind::calls;
        for (const ModuleIndex m : modules) {
            spec.calls.push_back({.modules = {tree_.path(m)}});
        }
        spec.calls.push_back({.modules = {""}});
        return spec;
    }

    void set_reshard() {
        const auto value = given("reshard_after_forward");
        if (!value) {
            return;
        }
        if (value->is_boolean() || value->is_integer()) {
            const std::string text = value->is_boolean() ? (value->boolean() ? "true" : "false")
                                                         : std::to_string(value->integer(1, world_));
            for (Unit& unit : out_.plan.units) {
                unit.arguments.emplace_back("reshard_after_forward", text);
            }
            return;
        }
        if (value->string() != "all-but-last") {
            throw Unsupported{"reshard_after_forward " + value->shown() + " is not known"};
        }
        reshard_all_but_last(tree_, out_.plan);
    }

    json::Value case_;
    const ModuleTree& tree_;
    CudaMemoryCase out_;
    std::int64_t world_ = 1;
    bool is_fsdp1_ = false;
    bool is_fsdp2_ = false;
    bool has_mesh_ = false;
};

}  // namespace

CudaMemoryCase cuda_memory_case(const json::Value& recorded_case, const ModuleTree& tree) {
    return Reader(recorded_case, tree).read();
}

bool breaks_ties(const json::Value& recorded_case) {
    return recorded_case.at("strategy").string() == "fsdp1";
}

}  // namespace fsdplan
