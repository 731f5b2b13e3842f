#include "verify/published/reading.hpp"

#include <array>
#include <utility>

namespace fsdplan::published {
namespace {

constexpr std::int64_t most = std::int64_t{1} << 30U;

}  // namespace

PublishedRow row_of(const json::Value& row, std::string_view table) {
    return {.table = std::string(table), .id = std::string(row.at("id").string())};
}

PublishedRow outside_of(const json::Value& row, std::string_view table, std::string reason) {
    PublishedRow out = row_of(row, table);
    out.outside = std::move(reason);
    return out;
}

std::int64_t size(const json::Value& value) {
    return value.integer(1, most);
}

bool flag(const json::Value& row, std::string_view key) {
    const auto value = row.given(key);
    return value && value->boolean();
}

double amount(const json::Value& value, double unit) {
    constexpr double most_bytes = 9e15;
    const double number = value.number() * unit;
    if (!(number > 0.0) || number > most_bytes) {
        value.fail("a number above 0");
    }
    return number;
}

std::optional<double> given_amount(const json::Value& row, std::string_view key, double unit) {
    const auto value = row.given(key);
    return value ? std::optional(amount(*value, unit)) : std::nullopt;
}

json::Value listed_model(const json::Value& file, const json::Value& row) {
    const json::Value name = row.at("model");
    const json::Value models = file.at("models");
    if (const auto found = models.find(name.string())) {
        return *found;
    }
    std::vector<std::string> known;
    for (const json::Value model : models.members()) {
        known.emplace_back(model.key());
    }
    name.fail("a model that the file lists under \"models\"" + did_you_mean(name.string(), known));
}

void take_llama(const json::Value& file, const json::Value& row, PublishedRun& run) {
    const json::Value model = listed_model(file, row);
    constexpr std::array<std::pair<std::string_view, std::string_view>, 6> sizes{
        {{"dim", "hidden_size"},
         {"ffn_hidden", "intermediate_size"},
         {"n_layers", "num_hidden_layers"},
         {"n_heads", "num_attention_heads"},
         {"n_kv_heads", "num_key_value_heads"},
         {"vocab", "vocab_size"}}};
    run.config = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"])";
    for (const auto& [key, name] : sizes) {
        run.config += ", \"" + std::string(name) + "\": " + std::to_string(size(model.at(key)));
    }
    run.config += std::string(R"(, "tie_word_embeddings": )") + (flag(model, "tied") ? "true}" : "false}");
    if (const auto parameters = model.given("n_params")) {
        run.parameters = parameters->integer(1, largest_total);
    }
}

ClusterRequest machines(std::string_view gpu, std::int64_t gpus) {
    constexpr std::int64_t usual_node = 8;
    return {.gpu = std::string(gpu),
            .gpus = gpus,
            .gpus_per_node = gpus % usual_node == 0 ? usual_node
                             : gpus < usual_node    ? gpus
                                                    : std::int64_t{1}};
}

std::optional<ActivationCheckpointing> checkpointing(std::string_view words) {
    using Mode = ActivationCheckpointing::Mode;
    ActivationCheckpointing out;
    if (words == "full") {
        out.mode = Mode::blocks;
    } else if (words == "selective op") {
        out.mode = Mode::selective;
    } else if (words == "selective layer (2)") {
        out.mode = Mode::every;
        out.every = 2;
    } else if (words != "none") {
        return std::nullopt;
    }
    return out;
}

}  // namespace fsdplan::published
