#include "verify/zero_case.hpp"

#include <algorithm>
#include <array>

#include "verify/traffic.hpp"

// Taken from the recording, since nothing in it allows to derive them: the order in which a plain model's
// gradients become ready, and the members of a second optimizer group.
namespace fsdplan {
namespace {

/// A number of elements; DeepSpeed takes 5e8 for 500000000.
std::int64_t size_setting(const json::Value& settings, std::string_view key, std::int64_t otherwise) {
    const auto value = settings.find(key);
    if (!value) {
        return otherwise;
    }
    const double number = value->number();
    if (!(number >= 0)) {
        value->fail("a number of elements");
    }
    constexpr double largest = 9e18;
    return value->is_integer() ? value->integer(0) : static_cast<std::int64_t>(std::min(number, largest));
}

constexpr std::array known_settings{
    "stage",
    "reduce_bucket_size",
    "allgather_bucket_size",
    "overlap_comm",
    "contiguous_gradients",
    "reduce_scatter",
    "use_multi_rank_bucket_allreduce",
    "round_robin_gradients",
    "parameter_alignment",
    "compute_grad_norm",
    "stage3_prefetch_bucket_size",
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
    "stage3_param_persistence_threshold",
    "stage3_model_persistence_threshold",
    "stage3_allgather_sequential",
    "stage3_use_all_reduce_for_fetch_params",
    "stage3_module_granularity_threshold",
    "sub_group_size",
};

class Reader {
public:
    explicit Reader(const json::Value& recording) : recording_(recording), case_(recording.at("case")) {}

    ZeroCase read() {
        out_.out_of_reach = unknown_setting();
        if (out_.out_of_reach.empty()) {
            read_parameters();
            read_options();
            out_.out_of_reach = missing_input();
        }
        return std::move(out_);
    }

private:
    std::string unknown_setting() const {
        for (const json::Value value : case_.at("zero").members()) {
            if (std::ranges::find(known_settings, value.key()) == known_settings.end()) {
                return "no rule is known for the setting " + std::string(value.key());
            }
        }
        return "";
    }

    void read_parameters() {
        std::int64_t total = 0;
        for (const json::Value row : recording_.at("parameters").elements()) {
            out_.table.add(row.at("name"));
            const json::Value numel = row.at("numel");
            total = checked_add(total, numel.integer(0, largest_total), numel.where());
            out_.parameters.push_back({.numel = numel.integer(),
                                       .trainable = setting(row, "requires_grad", true),
                                       .created = static_cast<std::int32_t>(out_.parameters.size())});
        }
        if (const auto order = recording_.find("parameter_order")) {
            std::int32_t place = 0;
            for (const json::Value name : order->elements()) {
                parameter(name).created = place++;
            }
        }
        for (const json::Value name : recording_.at("gradient_order").elements()) {
            out_.ready.push_back(out_.table.row_of(name));
        }
        if (setting(case_, "groups", false)) {
            groups_known_ = read_groups();
        }
    }

    /// Which parameters form the second optimizer group.
    bool read_groups() {
        const auto layout = recording_.find("layout");
        if (!layout || layout->is_null()) {
            return false;
        }
        if (const auto groups = layout->find("groups")) {
            std::int32_t number = 0;
            for (const json::Value group : groups->elements()) {
                for (const json::Value row : group.at("params").elements()) {
                    parameter(*row.elements().begin()).group = number;
                }
                ++number;
            }
            return true;
        }
        // Groups follow each other, each in the order of the parameters: it drops where the second begins.
        std::int32_t last = 0;
        std::int32_t number = 0;
        for (const json::Value sub_group : layout->at("sub_groups").elements()) {
            for (const json::Value name : sub_group.elements()) {
                const std::int32_t row = out_.table.row_of(name);
                number += row < last ? 1 : 0;
                last = row;
                parameter(name).group = number;
            }
        }
        return true;
    }

    zero::Parameter& parameter(const json::Value& name) {
        return out_.parameters[static_cast<std::size_t>(out_.table.row_of(name))];
    }

    void read_options() {
        const json::Value settings = case_.at("zero");
        zero::Options& options = out_.options;
        options.stage = static_cast<int>(case_.at("stage").integer(0, 3));
        options.dtype = recorded_dtype(case_.at("dtype"));
        options.ranks = case_.at("world").integer(1, 1 << 20);
        options.accumulate = case_.at("accum").integer(1, 1000);
        if (const auto dtype = case_.find("comm")) {
            options.communication_dtype = recorded_dtype(*dtype);
        }
        if (const auto dtype = case_.find("grad_accum_dtype")) {
            options.float32_accumulation = recorded_dtype(*dtype) == DType::float32;
        }
        if (const auto clipping = recording_.at("ds_config").find("gradient_clipping")) {
            options.clips_gradients = clipping->number() > 0;
        }
        options.overlap_comm = setting(settings, "overlap_comm", options.stage == 3);
        options.contiguous_gradients = setting(settings, "contiguous_gradients", true);
        options.reduce_scatter = setting(settings, "reduce_scatter", true);
        options.use_multi_rank_bucket_allreduce = setting(settings, "use_multi_rank_bucket_allreduce", true);
        options.round_robin_gradients = setting(settings, "round_robin_gradients", false);
        options.parameter_alignment = setting(settings, "parameter_alignment", false);
        options.allgather_sequential = setting(settings, "stage3_allgather_sequential", false);
        options.use_all_reduce_for_fetch_params =
            setting(settings, "stage3_use_all_reduce_for_fetch_params", false);
        const auto read = [&](std::string_view key, std::int64_t& value) {
            value = size_setting(settings, key, value);
        };
        read("reduce_bucket_size", options.reduce_bucket_size);
        read("stage3_prefetch_bucket_size", options.prefetch_bucket_size);
        read("stage3_max_live_parameters", options.max_live_parameters);
        read("stage3_max_reuse_distance", options.max_reuse_distance);
        read("stage3_param_persistence_threshold", options.param_persistence_threshold);
        read("stage3_model_persistence_threshold", options.model_persistence_threshold);
        read("sub_group_size", options.sub_group_size);
    }

    /// What a rule needs and the recording does not say, or "".
    std::string missing_input() const {
        const bool refused = recording_.find("error") && !recording_.find("iterations");
        if (!groups_known_ && !refused && out_.options.stage > 0) {
            return "the recording does not say which parameters form the second optimizer group";
        }
        if (out_.options.stage == 3 && !refused && !recording_.find("hooks_last_iteration")) {
            return "the recording holds no order of module hooks, since the run broke off";
        }
        return "";
    }

    json::Value recording_;
    json::Value case_;
    ZeroCase out_;
    bool groups_known_ = true;
};

}  // namespace

ZeroCase zero_case(const json::Value& recording) {
    return Reader(recording).read();
}

}  // namespace fsdplan
