// Reads config.json; everything that is not implemented is an Error that names it.
#include "tests/framework/model/config_folder.h"

namespace foretoken::test {
namespace {

using Config = ConfigFolder;

TEST_F(Config, Llama2Shape) {
  const ModelConfig m = load();
  EXPECT_EQ(m.architecture, "LlamaForCausalLM");
  EXPECT_EQ(std::tuple(m.vocab, m.width, m.layers, m.heads, m.kv_heads, m.head_size, m.ffn, m.positions),
            std::tuple(100, 64, 2, 4, 4, 16, 128, 512));
  EXPECT_EQ(m.norm_epsilon, 1e-6);
  EXPECT_EQ(m.rope_theta, 10000);
  EXPECT_EQ(m.rope_scaling.kind, RopeScaling::Kind::none);
  EXPECT_FALSE(m.tied_head);
  EXPECT_TRUE(m.eos.empty());
  EXPECT_FALSE(m.bos.has_value());
}

TEST_F(Config, Llama3Shape) {
  const ModelConfig m = load({{"num_key_value_heads", 2},
                              {"head_dim", 32},
                              {"tie_word_embeddings", true},
                              {"eos_token_id", {7, 9}},
                              {"bos_token_id", 3}});
  EXPECT_EQ(std::tuple(m.kv_heads, m.head_size, m.tied_head), std::tuple(2, 32, true));
  EXPECT_EQ(m.eos, (std::vector<int>{7, 9}));
  EXPECT_EQ(m.bos, 3);
}

TEST_F(Config, NullIsAbsent) {
  const ModelConfig m = load({{"num_key_value_heads", nullptr},
                              {"head_dim", nullptr},
                              {"rope_scaling", nullptr},
                              {"eos_token_id", nullptr},
                              {"sliding_window", nullptr}});
  EXPECT_EQ(std::tuple(m.kv_heads, m.head_size), std::tuple(4, 16));
}

TEST_F(Config, ArchitectureMayBeGivenByModelTypeAlone) {
  EXPECT_EQ(load({{"architectures", "absent"}}).architecture, "LlamaForCausalLM");
  EXPECT_TRUE(
      says(refusal({{"architectures", "absent"}, {"model_type", "gpt2"}}),
           "'model_type' is \"gpt2\", but the supported ones are llama, mistral, qwen2, qwen3, mixtral, qwen2_moe, "
           "qwen3_moe, gemma2, gemma3_text, gemma3, phi3, olmo2, smollm3, gpt_oss"));
}

TEST_F(Config, DifferencesOfTheFamilies) {
  const auto what = [&](json changes) {
    changes["num_key_value_heads"] = 4;
    const ModelConfig m = load(changes);
    return std::tuple(m.qkv_bias, m.out_bias, m.mlp_bias, m.head_norms, m.window);
  };
  EXPECT_EQ(what(json::object()), std::tuple(false, false, false, false, 0));
  EXPECT_EQ(what({{"attention_bias", true}, {"mlp_bias", true}}), std::tuple(true, true, true, false, 0));
  EXPECT_EQ(what({{"architectures", {"MistralForCausalLM"}}, {"sliding_window", 256}}),
            std::tuple(false, false, false, false, 256));
  EXPECT_EQ(what({{"architectures", {"MistralForCausalLM"}}, {"sliding_window", 512}}),
            std::tuple(false, false, false, false, 0))
      << "all positions of the longest sequence";
  EXPECT_EQ(what({{"sliding_window", 4096}}), std::tuple(false, false, false, false, 0));
  EXPECT_EQ(what({{"architectures", {"Qwen2ForCausalLM"}}, {"sliding_window", 4096}, {"use_sliding_window", false}}),
            std::tuple(true, false, false, false, 0));
  EXPECT_EQ(what({{"architectures", "absent"}, {"model_type", "qwen3"}}), std::tuple(false, false, false, true, 0));
}

// What Transformers 5.24 has where a key is absent, and where it is null.
TEST_F(Config, AbsentKeysHaveTheDefaultsOfTheFamily) {
  const auto of = [&](const char* type, json changes) {
    changes.update({{"architectures", "absent"}, {"model_type", type}, {"hidden_size", 1024}});
    changes["num_attention_heads"] = 32, changes["max_position_embeddings"] = 8192;
    const ModelConfig m = load(changes);
    EXPECT_EQ(std::tuple(m.rope_theta, m.tied_head), std::tuple(10000., false));
    EXPECT_EQ(m.qkv_bias, m.architecture == "Qwen2ForCausalLM");
    return std::tuple(m.kv_heads, m.head_size, m.window);
  };
  const json nulls = {{"num_key_value_heads", nullptr}, {"head_dim", nullptr}, {"sliding_window", nullptr}};
  EXPECT_EQ(of("llama", json::object()), std::tuple(32, 32, 0));
  EXPECT_EQ(of("mistral", json::object()), std::tuple(8, 32, 4096));
  EXPECT_EQ(of("qwen2", json::object()), std::tuple(32, 32, 0));
  EXPECT_EQ(of("qwen3", json::object()), std::tuple(32, 128, 0));
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3"})
    EXPECT_EQ(of(type, nulls), std::tuple(32, 32, 0)) << type;
  for (const char* needed : {"rms_norm_eps", "max_position_embeddings", "vocab_size", "hidden_size",
                             "num_hidden_layers", "num_attention_heads", "intermediate_size"})
    EXPECT_TRUE(says(refusal({{needed, "absent"}}), "has no '" + std::string(needed) + "'"));
}

TEST_F(Config, MixturesOfExperts) {
  const json mixtral = {{"architectures", {"MixtralForCausalLM"}},
                        {"num_local_experts", 4},
                        {"num_experts_per_tok", 3},
                        {"num_key_value_heads", 2},
                        {"sliding_window", 64},
                        {"router_jitter_noise", 0.1}};
  const ModelConfig m = load(mixtral);
  ASSERT_TRUE(m.mixture.has_value());
  EXPECT_EQ(std::tuple(m.mixture->experts, m.mixture->used, m.mixture->width, m.mixture->shared_width),
            std::tuple(4, 3, 128, 0));
  EXPECT_EQ(std::tuple(m.mixture->renormalized, m.mixture->module, m.mixture->gate, m.window),
            std::tuple(true, std::string("block_sparse_moe"), std::string("w1"), 64));

  json qwen = {{"architectures", {"Qwen3MoeForCausalLM"}},
               {"num_experts", 6},
               {"num_experts_per_tok", 2},
               {"num_key_value_heads", 2},
               {"head_dim", 16},
               {"moe_intermediate_size", 24},
               {"num_hidden_layers", 6},
               {"mlp_only_layers", {1, 3}},
               {"decoder_sparse_step", 2}};
  ModelConfig q = load(qwen);
  ASSERT_TRUE(q.mixture.has_value());
  EXPECT_EQ(std::tuple(q.mixture->experts, q.mixture->used, q.mixture->width, q.ffn, q.head_norms, q.qkv_bias),
            std::tuple(6, 2, 24, 128, true, false));
  EXPECT_FALSE(q.mixture->renormalized) << "norm_topk_prob is false where it is absent";
  EXPECT_EQ(q.mixture->dense_layers, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_FALSE(q.of_layer(3).mixture.has_value());
  EXPECT_TRUE(q.of_layer(5).mixture.has_value());
  qwen["norm_topk_prob"] = true;
  qwen["num_experts"] = "absent";
  qwen["num_local_experts"] = 7;
  q = load(qwen);
  EXPECT_EQ(std::tuple(q.mixture->experts, q.mixture->renormalized), std::tuple(7, true));
  qwen["mlp_only_layers"] = {0, 1, 2, 3, 4, 5};
  EXPECT_FALSE(load(qwen).mixture.has_value()) << "every layer is dense";

  const json moe = {{"architectures", {"Qwen2MoeForCausalLM"}}, {"num_key_value_heads", 2}, {"mlp_bias", true}};
  const ModelConfig d = load(moe);  // Transformers' defaults
  EXPECT_EQ(std::tuple(d.mixture->experts, d.mixture->used, d.mixture->width, d.mixture->shared_width),
            std::tuple(60, 4, 1408, 5632));
  EXPECT_EQ(std::tuple(d.qkv_bias, d.out_bias, d.mlp_bias), std::tuple(true, false, false));
  json unbiased = moe;
  unbiased["qkv_bias"] = false;
  EXPECT_FALSE(load(unbiased).qkv_bias);
}

TEST_F(Config, DefaultsOfMixturesOfExperts) {
  const json few = {{"architectures", "absent"}, {"hidden_size", 1024}, {"num_attention_heads", 32}};
  const auto of = [&](const char* type) {
    json changes = few;
    changes["model_type"] = type;
    const ModelConfig m = load(changes);
    return std::tuple(m.kv_heads, m.head_size, m.window, m.rope_theta, m.mixture->experts, m.mixture->used,
                      m.mixture->width, m.mixture->shared_width);
  };
  EXPECT_EQ(of("mixtral"), std::tuple(8, 32, 0, 1e6, 8, 2, 128, 0));
  EXPECT_EQ(of("qwen2_moe"), std::tuple(16, 32, 0, 1e4, 60, 4, 1408, 5632));
  EXPECT_EQ(of("qwen3_moe"), std::tuple(4, 32, 0, 1e4, 128, 8, 768, 0));
}

TEST_F(Config, MixturesThatCannotBeAreRefusedByKey) {
  const auto refused = [&](json changes) {
    changes["architectures"] = {"Qwen3MoeForCausalLM"};
    return refusal(changes);
  };
  EXPECT_TRUE(says(refused({{"num_experts", 4}, {"num_experts_per_tok", 5}}), "'num_experts_per_tok' is 5",
                   "the model has 4 experts"));
  EXPECT_TRUE(says(refused({{"num_experts", 0}}), "'num_experts'"));
  EXPECT_TRUE(
      says(refused({{"num_experts", 4096}, {"num_hidden_layers", 65}}), "'num_experts' is 4096", "beyond any model"));
  EXPECT_TRUE(says(refused({{"mlp_only_layers", {2}}}), "'mlp_only_layers'", "numbers of the 2 layers"));
  EXPECT_TRUE(says(refused({{"mlp_only_layers", "all"}}), "'mlp_only_layers'"));
  EXPECT_TRUE(says(refused({{"decoder_sparse_step", 0}}), "'decoder_sparse_step'"));
  EXPECT_TRUE(says(refused({{"use_sliding_window", true}}), "'use_sliding_window'"));
  EXPECT_TRUE(says(refused({{"hidden_act", "gelu"}}), "'hidden_act'"));
}

TEST_F(Config, RopeScalingBeatsRopeParameters) {
  const ModelConfig m = load({{"rope_theta", 777.0},
                              {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}},
                              {"rope_parameters", {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 5.0}}}});
  EXPECT_EQ(std::tuple(m.rope_scaling.factor, m.rope_theta), std::tuple(2., 777.)) << "as in Transformers";
}

TEST_F(Config, RopeOfBothGenerationsOfTransformers) {
  EXPECT_EQ(load({{"rope_theta", 500000.0}}).rope_theta, 500000);
  EXPECT_EQ(load({{"rope_parameters", {{"rope_theta", 20000.0}, {"rope_type", "default"}}}}).rope_theta, 20000);
  const ModelConfig v4 = load({{"rope_theta", 30000}, {"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}});
  EXPECT_EQ(std::tuple(v4.rope_theta, v4.rope_scaling.kind, v4.rope_scaling.factor),
            std::tuple(30000., RopeScaling::Kind::linear, 4.));
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 256}};
  const RopeScaling s = load({{"rope_scaling", llama3}}).rope_scaling;
  EXPECT_EQ(std::tuple(s.kind, s.factor, s.low_freq_factor, s.high_freq_factor, s.original_positions),
            std::tuple(RopeScaling::Kind::llama3, 8., 1., 4., 256));
  const json beside = {{"rope_scaling", llama3}, {"original_max_position_embeddings", 128}};
  EXPECT_EQ(load(beside).rope_scaling.original_positions, 128) << "the config's own key, as in Transformers";
}

TEST_F(Config, EndOfSequenceOfGenerationConfig) {
  folder_.write("generation_config.json", R"({"eos_token_id": [5, 6]})");
  EXPECT_EQ(load({{"eos_token_id", 7}}).eos, (std::vector<int>{5, 6}));
  folder_.write("generation_config.json", R"({"temperature": 1})");
  EXPECT_EQ(load({{"eos_token_id", 7}}).eos, (std::vector<int>{7}));
  folder_.write("generation_config.json", R"({"eos_token_id": 100})");
  EXPECT_TRUE(says(refusal(json::object()), "generation_config.json",
                   "'eos_token_id' is 100, but must be a token id below vocab_size (100)"));
}

TEST_F(Config, WhatIsNotImplementedIsNamed) {
  const std::vector<std::pair<json, std::string>> cases = {
      {{{"architectures", {"OlmoeForCausalLM"}}},
       "'architectures' is [\"OlmoeForCausalLM\"], but the supported ones are LlamaForCausalLM, MistralForCausalLM, "
       "Qwen2ForCausalLM, Qwen3ForCausalLM, MixtralForCausalLM, Qwen2MoeForCausalLM, Qwen3MoeForCausalLM, "
       "Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3ForConditionalGeneration, Phi3ForCausalLM, Olmo2ForCausalLM, "
       "SmolLM3ForCausalLM, GptOssForCausalLM"},
      {{{"architectures", {"LlamaForCausalLM", "Other"}}}, "'architectures'"},
      {{{"hidden_act", "gelu"}}, "'hidden_act' is \"gelu\", but the only activation supported is \"silu\""},
      {{{"architectures", {"MistralForCausalLM"}}, {"num_key_value_heads", 4}, {"sliding_window", 0}},
       "'sliding_window' is 0, but must be an integer from 1"},
      {{{"use_sliding_window", true}}, "'use_sliding_window' is true, but only false is supported"},
      {{{"layer_types", {"full_attention", "sliding_attention"}}},
       "'layer_types' is [\"full_attention\",\"sliding_attention\"], but all layers must have the same kind"},
      {{{"quantization_config", {{"quant_method", "hqq"}}}},
       "'quantization_config.quant_method' is \"hqq\", but the supported ones are gptq"},
      {{{"auto_map", {{"AutoModel", "x"}}}}, "'auto_map'"},
      {{{"partial_rotary_factor", 0.5}}, "'partial_rotary_factor' is 0.5, but only 1 is supported"},
      {{{"rope_scaling", {{"type", "axial"}, {"factor", 2}}}},
       "'rope_scaling.type' is \"axial\", but the supported kinds of rope scaling are"},
      {{{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}}, "'rope_parameters.full_attention'"},
  };
  for (const auto& [changes, words] : cases) EXPECT_TRUE(says(refusal(changes), "config.json", words));
}

TEST_F(Config, WhatIsWrongIsNamed) {
  const std::vector<std::pair<json, std::string>> cases = {
      {{{"vocab_size", "absent"}}, "has no 'vocab_size'"},
      {{{"rms_norm_eps", "absent"}}, "has no 'rms_norm_eps'"},
      {{{"hidden_size", 0}}, "'hidden_size' is 0, but must be an integer from 1"},
      {{{"hidden_size", 64.5}}, "'hidden_size' is 64.5, but must be an integer"},
      {{{"hidden_size", "64"}}, "'hidden_size' is \"64\", but must be an integer"},
      {{{"num_hidden_layers", -1}}, "'num_hidden_layers' is -1"},
      {{{"vocab_size", 18446744073709551615ull}}, "'vocab_size' is 18446744073709551615"},
      {{{"num_key_value_heads", 3}}, "'num_key_value_heads' is 3, but must divide num_attention_heads (4)"},
      {{{"num_attention_heads", 5}},
       "'num_attention_heads' is 5, but must divide hidden_size (64) where head_dim is absent"},
      {{{"head_dim", 15}}, "the head size is 15, but must be even"},
      {{{"head_dim", 16777216}}, "beyond any model"},
      {{{"rms_norm_eps", 0}}, "'rms_norm_eps' is 0, but must be a number above 0"},
      {{{"tie_word_embeddings", "yes"}}, "'tie_word_embeddings' is \"yes\", but must be true or false"},
      {{{"eos_token_id", {1, 100}}}, "'eos_token_id' is [1,100], but must be a token id below vocab_size (100)"},
      {{{"bos_token_id", -1}}, "'bos_token_id' is -1"},
      {{{"rope_theta", -1}}, "'rope_theta' is -1, but must be a number above 0"},
      {{{"rope_scaling", {{"type", "linear"}}}}, "has no 'rope_scaling.factor'"},
      {{{"rope_scaling", {{"type", "linear"}, {"factor", 0.5}}}},
       "'rope_scaling.factor' is 0.5, but must be at least 1"},
      {{{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}}},
       "must be greater than low_freq_factor"},
      {{{"rope_scaling", 3}}, "rope_scaling is 3, but must be a JSON object"},
      {{{"layer_types", {"full_attention"}}},
       "'layer_types' is [\"full_attention\"], but must name one kind of attention for each of the 2 layers"},
      {{{"layer_types", {"full_attention", "full_attention", "full_attention"}}}, "for each of the 2 layers"},
      {{{"layer_types", json::array()}}, "for each of the 2 layers"},
      {{{"layer_types", "full_attention"}}, "'layer_types' is \"full_attention\", but must be an array"},
      {{{"num_nextn_predict_layers", -1}}, "'num_nextn_predict_layers' is -1"},
  };
  for (const auto& [changes, words] : cases) EXPECT_TRUE(says(refusal(changes), words));
}

// JSON does not define which of two values is valid, and parsers differ.
TEST_F(Config, DuplicateKeys) {
  std::string text = kLlama.dump();
  text.insert(1, "\"num_hidden_layers\":3,");
  folder_.write("config.json", text);
  EXPECT_TRUE(says(sentence_of([&] { ModelConfig::load(folder_.path()); }), "config.json",
                   "has the key 'num_hidden_layers' twice"));
  EXPECT_TRUE(says(sentence_of([&] { ModelConfig::parse(text, "a shape"); }), "a shape has the key"));
  folder_.write("generation_config.json", R"({"eos_token_id": 5, "eos_token_id": 6})");
  EXPECT_TRUE(says(refusal(json::object()), "generation_config.json", "has the key 'eos_token_id' twice"));
}

TEST_F(Config, FilesThatAreNoConfigs) {
  EXPECT_TRUE(
      says(sentence_of([&] { ModelConfig::load(folder_.path() / "gone"); }), "gone does not exist", "give the path"));
  EXPECT_TRUE(says(sentence_of([&] { ModelConfig::load(folder_.path()); }), "config.json does not exist"));
  folder_.write("config.json", "");
  EXPECT_TRUE(says(sentence_of([&] { ModelConfig::load(folder_.path()); }), "config.json is empty"));
  folder_.write("config.json", "{\"vocab_size\": 1,}");
  EXPECT_TRUE(says(sentence_of([&] { ModelConfig::load(folder_.path()); }), "config.json is not valid JSON", "line 1",
                   "correct or replace it"));
  folder_.write("config.json", "{\"hidden_size\": " + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}");
  EXPECT_TRUE(
      says(sentence_of([&] { ModelConfig::load(folder_.path()); }), "config.json nests deeper than 200 levels"));
  folder_.write("config.json", "[1]");
  EXPECT_TRUE(
      says(sentence_of([&] { ModelConfig::load(folder_.path()); }), "the top level is [1], but must be a JSON object"));
}

}  // namespace
}  // namespace foretoken::test
