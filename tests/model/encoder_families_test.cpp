#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "fsdplan/model.hpp"
#include "model/importer.hpp"

// What the recorded trees do not show of encoders, vision towers, speech and multimodal models: class
// defaults, older spellings, and what is refused. The live comparison checks the rest.
namespace fsdplan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelGraph read(const std::string& config) {
    return read_hf_config(config, "config.json", {});
}

std::string refusal(const std::string& config) {
    try {
        read(config);
    } catch (const Error& error) {
        return error.what();
    }
    return "(not refused)";
}

std::int64_t parameters(const ModelGraph& graph) {
    return flatten(graph).numel.front();
}

std::vector<std::int64_t> shape(const ModelGraph& graph, const std::string& path) {
    const ModuleTree tree = flatten(graph);
    const std::optional<TensorIndex> tensor = tree.find_parameter(path);
    return tensor ? tree.tensors[at(*tensor)].shape : std::vector<std::int64_t>{};
}

TEST(XlmRoberta, IsNotBert) {
    const ModelGraph graph = read(R"({"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta",
        "vocab_size": 250002, "max_position_embeddings": 514, "type_vocab_size": 1})");
    // 192,001,536 in the word embedding, 7,087,872 in each of 12 layers.
    EXPECT_EQ(parameters(graph), 278'043'648);
    EXPECT_THAT(graph.no_split_classes, ElementsAre("XLMRobertaEmbeddings", "XLMRobertaLayer"));
    EXPECT_EQ(graph.longest_sequence, 512);  // two rows are padding
}

TEST(XlmRoberta, RegistersItsHeadFirst) {
    const ModelGraph graph =
        read(R"({"architectures": ["XLMRobertaForQuestionAnswering"], "model_type": "xlm-roberta"})");
    EXPECT_EQ(graph.modules[at(graph.root)].children.front().name, "qa_outputs");
}

TEST(Llava, NamesClassesOfItsPartsThatItDoesNotHold) {
    const ModelGraph graph =
        read(R"({"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
        "text_config": {"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096}})");
    EXPECT_THAT(graph.no_split_classes, ElementsAre("CLIPEncoderLayer", "CLIPTextEmbeddings",
                                                    "CLIPVisionEmbeddings", "LlamaDecoderLayer"));
    EXPECT_EQ(parameters(graph), 7'063'427'072);  // without a vision_config it is CLIP's large tower
    EXPECT_EQ(graph.longest_sequence, 4096);
}

TEST(Llava, TiesAsItsLanguageModelDoes) {
    const std::string start = R"({"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
        "vision_config": {"num_hidden_layers": 1}, "text_config": {"num_hidden_layers": 1, "model_type": )";
    EXPECT_FALSE(flatten(read(start + R"("llama"}})")).has_tied_parameters);
    EXPECT_TRUE(flatten(read(start + R"("llama", "tie_word_embeddings": true}})")).has_tied_parameters);
    EXPECT_TRUE(flatten(read(start + R"("gemma"}})")).has_tied_parameters);
}

TEST(Llava, RefusesPartsThatItCannotHold) {
    EXPECT_THAT(refusal(R"({"model_type": "llava", "text_config": {"model_type": "gpt2"}})"),
                HasSubstr("config.json#/text_config: this family has no embed_tokens"));
    EXPECT_THAT(refusal(R"({"model_type": "llava", "vision_config": {"model_type": "llama"}})"),
                HasSubstr("config.json#/vision_config: this family is no vision tower"));
    EXPECT_THAT(refusal(R"({"model_type": "llava", "text_config": {"model_type": "lama"}})"),
                HasSubstr("did you mean \"llama\""));
}

TEST(Clip, TakesTheOlderSpellingOfATowerWhole) {
    const ModelGraph graph = read(R"({"architectures": ["CLIPModel"], "model_type": "clip",
        "text_config": {"hidden_size": 64, "vocab_size": 99}, "text_config_dict": {"hidden_size": 128}})");
    // The vocabulary is the class default again: text_config_dict says nothing of it.
    EXPECT_THAT(shape(graph, "text_model.embeddings.token_embedding.weight"), ElementsAre(49408, 128));
}

TEST(T5, TiesWhateverTheFileSays) {
    const ModelGraph graph = read(R"({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5",
        "tie_word_embeddings": false})");
    EXPECT_TRUE(flatten(graph).has_tied_parameters);
    EXPECT_EQ(parameters(graph), 60'506'624);  // T5-small
}

TEST(T5, TakesTheDecoderDepthBeforeStandardNames) {
    const ModelGraph graph = read(R"({"architectures": ["T5Model"], "model_type": "t5", "num_layers": 2,
        "num_hidden_layers": 1})");
    const ModuleTree tree = flatten(graph);
    EXPECT_FALSE(tree.find("encoder.block.1"));
    EXPECT_TRUE(tree.find("decoder.block.1"));
}

TEST(Whisper, FreezesTheSinusoidsOfItsEncoder) {
    const ModuleTree tree = flatten(read(R"({"architectures": ["WhisperModel"], "model_type": "whisper"})"));
    EXPECT_FALSE(tree.tensors[at(*tree.find_parameter("encoder.embed_positions.weight"))].requires_grad);
    EXPECT_TRUE(tree.tensors[at(*tree.find_parameter("decoder.embed_positions.weight"))].requires_grad);
}

TEST(Wav2Vec2, KeepsCodevectorsInFloat32) {
    const ModuleTree tree = flatten(read(
        R"({"architectures": ["Wav2Vec2ForPreTraining"], "model_type": "wav2vec2", "dtype": "bfloat16"})"));
    EXPECT_EQ(tree.tensors[at(*tree.find_parameter("quantizer.codevectors"))].dtype, DType::float32);
    EXPECT_EQ(tree.tensors[at(*tree.find_parameter("quantizer.weight_proj.weight"))].dtype, DType::bfloat16);
}

TEST(VisionTransformer, CountsPatchesOfOblongImages) {
    const ModelGraph graph =
        read(R"({"architectures": ["ViTModel"], "model_type": "vit", "image_size": [224, 112],
        "patch_size": [16, 8]})");
    // 14 x 14 patches and the class token.
    EXPECT_THAT(shape(graph, "embeddings.position_embeddings"), ElementsAre(1, 197, 768));
    EXPECT_THAT(shape(graph, "embeddings.patch_embeddings.projection.weight"), ElementsAre(768, 3, 16, 8));
}

TEST(Labels, AreCountedOrNamed) {
    const std::string start = R"({"architectures": ["BertForSequenceClassification"], "model_type": "bert")";
    EXPECT_THAT(shape(read(start + "}"), "classifier.bias"), ElementsAre(2));
    EXPECT_THAT(shape(read(start + R"(, "id2label": {"0": "a", "1": "b", "2": "c"}})"), "classifier.bias"),
                ElementsAre(3));
    EXPECT_THAT(shape(read(start + R"(, "id2label": {"0": "a"}, "num_labels": 5})"), "classifier.bias"),
                ElementsAre(5));
    EXPECT_THAT(shape(read(R"({"architectures": ["BartForSequenceClassification"], "model_type": "bart"})"),
                      "classification_head.out_proj.bias"),
                ElementsAre(3));
}

TEST(Refusals, AreThoseOfTransformers) {
    EXPECT_THAT(refusal(R"({"model_type": "bert", "hidden_size": 100, "num_attention_heads": 3})"),
                HasSubstr("config.json#/hidden_size: 100 is not a multiple of num_attention_heads 3"));
    EXPECT_THAT(refusal(R"({"model_type": "bert", "add_cross_attention": true})"),
                HasSubstr("config.json#/add_cross_attention: cross-attention needs is_decoder"));
    EXPECT_THAT(refusal(R"({"model_type": "modernbert", "vocab_size": 100})"), HasSubstr("50283"));
    EXPECT_THAT(refusal(R"({"model_type": "t5", "feed_forward_proj": "gated-gelu-new"})"),
                HasSubstr("config.json#/feed_forward_proj"));
    EXPECT_THAT(refusal(R"({"model_type": "wav2vec2", "conv_dim": [512]})"),
                HasSubstr("config.json#/conv_dim"));
    EXPECT_THAT(refusal(R"({"architectures": ["Wav2Vec2ForSequenceClassification"], "model_type": "wav2vec2",
                            "add_adapter": true})"),
                HasSubstr("config.json#/add_adapter"));
    EXPECT_THAT(refusal(R"({"model_type": "clip_vision_model", "image_size": [224, 224]})"),
                HasSubstr("config.json#/image_size: expected an integer"));
    EXPECT_THAT(refusal(R"({"model_type": "bert", "problem_type": "single_label_classification",
                            "num_labels": 1})"),
                HasSubstr("config.json#/problem_type"));
}

TEST(Refusals, OfSizesThatDoNotFitAreErrors) {
    // 2^40 heads of 2^40 elements: the product does not fit 63 bits.
    EXPECT_THAT(refusal(R"({"model_type": "t5", "num_heads": 1099511627776, "d_kv": 1099511627776})"),
                ::testing::StartsWith("config.json"));
    EXPECT_THAT(refusal(R"({"model_type": "vit", "image_size": 1099511627776, "patch_size": 1})"),
                ::testing::StartsWith("config.json"));
}

}  // namespace
}  // namespace fsdplan
