#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.hpp"
#include "base/json.hpp"
#include "fsdplan/verify.hpp"
#include "support/temp_folder.hpp"

namespace fsdplan {
namespace {

using test::TempFolder;

Verification replayed(const std::string& path) {
    return verify(std::span(&path, 1));
}

/// Whether a difference is about something that no estimate of the computation decides.
bool is_exact(const Difference& d) {
    return d.where.ends_with("requested bytes") || d.where == "parameters" || d.where == "units";
}

/// When the recording took events for complete.
std::string events_of(const std::string& case_name) {
    const std::string file = case_name.substr(0, case_name.find(' ')) + ".json";
    const std::string path = std::string(FSDPLAN_TEST_DATA "/golden/cuda_memory/") + file;
    const json::Document recording(read_text(path), file);
    const auto events = recording.root().at("case").find("events");
    return events ? std::string(events->string()) : "clock";
}

TEST(VerifyCudaMemory, EveryRecordingIsReadAndWhatStaysIsExact) {
    const Verification result = replayed(FSDPLAN_TEST_DATA "/golden/cuda_memory");
    EXPECT_EQ(result.cases, 228);
    EXPECT_EQ(result.match, 219);  // docs/accuracy.md says what is known of the others
    EXPECT_EQ(result.differences.size(), 51U);
    EXPECT_EQ(result.skipped, 2);
    for (const Difference& d : result.differences) {
        EXPECT_FALSE(is_exact(d)) << d.case_name << ": " << d.where << "\n  expected " << d.expected
                                  << "\n  got " << d.got;
    }
    for (const Skip& skip : result.skips) {
        EXPECT_THAT(skip.reason, testing::HasSubstr("cache")) << skip.case_name;
    }
    // Where no clock decides when FSDP1's blocks come back, a segment too many or too few is all.
    for (const Deviation& d : result.deviations) {
        if (d.quantity == "peak of reserved" && events_of(d.case_name) != "clock") {
            EXPECT_LT(d.error(), 0.01) << d.case_name;
        }
    }
}

// 5,712 float32 parameters over four ranks, two times 16 ids of 8 bytes, two buffers of 4 float32: 6,000
// bytes.
constexpr const char* small_case =
    R"({"case": {"model": "m", "strategy": "fsdp2", "world": 4, "batch": 1, "seq": 16, "steps": 1,
                 "mixed": null, "clip": null},
        "outcome": "ok",
        "facts": {"parameters": 5712, "units": 3},
        "after_setup": {"phase": "setup", "allocated": 0, "peak_allocated": 0,
                        "peak_reserved": 0, "requested": 6000},
        "steps": [{"phases": [
            {"phase": "forward", "allocated": 0, "peak_allocated": 0, "active": 0, "peak_active": 0,
             "peak_reserved": 0, "requested": 0, "peak_requested": 0}]}]})";

constexpr const char* small_model =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32, "hidden_size": 16,
        "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "max_position_embeddings": 64})";

class Small {
public:
    Small() : text(small_case) { folder.write("models/m.json", small_model); }

    void replace(const std::string& from, const std::string& to) {
        const std::size_t at = text.find(from);
        ASSERT_NE(at, std::string::npos) << from;
        text.replace(at, from.size(), to);
    }
    Verification replay() const { return replayed(folder.write("x.json", text).string()); }
    /// The message, or the first skip's reason, or how many cases were replayed.
    std::string outcome() const {
        try {
            const Verification result = replay();
            return result.skips.empty() ? std::to_string(result.cases) + " replayed" : result.skips[0].reason;
        } catch (const Error& error) {
            const std::string message = error.what();
            const std::size_t at = message.find("x.json");
            return at == std::string::npos ? message : message.substr(at);
        }
    }

    TempFolder folder;
    std::string text;
};

std::string outcome_with(const std::string& from, const std::string& to) {
    Small small;
    small.replace(from, to);
    return small.outcome();
}

TEST(VerifyCudaMemory, WhatDiffersIsNamed) {
    Small small;
    small.replace("\"units\": 3", "\"units\": 4");
    const Verification result = small.replay();
    ASSERT_EQ(result.differ, 1);
    EXPECT_EQ(result.differences[0].where, "units");
    EXPECT_EQ(result.differences[0].got, "3");
    EXPECT_THAT(result.differences.back().where, testing::HasSubstr("peak of allocated"));
    EXPECT_FALSE(result.deviations.empty());
}

TEST(VerifyCudaMemory, WhatIsNotKnownIsSkippedWithAReason) {
    EXPECT_EQ(outcome_with("\"m\"", "\"n\""),
              "its model \"n\" is neither in models/ beside it nor in the library");
    EXPECT_THAT(outcome_with("\"m\"", "\"../models/m\""), testing::HasSubstr("is neither in models/"));
    EXPECT_EQ(outcome_with("fsdp2", "fsdp3"), "the strategy \"fsdp3\" is not known");
    EXPECT_EQ(outcome_with("\"steps\": 1", "\"device\": \"abacus\""), "the device \"abacus\" is not known");
    EXPECT_EQ(outcome_with("\"steps\": 1", "\"optimizer\": \"lion\""), "optimizer \"lion\" is not known");
    EXPECT_EQ(outcome_with("\"steps\": 1", "\"wrap\": {\"kind\": \"thin\"}"),
              "the wrapping \"thin\" is not known");
    EXPECT_EQ(outcome_with("\"steps\": 1", "\"use_cache\": true"),
              "the cache of keys and values in training is not modelled");
    EXPECT_EQ(outcome_with("\"steps\": 1", "\"accumulate\": 60000"), "it has more than 256 micro-batches");
}

TEST(VerifyCudaMemory, WrongRecordingsAreErrorsWithTheirPlace) {
    EXPECT_THAT(outcome_with("\"world\": 4", "\"world\": 0"),
                testing::StartsWith("x.json#/case/world: expect"));
    EXPECT_THAT(outcome_with("\"world\": 4", "\"world\": 4, \"mesh\": [3, 2]"),
                testing::StartsWith("x.json#/case/mesh: expected [replicate, shard]"));
    EXPECT_THAT(outcome_with("\"batch\": 1", "\"batch\": 99999999999"),
                testing::StartsWith("x.json#/case/batch: expect"));
    EXPECT_THAT(outcome_with("{\"phases\"", "{\"same_as\": 0, \"phases\""),
                testing::StartsWith("x.json#/steps/0/same_as: expect"));
    EXPECT_THAT(outcome_with("\"peak_reserved\": 0", "\"peak_reserved\": -1"),
                testing::StartsWith("x.json#/after_setup/peak_reserved: expect"));
    EXPECT_THAT(outcome_with("\"mixed\": null", "\"mixed\": \"f7\""),
                testing::StartsWith("x.json#/case/mixed: expect"));
    EXPECT_THAT(outcome_with("\"outcome\": \"ok\"", "\"outcome\": \"oom\""), testing::HasSubstr("\"oom\""));
}

// Whatever is left of a file, one line says what is wrong with it, or it is no recording.
TEST(VerifyCudaMemory, ATruncatedRecordingIsOneLine) {
    const std::string whole = small_case;
    Small small;
    EXPECT_EQ(small.outcome(), "1 replayed");
    for (std::size_t size = 0; size < whole.size(); size += 7) {
        small.text = whole.substr(0, size);
        const std::string message = small.outcome();
        EXPECT_THAT(message, testing::HasSubstr(":")) << size;
        EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
}

TEST(Accuracy, SaysHowCloseAQuantityComes) {
    Verification result;
    for (const std::int64_t got : {100, 101, 90}) {
        result.deviations.push_back(
            {.quantity = "peak", .case_name = std::to_string(got), .expected = 100, .got = got});
    }
    const std::vector<Accuracy> found = accuracies(result);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_DOUBLE_EQ(found[0].median, 0.01);
    EXPECT_DOUBLE_EQ(found[0].worst, 0.1);
    EXPECT_EQ(found[0].worst_case, "90");
    EXPECT_EQ(found[0].within_half_percent, 1U);
    EXPECT_EQ(found[0].within_two_percent, 2U);
}

}  // namespace
}  // namespace fsdplan
