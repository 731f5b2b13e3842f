#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "fsdplan/model.hpp"
#include "model/importer.hpp"
#include "model/library.hpp"

// Every key of every config of the library with wrong values: a model or an Error, never anything else.
namespace fsdplan {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<Json>& wrong_values() {
    static const std::vector<Json> values{
        "text",         "",         -1,   0,           1,     1.5,    1e300,         7,
        1'000'000'000,  1LL << 40,  true, (1LL << 62), false, Json(), Json::array(), {1},
        Json::object(), {{"a", 1}},
    };
    return values;
}

// Few layers, so that there is time for all keys.
void shrink(Json& config) {
    static const std::set<std::string> counts{"num_hidden_layers", "num_layers",     "n_layer",
                                              "n_layers",          "encoder_layers", "decoder_layers"};
    for (auto& [key, value] : config.items()) {
        if (value.is_object()) {
            shrink(value);
        } else if (counts.contains(key) && value.is_number_integer() && value.get<int>() > 4) {
            value = 4;
        }
    }
}

/// Whether it was accepted; a failure of the test where neither a model nor an Error comes out.
bool accepts(const Json& config) {
    try {
        const ModelGraph graph = read_hf_config(config.dump(), "config.json", {});
        EXPECT_GT(flatten(graph).size(), 0U);
        return true;
    } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
        return false;
    } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
        return false;
    }
}

void damage(const Json& config, Json& part) {
    for (auto& [key, value] : part.items()) {
        if (value.is_object()) {
            damage(config, value);
        }
        const Json sound = value;
        for (const Json& wrong : wrong_values()) {
            value = wrong;
            SCOPED_TRACE(key + " = " + wrong.dump());
            accepts(config);
        }
        value = sound;
    }
}

TEST(DamagedConfig, IsAModelOrAnError) {
    for (const LibraryModel& model : library_models()) {
        SCOPED_TRACE(model.folder);
        Json config = Json::parse(library_entry(model.folder).config);
        shrink(config);
        EXPECT_TRUE(accepts(config));
        damage(config, config);
    }
}

}  // namespace
}  // namespace fsdplan
