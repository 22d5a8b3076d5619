// config.json of Gemma 2, Gemma 3, Phi-3, OLMo 2, SmolLM3 and gpt-oss: what Transformers 5.24 has where a key is
// absent, the layers' kinds, and what is refused.
#include <cmath>

#include "framework/model/decoder_layer.h"
#include "framework/model/model_tensors.h"
#include "framework/model/shapes.h"
#include "tests/framework/model/config_folder.h"

namespace foretoken::test {
namespace {

using ConfigOfFamilies = ConfigFolder;

// Absent keys have Transformers' defaults; a null is another value.
TEST_F(ConfigOfFamilies, OfGemma2) {
  const json gemma = {{"architectures", {"Gemma2ForCausalLM"}}, {"num_hidden_layers", 5}};
  ModelConfig m = load(gemma);
  EXPECT_EQ(std::tuple(m.kv_heads, m.head_size, m.window, m.query_scalar, m.attention_softcap, m.logit_softcap),
            std::tuple(4, 256, 4096, 256., 50., 30.));
  EXPECT_EQ(m.global_layers, (std::vector<int>{1, 3}));
  EXPECT_EQ(m.activation, Activation::gelu);
  EXPECT_TRUE(m.scaled_embedding && m.post_norms && m.gains_less_one && m.tied_head);
  EXPECT_FALSE(m.head_norms || m.qkv_bias || m.out_bias || m.mlp_bias);
  EXPECT_EQ(std::tuple(m.of_layer(0).window, m.of_layer(1).window), std::tuple(4096, 0));
  EXPECT_EQ(m.of_layer(0).rope_theta, m.rope_theta);
  json other = gemma;
  other.update({{"attn_logit_softcapping", nullptr},
                {"final_logit_softcapping", nullptr},
                {"query_pre_attn_scalar", 144},
                {"attention_bias", true},
                {"mlp_bias", true},
                {"tie_word_embeddings", false},
                {"layer_types",
                 {"full_attention", "sliding_attention", "sliding_attention", "full_attention", "full_attention"}}});
  m = load(other);
  EXPECT_EQ(std::tuple(m.query_scalar, m.attention_softcap, m.logit_softcap), std::tuple(144., 0., 0.));
  EXPECT_EQ(std::tuple(m.qkv_bias, m.out_bias, m.mlp_bias, m.tied_head), std::tuple(true, true, false, false));
  EXPECT_EQ(m.global_layers, (std::vector<int>{0, 3, 4}));
  EXPECT_EQ(std::tuple(m.of_layer(0).window, m.of_layer(1).window), std::tuple(0, 4096));
}

TEST_F(ConfigOfFamilies, OfGemma3) {
  const json gemma = {{"architectures", {"Gemma3ForCausalLM"}}, {"num_hidden_layers", 7}, {"sliding_window", 64}};
  ModelConfig m = load(gemma);
  EXPECT_EQ(std::tuple(m.window, m.query_scalar, m.attention_softcap, m.logit_softcap, m.head_norms),
            std::tuple(64, 256., 0., 0., true));
  EXPECT_EQ(m.global_layers, (std::vector<int>{5}));
  EXPECT_EQ(std::tuple(m.rope_theta, m.local_theta, m.rope_scaling.kind),
            std::tuple(1e6, 1e4, RopeScaling::Kind::none));
  json other = gemma;
  other.update({{"sliding_window_pattern", 3},
                {"rope_theta", 5e5},
                {"rope_local_base_freq", 2e4},
                {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
                {"final_logit_softcapping", 20}});
  m = load(other);
  EXPECT_EQ(m.global_layers, (std::vector<int>{2, 5}));
  const ModelConfig all = m.of_layer(2), local = m.of_layer(3);
  EXPECT_EQ(std::tuple(all.rope_theta, all.rope_scaling.factor, all.window, all.logit_softcap),
            std::tuple(5e5, 8., 0, 20.));
  EXPECT_EQ(std::tuple(local.rope_theta, local.rope_scaling.kind, local.window),
            std::tuple(2e4, RopeScaling::Kind::none, 64));
  other = gemma;  // as Transformers 5 writes it
  other["rope_parameters"] = {{"full_attention", {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 3e5}}},
                              {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e3}}}};
  m = load(other);
  EXPECT_EQ(std::tuple(m.of_layer(5).rope_theta, m.of_layer(5).rope_scaling.factor, m.of_layer(0).rope_theta),
            std::tuple(3e5, 4., 1e3));
}

TEST_F(ConfigOfFamilies, WhatIsNotOfGemmaIsRefusedByKey) {
  const auto refused = [&](const char* architecture, json changes) {
    changes["architectures"] = {architecture};
    return refusal(changes);
  };
  EXPECT_TRUE(says(refused("Gemma2ForCausalLM", {{"hidden_activation", "gelu"}}), "'hidden_activation' is \"gelu\"",
                   "gelu_pytorch_tanh"));
  EXPECT_TRUE(says(refused("Gemma2ForCausalLM", {{"sliding_window", nullptr}}), "'sliding_window'", "need a window"));
  EXPECT_TRUE(says(refused("Gemma2ForCausalLM", {{"layer_types", {"full_attention"}}}), "'layer_types'", "2 layers"));
  EXPECT_TRUE(says(refused("Gemma2ForCausalLM", {{"layer_types", {"full_attention", "chunked_attention"}}}),
                   "'layer_types'", "sliding_attention"));
  EXPECT_TRUE(says(refused("Gemma3ForCausalLM", {{"attn_logit_softcapping", 50}}), "'attn_logit_softcapping' is 50"));
  EXPECT_TRUE(says(refused("Gemma3ForCausalLM", {{"use_bidirectional_attention", true}}),
                   "'use_bidirectional_attention' is true"));
  EXPECT_TRUE(says(refused("Gemma3ForCausalLM", {{"sliding_window_pattern", 0}}), "'sliding_window_pattern' is 0"));
  EXPECT_TRUE(says(refused("Gemma3ForCausalLM", {{"rope_parameters", {{"rope_type", "default"}}}}),
                   "'rope_parameters.rope_type'", "each kind of layer"));
  EXPECT_TRUE(says(refused("Gemma3ForCausalLM",
                           {{"rope_parameters", {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 2}}}}}}),
                   "'rope_parameters.sliding_attention.rope_type' is \"linear\"", "window"));
  EXPECT_TRUE(says(refused("Gemma2ForCausalLM", {{"query_pre_attn_scalar", 0}}), "'query_pre_attn_scalar' is 0"));
}

TEST_F(ConfigOfFamilies, OfPhi3) {
  const json phi = {{"architectures", {"Phi3ForCausalLM"}}, {"num_hidden_layers", 2}, {"attention_bias", true}};
  ModelConfig m = load(phi);
  EXPECT_TRUE(m.fused);
  EXPECT_EQ(std::tuple(m.kv_heads, m.window, m.rotary, m.qkv_bias, m.positions), std::tuple(4, 0, 0, false, 512));
  json other = phi;
  other.update({{"sliding_window", 100},
                {"partial_rotary_factor", 0.75},
                {"original_max_position_embeddings", 128},
                {"rope_scaling",
                 {{"type", "longrope"}, {"short_factor", {1, 1, 2, 2, 3, 3.5}}, {"long_factor", {1, 2, 3, 4, 5, 6}}}}});
  m = load(other);
  EXPECT_EQ(std::tuple(m.window, m.rotary, m.positions), std::tuple(100, 12, 128)) << "the short factors' positions";
  EXPECT_EQ(m.rope_scaling.kind, RopeScaling::Kind::longrope);
  EXPECT_EQ(m.rope_scaling.divisors, (std::vector<float>{1, 1, 2, 2, 3, 3.5}));
  EXPECT_NEAR(m.rope_scaling.attention_factor, std::sqrt(1 + std::log(4.0) / std::log(128.0)), 1e-12);
  EXPECT_EQ(m.rope_frequencies().size(), 6u);
  json nested = other;
  nested["rope_scaling"]["original_max_position_embeddings"] = 64;
  EXPECT_EQ(load(nested).positions, 128) << "the config's own key, as in Transformers";
  nested.erase("original_max_position_embeddings"), nested["max_position_embeddings"] = 8192;
  EXPECT_EQ(load(nested).positions, 4096) << "else the default of Transformers";
  const auto refused = [&](const json& changes) {
    json j = other;
    j.update(changes);
    return refusal(j);
  };
  EXPECT_TRUE(says(refused({{"partial_rotary_factor", 0.7}}), "'partial_rotary_factor' is 0.7", "even number"));
  EXPECT_TRUE(says(refused({{"rope_scaling", {{"type", "longrope"}, {"short_factor", {1, 2}}}}}),
                   "'rope_scaling.short_factor'", "each frequency"));
  EXPECT_TRUE(says(refused({{"rope_scaling", {{"type", "longrope"}, {"short_factor", {1, 1, 2, 2, 3, 0}}}}}),
                   "'rope_scaling.short_factor'", "above 0"));
  EXPECT_TRUE(
      says(refused({{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}), "'rope_scaling.type'", "longrope"));
}

// As published by Microsoft; the factors of the second one have other numbers.
TEST_F(ConfigOfFamilies, PublishedOfPhi) {
  json phi = json::parse(R"({"_name_or_path": "Phi-3-mini-4k-instruct", "architectures": ["Phi3ForCausalLM"],
      "attention_dropout": 0.0, "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config",
      "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}, "bos_token_id": 1, "embd_pdrop": 0.0,
      "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02,
      "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "phi3", "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 32, "original_max_position_embeddings": 4096,
      "pad_token_id": 32000, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
      "sliding_window": 2047, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.40.2", "use_cache": true, "vocab_size": 32064, "attention_bias": false})");
  ModelConfig m = ModelConfig::parse(phi.dump(), "config.json");
  EXPECT_EQ(std::tuple(m.width, m.layers, m.head_size, m.positions, m.window), std::tuple(3072, 32, 96, 4096, 2047));
  phi = json::parse(R"({"architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config", "AutoModelForCausalLM":
      "modeling_phi3.Phi3ForCausalLM", "AutoTokenizer": "Xenova/gpt-4o"}, "bos_token_id": 199999, "embd_pdrop": 0.0,
      "eos_token_id": 199999, "full_attn_mod": 1, "hidden_act": "silu", "hidden_size": 3072,
      "initializer_range": 0.02, "intermediate_size": 8192, "interpolate_factor": 1, "lm_head_bias": false,
      "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "phi3", "num_attention_heads": 24,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "original_max_position_embeddings": 4096,
      "pad_token_id": 199999, "partial_rotary_factor": 0.75, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
      "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "transformers_version": "4.45.0", "use_cache": true, "vocab_size": 200064})");
  const std::vector<double> factors(48, 1.0);
  phi["rope_scaling"] = {{"long_factor", factors}, {"short_factor", factors}, {"type", "longrope"}};
  m = ModelConfig::parse(phi.dump(), "config.json");
  EXPECT_EQ(std::tuple(m.head_size, m.rotary, m.positions, m.tied_head), std::tuple(128, 96, 4096, true));
  EXPECT_EQ(m.window, 0) << "it would never bind";
}

TEST_F(ConfigOfFamilies, OfOlmo2) {
  const json olmo = {{"architectures", {"Olmo2ForCausalLM"}}, {"mlp_bias", true}};
  ModelConfig m = load(olmo);
  EXPECT_TRUE(m.head_norms && m.joint_norms && m.post_norms && !m.pre_norms);
  EXPECT_FALSE(m.qkv_bias || m.out_bias || m.mlp_bias || m.tied_head || m.gains_less_one);
  EXPECT_EQ(std::tuple(m.kv_heads, m.rope_theta, m.norm_epsilon), std::tuple(4, 1e4, 1e-6));
  const auto tensors = DecoderLayer::tensors(m.of_layer(0), "l.");
  EXPECT_FALSE(tensors.contains("l.input_layernorm.weight"));
  EXPECT_EQ(tensors.at("l.self_attn.q_norm.weight"), Shape{64});
  json biased = olmo;
  biased["attention_bias"] = true, biased["num_key_value_heads"] = 2;
  m = load(biased);
  EXPECT_TRUE(m.qkv_bias && m.out_bias);
  EXPECT_EQ(DecoderLayer::tensors(m, "l.").at("l.self_attn.k_norm.weight"), Shape{32});
}

TEST_F(ConfigOfFamilies, OfSmolLM3) {
  json smol = {{"architectures", {"SmolLM3ForCausalLM"}}, {"num_hidden_layers", 9}};
  ModelConfig m = load(smol);
  EXPECT_EQ(m.still_layers, (std::vector<int>{3, 7}));
  EXPECT_EQ(std::tuple(m.kv_heads, m.rope_theta, m.tied_head, m.window), std::tuple(4, 2e6, true, 0));
  EXPECT_EQ(m.of_layer(3).rope_frequencies(), std::vector<float>(8, 0.0f));
  EXPECT_EQ(m.of_layer(4).rope_frequencies()[0], 1.0f);
  smol["no_rope_layer_interval"] = 2;
  EXPECT_EQ(load(smol).still_layers, (std::vector<int>{1, 3, 5, 7}));
  smol["no_rope_layers"] = {0, 1, 1, 1, 1, 1, 1, 0, 1, 0};  // one more than layers, as Transformers allows
  EXPECT_EQ(load(smol).still_layers, (std::vector<int>{0, 7}));
  const auto refused = [&](const json& layers) {
    smol["no_rope_layers"] = layers;
    return refusal(smol);
  };
  EXPECT_TRUE(says(refused({1, 0}), "'no_rope_layers'", "9 layers"));
  EXPECT_TRUE(says(refused({1, 0, 2, 1, 1, 1, 1, 1, 1}), "'no_rope_layers'", "a 1 for each layer"));
  smol.erase("no_rope_layers"), smol["use_sliding_window"] = true;
  EXPECT_TRUE(says(refusal(smol), "'use_sliding_window' is true"));
}

TEST_F(ConfigOfFamilies, OfGptOss) {
  json oss = {{"architectures", {"GptOssForCausalLM"}}, {"num_hidden_layers", 3}, {"num_attention_heads", 8}};
  ModelConfig m = load(oss);
  ASSERT_TRUE(m.mixture.has_value());
  EXPECT_EQ(std::tuple(m.mixture->experts, m.mixture->used, m.mixture->width, m.mixture->renormalized),
            std::tuple(128, 4, 128, true));
  EXPECT_TRUE(m.mixture->biases && m.mixture->stacked && m.sinks && m.qkv_bias && m.out_bias);
  EXPECT_EQ(std::tuple(m.mixture->clamped->limit, m.mixture->clamped->slope), std::tuple(7., 1.702));
  EXPECT_EQ(std::tuple(m.kv_heads, m.head_size, m.window, m.rope_theta), std::tuple(8, 64, 128, 150000.));
  EXPECT_EQ(m.global_layers, (std::vector<int>{1}));
  const RopeScaling& s = m.rope_scaling;
  EXPECT_EQ(std::tuple(s.kind, s.factor, s.original_positions, s.whole),
            std::tuple(RopeScaling::Kind::yarn, 32., 4096, false))
      << "Transformers' own rule";
  EXPECT_EQ(m.of_layer(0).rope_frequencies(), m.of_layer(1).rope_frequencies());
  const auto tensors = DecoderLayer::tensors(m.of_layer(0), "l.");
  EXPECT_EQ(tensors.at("l.self_attn.sinks"), Shape{8});
  EXPECT_EQ(tensors.at("l.mlp.router.bias"), Shape{128});
  EXPECT_EQ(tensors.at("l.mlp.experts.127.down_proj.bias"), Shape{64});
  oss.update({{"attention_bias", false},
              {"swiglu_limit", 3},
              {"swiglu_alpha", 2},
              {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2}}}});
  m = load(oss);
  EXPECT_EQ(std::tuple(m.qkv_bias, m.mixture->clamped->limit, m.mixture->clamped->slope), std::tuple(false, 3., 2.));
  EXPECT_EQ(m.rope_scaling.kind, RopeScaling::Kind::linear);
  oss["swiglu_limit"] = -1;
  EXPECT_TRUE(says(refusal(oss), "'swiglu_limit' is -1"));
}

// As published for the 4b: what its text_config lacks has Transformers' defaults.
TEST_F(ConfigOfFamilies, OfGemma3ThatSees) {
  json gemma = json::parse(R"({"architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
      "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02,
      "mm_tokens_per_image": 256, "model_type": "gemma3", "text_config": {"hidden_size": 2560,
      "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}, "torch_dtype": "bfloat16",
      "transformers_version": "4.50.0.dev0", "vision_config": {"hidden_size": 1152, "image_size": 896}})");
  const ModelConfig m = ModelConfig::parse(gemma.dump(), "config.json");
  EXPECT_TRUE(m.vision && m.tied_head && m.gains_less_one && m.head_norms);
  EXPECT_EQ(std::tuple(m.vocab, m.width, m.layers, m.heads, m.kv_heads, m.head_size, m.positions, m.window),
            std::tuple(262208, 2560, 34, 8, 4, 256, 131072, 1024));
  EXPECT_EQ(std::tuple(m.norm_epsilon, m.rope_theta, m.local_theta, m.rope_scaling.factor),
            std::tuple(1e-6, 1e6, 1e4, 8.));
  EXPECT_EQ(m.eos, (std::vector<int>{1, 106}));
  EXPECT_EQ(m.global_layers, (std::vector<int>{5, 11, 17, 23, 29}));
  EXPECT_EQ(tensors_of(m), tensors_of(published_shape("gemma-3-4b")));
  gemma["text_config"]["hidden_activation"] = "relu";
  EXPECT_TRUE(says(sentence_of([&] { (void)ModelConfig::parse(gemma.dump(), "config.json"); }),
                   "'text_config.hidden_activation' is \"relu\""));
  gemma.erase("text_config");
  EXPECT_TRUE(says(sentence_of([&] { (void)ModelConfig::parse(gemma.dump(), "config.json"); }), "text_config"));
}

}  // namespace
}  // namespace foretoken::test
