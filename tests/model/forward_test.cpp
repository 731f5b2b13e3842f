#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <vector>

#include "fsdplan/operators.hpp"
#include "model/importer.hpp"
#include "operators/reduction.hpp"

// Tiny models of each family against real steps of them, recorded from PyTorch 2.13.0 and transformers 5.24.0
// on CUDA's caching allocator in bfloat16, batch 2. Numbers are of allocations of 8 KiB and more, gradients
// of parameters included; without the column buffer of a convolution, which cuDNN does not need. T5 is short
// enough for an embedding's backward not to sort.
namespace fsdplan {
namespace {

struct Memory {
    std::int64_t allocations = 0;
    std::int64_t after_forward = 0;
    std::int64_t peak = 0;
    std::int64_t after_backward = 0;

    friend bool operator==(const Memory&, const Memory&) = default;
    // NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for this name
    friend void PrintTo(const Memory& m, std::ostream* out) {
        *out << m.allocations << " allocations, " << m.after_forward << " after forward, peak " << m.peak
             << ", " << m.after_backward << " after backward";
    }
};

class Player {
public:
    Player(const ModuleTree& tree, const OperatorGraph& graph)
        : tree_(tree), graph_(graph), holders_(graph.storages.size(), 0) {}

    Memory play() {
        for (const MemoryEvent& event : graph_.forward) {
            take(event);
        }
        memory_.after_forward = live_;
        for (const MemoryEvent& event : graph_.backward) {
            take(event);
        }
        memory_.after_backward = live_;
        return memory_;
    }

private:
    static constexpr std::int64_t least = 8192;

    void appears(std::int64_t bytes) {
        if (bytes >= least) {
            ++memory_.allocations;
            live_ += bytes;
            memory_.peak = std::max(memory_.peak, live_);
        }
    }
    void let_go(std::int32_t storage) {
        const std::int64_t bytes = graph_.storages[static_cast<std::size_t>(storage)].bytes;
        if (--holders_[static_cast<std::size_t>(storage)] == 0 && bytes >= least) {
            live_ -= bytes;
        }
    }
    void take(const MemoryEvent& event) {
        switch (event.kind) {
            case MemoryEvent::Kind::allocate:
                holders_[static_cast<std::size_t>(event.index)] = 1;
                appears(graph_.storages[static_cast<std::size_t>(event.index)].bytes);
                break;
            case MemoryEvent::Kind::save:
                ++holders_[static_cast<std::size_t>(event.index)];
                break;
            case MemoryEvent::Kind::drop:
            case MemoryEvent::Kind::release:
                let_go(event.index);
                break;
            case MemoryEvent::Kind::gradient:
                appears(bytes_of(tree_.tensors[static_cast<std::size_t>(event.index)].numel, DType::bfloat16)
                            .count);
                break;
            case MemoryEvent::Kind::run:
                break;
        }
    }

    const ModuleTree& tree_;
    const OperatorGraph& graph_;
    std::vector<std::int32_t> holders_;
    std::int64_t live_ = 0;
    Memory memory_;
};

Memory memory_of(const std::string& keys, std::int64_t sequence = 64,
                 std::optional<std::int64_t> target_sequence = {}) {
    const ModelGraph model = read_hf_config("{\"dtype\": \"bfloat16\", " + keys + "}", "config.json", {});
    const ModuleTree tree = flatten(model);
    const OperatorGraph graph =
        model.operators(tree, {.batch = 2, .sequence = sequence, .target_sequence = target_sequence});
    EXPECT_EQ(first_fault(graph), "");
    EXPECT_TRUE(graph.notes.empty());
    return Player(tree, graph).play();
}

TEST(Gpt2Forward, IsItsRealStep) {
    constexpr const char* keys =
        R"("model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 256, "n_layer": 2, "n_head": 4, "vocab_size": 1000, "use_cache": false, "bos_token_id": 1, "eos_token_id": 2)";
    EXPECT_EQ(
        memory_of(keys),
        (Memory{.allocations = 114, .after_forward = 4476928, .peak = 5500928, .after_backward = 4182016}));
}

TEST(GptNeoXForward, IsItsRealStep) {
    constexpr const char* keys =
        R"("model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000, "use_cache": false)";
    EXPECT_EQ(
        memory_of(keys),
        (Memory{.allocations = 124, .after_forward = 2740224, .peak = 3919872, .after_backward = 3645440}));
}

TEST(GptNeoXForward, WithoutParallelResidualIsItsRealStep) {
    constexpr const char* keys =
        R"("model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000, "use_parallel_residual": false, "hidden_dropout": 0.1, "use_cache": false)";
    EXPECT_EQ(
        memory_of(keys),
        (Memory{.allocations = 137, .after_forward = 3035136, .peak = 4059136, .after_backward = 3645440}));
}

TEST(BertForward, IsItsRealStep) {
    constexpr const char* keys =
        R"("model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000)";
    EXPECT_EQ(
        memory_of(keys),
        (Memory{.allocations = 101, .after_forward = 2582528, .peak = 4550656, .after_backward = 3526656}));
}

TEST(BertForward, OfSequencesIsItsRealStep) {
    constexpr const char* keys =
        R"("model_type": "bert", "architectures": ["BertForSequenceClassification"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000)";
    EXPECT_EQ(
        memory_of(keys),
        (Memory{.allocations = 89, .after_forward = 2129920, .peak = 3592192, .after_backward = 3526656}));
}

TEST(BertForward, OfTokensIsItsRealStep) {
    constexpr const char* keys =
        R"("model_type": "bert", "architectures": ["BertForTokenClassification"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000)";
    EXPECT_EQ(
        memory_of(keys),
        (Memory{.allocations = 91, .after_forward = 2162688, .peak = 3461120, .after_backward = 3395584}));
}

TEST(RobertaForward, IsItsRealStep) {
    constexpr const char* keys =
        R"("model_type": "roberta", "architectures": ["RobertaForMaskedLM"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000, "bos_token_id": 0, "eos_token_id": 2)";
    EXPECT_EQ(
        memory_of(keys),
        (Memory{.allocations = 100, .after_forward = 2582528, .peak = 4550656, .after_backward = 3526656}));
}

TEST(RobertaForward, OfSequencesIsItsRealStep) {
    constexpr const char* keys =
        R"("model_type": "roberta", "architectures": ["RobertaForSequenceClassification"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000, "bos_token_id": 0, "eos_token_id": 2)";
    EXPECT_EQ(
        memory_of(keys),
        (Memory{.allocations = 88, .after_forward = 2064384, .peak = 3592192, .after_backward = 3526656}));
}

TEST(T5Forward, IsItsRealStep) {
    constexpr const char* keys =
        R"("model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 256, "d_ff": 768, "d_kv": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 1000, "decoder_start_token_id": 0, "use_cache": false, "tie_word_embeddings": true)";
    EXPECT_EQ(
        memory_of(keys, 48, 32),
        (Memory{.allocations = 454, .after_forward = 5086208, .peak = 7768064, .after_backward = 6803456}));
}

TEST(T5Forward, WithGatesIsItsRealStep) {
    constexpr const char* keys =
        R"("model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 256, "d_ff": 768, "d_kv": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 1000, "decoder_start_token_id": 0, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false, "use_cache": false)";
    EXPECT_EQ(
        memory_of(keys, 48, 32),
        (Memory{.allocations = 540, .after_forward = 7543808, .peak = 10029056, .after_backward = 8376320}));
}

TEST(VitForward, IsItsRealStep) {
    constexpr const char* keys =
        R"("model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32, "patch_size": 8, "num_labels": 10)";
    EXPECT_EQ(
        memory_of(keys),
        (Memory{.allocations = 73, .after_forward = 522240, .peak = 2762240, .after_backward = 2728448}));
}

TEST(OptForward, IsItsRealStep) {
    constexpr const char* keys =
        R"("model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": 256, "ffn_dim": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000, "word_embed_proj_dim": 256, "use_cache": false)";
    EXPECT_EQ(
        memory_of(keys),
        (Memory{.allocations = 100, .after_forward = 2215936, .peak = 5207040, .after_backward = 4183040}));
}

TEST(OptForward, WithNormsBehindAndProjectionsIsItsRealStep) {
    constexpr const char* keys =
        R"("model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": 256, "ffn_dim": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000, "word_embed_proj_dim": 128, "do_layer_norm_before": false, "use_cache": false)";
    EXPECT_EQ(
        memory_of(keys),
        (Memory{.allocations = 100, .after_forward = 2215936, .peak = 4570112, .after_backward = 4058112}));
}

TEST(Forward, SaysNothingOfWhatItDoesNotKnow) {
    const ModelGraph model = read_hf_config(
        R"({"model_type": "gpt2", "architectures": ["GPT2ForTokenClassification"]})", "config.json", {});
    EXPECT_TRUE(model.operators(flatten(model), {}).operators.empty());
}

TEST(Forward, SplitsASumOverManyRows) {
    // 16,448 rows of 1,280 columns, as recorded: 212 blocks for each column, of which 32 lanes keep 4 floats.
    EXPECT_EQ(sum_scratch_bytes(16448, 1280), 4LL * 1280 * 212 * 32 * 4);
    EXPECT_EQ(sum_scratch_bytes(16448, 5120), 4LL * 5120 * 53 * 32 * 4);
    EXPECT_EQ(sum_scratch_bytes(128, 1280), 0);
}

}  // namespace
}  // namespace fsdplan
