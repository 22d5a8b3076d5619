// The configuration of GGUF files, and the names of their tensors; each fault is one sentence.
#include "framework/model/gguf/gguf_config.h"

#include <cmath>

#include <gtest/gtest.h>

#include "framework/model/gguf/gguf_tensors.h"
#include "framework/model/model_files.h"
#include "framework/model/model_tensors.h"
#include "tests/framework/model/gguf_bytes.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

// A Llama of one layer and three tokens; every tensor shares no byte with another.
GgufBytes tiny() {
  GgufBytes g;
  g.set("general.architecture", text_value("llama"))
      .set("llama.context_length", u32_value(64))
      .set("llama.embedding_length", u32_value(8))
      .set("llama.block_count", u32_value(1))
      .set("llama.feed_forward_length", u32_value(8))
      .set("llama.attention.head_count", u32_value(2))
      .set("llama.attention.layer_norm_rms_epsilon", f32_value(1e-6f))
      .set("tokenizer.ggml.tokens", texts_value({"a", "b", "<|im_end|>"}))
      .set("tokenizer.ggml.eos_token_id", u32_value(1));
  const auto add = [&](const std::string& name, const std::vector<std::uint64_t>& dims) {
    std::uint64_t bytes = 4;
    for (const std::uint64_t d : dims) bytes *= d;
    g.append(name, dims, 0, std::string(bytes, '\0'));
  };
  add("token_embd.weight", {8, 3}), add("output_norm.weight", {8});
  for (const char* norm : {"attn_norm", "ffn_norm"}) add(std::string("blk.0.") + norm + ".weight", {8});
  for (const char* matrix : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
    add(std::string("blk.0.") + matrix + ".weight", {8, 8});
  return g;
}

class GgufConfig : public testing::Test {
 protected:
  std::shared_ptr<const GgufFile> open(const GgufBytes& g) {
    return GgufFile::open(folder_.write("m.gguf", g.bytes()));
  }
  ModelConfig config(const GgufBytes& g) { return gguf_config(*open(g)); }
  std::string refusal(const GgufBytes& g) {
    return sentence_of([&] {
      const auto files = ModelFiles::open(folder_.write("m.gguf", g.bytes()));
      const auto tensors = files->tensors();
      const ModelConfig c = files->config();
      expect_no_other_tensors(c, *tensors);
      for (const auto& [name, shape] : tensors_of(c)) tensors->tensor(name, shape);
    });
  }
  TemporaryFolder folder_;
};

TEST_F(GgufConfig, IsReadFromMetadataAndNamesOfTensors) {
  ASSERT_EQ(refusal(tiny()), "");
  ModelConfig c = config(tiny());
  EXPECT_EQ(c.architecture, "LlamaForCausalLM");
  EXPECT_EQ(c.vocab, 3);
  EXPECT_EQ(c.width, 8);
  EXPECT_EQ(c.heads, 2);
  EXPECT_EQ(c.kv_heads, 2);
  EXPECT_EQ(c.head_size, 4);
  EXPECT_EQ(c.positions, 64);
  EXPECT_EQ(float(c.norm_epsilon), 1e-6f);
  EXPECT_EQ(c.rope_theta, 10000);
  EXPECT_TRUE(c.tied_head);
  EXPECT_FALSE(c.qkv_bias || c.out_bias || c.mlp_bias || c.head_norms);
  EXPECT_EQ(c.eos, (std::vector<int>{1, 2}));
  EXPECT_FALSE(c.bos.has_value());
  c = config(tiny()
                 .append("output.weight", {8, 3}, 0, std::string(96, '\0'))
                 .set("llama.rope.freq_base", f32_value(5e5f))
                 .set("llama.rope.scaling.type", text_value("linear"))
                 .set("llama.rope.scaling.factor", f32_value(4))
                 .set("tokenizer.ggml.bos_token_id", u32_value(0))
                 .set("tokenizer.ggml.eot_token_id", u32_value(0))
                 .set("tokenizer.ggml.eos_token_id", ""));
  EXPECT_FALSE(c.tied_head);
  EXPECT_EQ(c.rope_theta, 5e5);
  EXPECT_EQ(c.rope_scaling.kind, RopeScaling::Kind::linear);
  EXPECT_EQ(c.rope_scaling.factor, 4);
  EXPECT_EQ(c.eos, (std::vector<int>{0, 2}));
  EXPECT_EQ(c.bos, 0);
}

TEST_F(GgufConfig, WhatIsNotSupportedIsNamed) {
  EXPECT_TRUE(
      says(refusal(tiny().set("general.architecture", text_value("gemma4"))),
           "'general.architecture' is \"gemma4\", but the supported ones are llama, qwen2, qwen3, qwen2moe, qwen3moe, "
           "gemma2, gemma3, phi3"));
  EXPECT_TRUE(says(refusal(tiny().set("llama.logit_scale", f32_value(2))), "'llama.logit_scale' is 2", "not supported",
                   "choose a model without it"));
  EXPECT_TRUE(
      says(refusal(tiny().set("llama.expert_count", u32_value(8))), "has no metadata 'llama.expert_used_count'"));
  EXPECT_TRUE(says(refusal(tiny().set("llama.expert_gating_func", u32_value(2))), "'llama.expert_gating_func' is 2",
                   "not supported"));
  EXPECT_TRUE(says(refusal(tiny().set("llama.rope.scaling.type", text_value("longrope"))),
                   "'llama.rope.scaling.type' is \"longrope\"", "\"linear\" and \"yarn\"", "; choose a model"));
  EXPECT_TRUE(says(refusal(tiny().set("llama.rope.dimension_count", u32_value(2))),
                   "'llama.rope.dimension_count' is 2, but only the head size (4)", "; choose a model"));
  for (const char* name : {"blk.0.ffn_gate_exps.weight", "blk.x.attn_q.weight", "blk..attn_q.weight",
                           "blk.0.attn_q.scale", "blk.0.attn_q", "vision.weight", "blk.", "blk.0.", "blk.0"}) {
    GgufBytes g = tiny();
    g.tensor(name, {8}, 0, g.data.size()).data.resize(g.data.size() + 32);
    EXPECT_TRUE(
        says(refusal(g), "holds the tensor '" + std::string(name) + "', which a LlamaForCausalLM does not have"));
  }
}

// A layer without a router is dense.
TEST_F(GgufConfig, MixturesOfExperts) {
  const auto mixture = [](std::uint32_t experts, std::uint32_t used, std::uint64_t stored) {
    GgufBytes g = tiny();
    g.set("llama.expert_count", u32_value(experts)).set("llama.expert_used_count", u32_value(used));
    const auto add = [&](const std::string& name, const std::vector<std::uint64_t>& dims) {
      std::uint64_t bytes = 4;
      for (const std::uint64_t d : dims) bytes *= d;
      g.append("blk.0." + name + ".weight", dims, 0, std::string(bytes, '\0'));
    };
    if (stored == 0) return g;
    add("ffn_gate_inp", {8, experts});
    for (const char* name : {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}) add(name, {8, 8, stored});
    return g;
  };
  const ModelConfig c = config(mixture(5, 2, 5));
  ASSERT_TRUE(c.mixture.has_value());
  EXPECT_EQ(c.architecture, "MixtralForCausalLM");
  EXPECT_EQ(std::tuple(c.mixture->experts, c.mixture->used, c.mixture->width, c.mixture->shared_width),
            std::tuple(5, 2, 8, 0));
  EXPECT_TRUE(c.mixture->renormalized && c.mixture->dense_layers.empty());
  EXPECT_TRUE(says(refusal(mixture(5, 2, 5)), "does not use", "mlp.down_proj")) << "the dense matrices are there too";
  EXPECT_EQ(config(mixture(5, 2, 0)).mixture->dense_layers, std::vector<int>{0});
  EXPECT_TRUE(says(refusal(mixture(5, 6, 5)), "'llama.expert_used_count' is 6", "the model has 5 experts"));
  EXPECT_TRUE(says(refusal(mixture(5, 2, 4)), "ffn_", "[4, 8, 8]", "each of the 5 experts"));
  EXPECT_TRUE(says(refusal(tiny().set("llama.expert_count", u32_value(1u << 20))), "'llama.expert_count'"));
}

// What llama.cpp has where a file says nothing, and that a norm follows each sublayer.
TEST_F(GgufConfig, OfGemma) {
  const auto gemma = [](const std::string& name, std::uint32_t layers) {
    GgufBytes g;
    for (const auto& [key, value] : tiny().metadata)
      g.set(key.starts_with("llama.") ? name + key.substr(5) : key, value);
    return g.set("general.architecture", text_value(name)).set(name + ".block_count", u32_value(layers));
  };
  ModelConfig c = config(gemma("gemma2", 4));
  EXPECT_EQ(c.architecture, "Gemma2ForCausalLM");
  EXPECT_EQ(std::tuple(c.window, c.attention_softcap, c.logit_softcap, c.query_scalar, c.local_theta),
            std::tuple(4096, 50., 30., 0., 0.));
  EXPECT_EQ(c.global_layers, (std::vector<int>{1, 3}));
  EXPECT_TRUE(c.post_norms && c.scaled_embedding && c.tied_head && !c.gains_less_one);
  EXPECT_EQ(config(gemma("gemma2", 46)).query_scalar, 4) << "of the largest";
  c = config(gemma("gemma2", 4)
                 .set("gemma2.attention.sliding_window", u32_value(8))
                 .set("gemma2.attn_logit_softcapping", f32_value(5))
                 .set("gemma2.final_logit_softcapping", f32_value(6)));
  EXPECT_EQ(std::tuple(c.window, c.attention_softcap, c.logit_softcap), std::tuple(8, 5., 6.));
  c = config(gemma("gemma3", 12)
                 .set("gemma3.attention.sliding_window", u32_value(8))
                 .set("gemma3.rope.freq_base", f32_value(1e6f))
                 .set("gemma3.rope.scaling.type", text_value("linear"))
                 .set("gemma3.rope.scaling.factor", f32_value(8)));
  EXPECT_EQ(c.global_layers, (std::vector<int>{5, 11}));
  EXPECT_EQ(std::tuple(c.of_layer(0).rope_theta, c.of_layer(0).rope_scaling.kind, c.of_layer(0).window),
            std::tuple(1e4, RopeScaling::Kind::none, 8));
  EXPECT_EQ(std::tuple(c.of_layer(5).rope_theta, c.of_layer(5).rope_scaling.kind, c.of_layer(5).window),
            std::tuple(1e6, RopeScaling::Kind::linear, 0));
  EXPECT_TRUE(says(refusal(gemma("gemma3", 12)), "has no metadata 'gemma3.attention.sliding_window'"));
  EXPECT_TRUE(says(refusal(gemma("gemma3", 12)
                               .set("gemma3.attention.sliding_window", u32_value(8))
                               .set("gemma3.attn_logit_softcapping", f32_value(5))),
                   "'gemma3.attn_logit_softcapping' is 5", "not supported"));
  EXPECT_TRUE(says(refusal(tiny().set("llama.attention.sliding_window", u32_value(8))), "not supported"));
}

// Files of Phi name <|endoftext|> alone, but its turns end at <|end|>. Their windows are mostly longer than the
// context.
TEST_F(GgufConfig, OfPhi) {
  GgufBytes phi;
  for (const auto& [key, value] : tiny().metadata)
    phi.set(key.starts_with("llama.") ? "phi3" + key.substr(5) : key, value);
  phi.set("general.architecture", text_value("phi3"))
      .set("tokenizer.ggml.tokens", texts_value({"a", "<|endoftext|>", "b", "<|end|>"}));
  EXPECT_EQ(config(phi).eos, (std::vector<int>{1, 3}));
  EXPECT_EQ(config(phi.set("phi3.attention.sliding_window", u32_value(63))).window, 63);
  EXPECT_EQ(config(phi.set("phi3.attention.sliding_window", u32_value(64))).window, 0) << "of 64 positions";
}

TEST_F(GgufConfig, OfOlmo2SmolLM3AndGptOss) {
  const auto of = [](const std::string& name) {
    GgufBytes g;
    for (const auto& [key, value] : tiny().metadata)
      g.set(key.starts_with("llama.") ? name + key.substr(5) : key, value);
    return g.set("general.architecture", text_value(name)).set(name + ".block_count", u32_value(5));
  };
  const ModelConfig olmo = config(of("olmo2"));
  EXPECT_TRUE(olmo.post_norms && olmo.joint_norms && !olmo.pre_norms && !olmo.scaled_embedding);
  EXPECT_EQ(config(of("smollm3")).still_layers, (std::vector<int>{3}));
  EXPECT_TRUE(says(refusal(of("smollm3").set("smollm3.attention.sliding_window", u32_value(8))), "not supported"));
  const GgufBytes oss = of("gpt-oss")
                            .set("gpt-oss.attention.sliding_window", u32_value(8))
                            .set("gpt-oss.expert_count", u32_value(4))
                            .set("gpt-oss.expert_used_count", u32_value(2))
                            .set("gpt-oss.expert_feed_forward_length", u32_value(16))
                            .set("gpt-oss.rope.scaling.type", text_value("yarn"))
                            .set("gpt-oss.rope.scaling.factor", f32_value(4))
                            .set("gpt-oss.rope.scaling.original_context_length", u32_value(16))
                            .set("tokenizer.ggml.tokens", texts_value({"<|end|>", "<|return|>", "<|call|>"}));
  const ModelConfig c = config(oss);
  EXPECT_EQ(c.eos, (std::vector<int>{1, 2})) << "a message that ends does not end the turn";
  EXPECT_EQ(std::tuple(c.window, c.sinks, c.mixture->used, c.mixture->width, c.mixture->renormalized),
            std::tuple(8, true, 2, 16, true));
  EXPECT_TRUE(c.mixture->clamped.has_value() && c.mixture->biases && !c.mixture->stacked);
  EXPECT_EQ(c.global_layers, (std::vector<int>{1, 3}));
  EXPECT_EQ(std::tuple(c.activation, c.post_norms, c.scaled_embedding), std::tuple(Activation::silu, false, false));
  EXPECT_EQ(std::tuple(c.rope_scaling.kind, c.rope_scaling.factor, c.rope_scaling.original_positions,
                       c.rope_scaling.whole, c.rope_scaling.attention_factor),
            std::tuple(RopeScaling::Kind::yarn, 4., 16, false, yarn_scale(4)));
  GgufBytes capped = oss;
  EXPECT_TRUE(says(refusal(capped.set("gpt-oss.final_logit_softcapping", f32_value(5))), "not supported"));
  const ModelConfig llama = config(tiny()
                                       .set("llama.rope.scaling.type", text_value("yarn"))
                                       .set("llama.rope.scaling.factor", f32_value(4))
                                       .set("llama.rope.scaling.yarn_beta_fast", f32_value(16)));
  EXPECT_EQ(std::tuple(llama.rope_scaling.whole, llama.rope_scaling.fast_turns), std::tuple(true, 16.));
}

TEST_F(GgufConfig, FaultySizes) {
  const std::pair<const char*, std::uint32_t> cases[] = {
      {"llama.embedding_length", 0},     {"llama.embedding_length", 7},       {"llama.block_count", 5000},
      {"llama.attention.key_length", 3}, {"llama.attention.value_length", 2}, {"llama.context_length", 1u << 31},
      {"llama.feed_forward_length", 0},  {"tokenizer.ggml.eos_token_id", 3},  {"tokenizer.ggml.bos_token_id", 99}};
  for (const auto& [key, value] : cases) EXPECT_NE(refusal(tiny().set(key, u32_value(value))), "") << key << value;
  for (const auto& [key, value] : tiny().metadata)
    if (key != "tokenizer.ggml.eos_token_id") {
      EXPECT_TRUE(says(refusal(tiny().set(key, "")), "m.gguf has no metadata '" + key + "'", "convert"));
    }
  EXPECT_TRUE(says(refusal(tiny().set("llama.attention.head_count", array_value(4, {bytes_of(2u)}))),
                   "'llama.attention.head_count' is an array of 1 element"));
  EXPECT_TRUE(says(refusal(tiny().set("tokenizer.ggml.tokens", texts_value({}))), "there must be tokens",
                   "convert the model again"));
  for (const char* key : {"llama.attention.head_count_kv", "llama.attention.head_count"})
    EXPECT_TRUE(says(refusal(tiny().set(key, u32_value(3))), key, "must divide", "convert the model again"));
  EXPECT_TRUE(says(refusal(tiny().set("llama.vocab_size", u32_value(4))), "'tokenizer.ggml.tokens' has 3 tokens",
                   "convert the model again"));
}

TEST_F(GgufConfig, TensorsThatDoNotBelongToIt) {
  EXPECT_TRUE(says(refusal(tiny().set("llama.block_count", u32_value(2))), "has no tensor for 'model.layers.1.",
                   "it is incomplete"));
  EXPECT_TRUE(says(refusal(tiny().set("llama.feed_forward_length", u32_value(16))), "tensor 'blk.0.ffn_",
                   "has the shape [8, 8], but the metadata require"));
  EXPECT_TRUE(says(refusal(tiny().append("blk.1.attn_q.weight", {8, 8}, 0, std::string(256, '\0'))),
                   "model.layers.1.self_attn.q_proj.weight"));
  EXPECT_TRUE(says(refusal(tiny().append("blk.0.attn_q.bias", {32}, 8, std::string(34, '\0'))),
                   "tensor 'blk.0.attn_q.bias' is no matrix, but has the type Q8_0"));
}

TEST_F(GgufConfig, DivisorsOfFrequencies) {
  const auto with = [&](std::vector<std::uint64_t> dims, const std::vector<float>& divisors) {
    std::string bytes;
    for (const float d : divisors) bytes += bytes_of(d);
    return tiny().append("rope_freqs.weight", dims, 0, bytes);
  };
  const ModelConfig plain = config(tiny()), scaled = config(with({2}, {1, 8}));
  EXPECT_EQ(scaled.rope_frequencies()[0], plain.rope_frequencies()[0]);
  EXPECT_EQ(scaled.rope_frequencies()[1], plain.rope_frequencies()[1] / 8);
  EXPECT_TRUE(
      says(refusal(with({3}, {1, 2, 3})), "'rope_freqs.weight' is F32 of shape [3], but must be F32 of shape [2]"));
  EXPECT_TRUE(says(refusal(with({2}, {1, 0})), "must hold numbers above 0"));
  EXPECT_TRUE(says(refusal(with({2}, {1, NAN})), "must hold numbers above 0"));
  EXPECT_TRUE(says(refusal(with({2}, {1, 8})
                               .set("llama.rope.scaling.type", text_value("linear"))
                               .set("llama.rope.scaling.factor", f32_value(4))),
                   "'rope_freqs.weight' scales too"));
}

// llama.cpp scales linearly where a file has a factor and no type.
TEST_F(GgufConfig, AFactorWithoutATypeScalesLinearly) {
  const auto with = [](const std::string& type, float factor) {
    GgufBytes g = tiny().set("llama.rope.scaling.factor", f32_value(factor));
    return type.empty() ? g : g.set("llama.rope.scaling.type", text_value(type));
  };
  const ModelConfig c = config(with("", 4));
  EXPECT_EQ(c.rope_scaling.kind, RopeScaling::Kind::linear);
  EXPECT_EQ(c.rope_scaling.factor, 4);
  for (const char* type : {"", "none", "linear"}) {
    EXPECT_EQ(refusal(with(type, 1)), "") << type;
    EXPECT_EQ(config(with(type, 1)).rope_frequencies(), config(tiny()).rope_frequencies()) << type;
  }
  EXPECT_TRUE(says(refusal(with("none", 4)), "'llama.rope.scaling.factor' is 4",
                   "'llama.rope.scaling.type' is \"none\"; leave one of them out"));
  EXPECT_TRUE(says(refusal(with("", 0.5f)), "'llama.rope.scaling.factor' is 0.5", "at least 1"));
  const std::string divisors = bytes_of(1.f) + bytes_of(8.f);
  EXPECT_TRUE(says(refusal(with("", 4).append("rope_freqs.weight", {2}, 0, divisors)), "scales too"));
  EXPECT_EQ(refusal(with("", 1).append("rope_freqs.weight", {2}, 0, divisors)), "");
}

// A Q8_0 matrix whose only block has the scale NaN.
TEST_F(GgufConfig, AScaleThatIsNoNumber) {
  GgufBytes g;
  for (const auto& [key, value] : tiny().metadata) g.set(key, value);
  g.set("llama.embedding_length", u32_value(32)).set("tokenizer.ggml.tokens", texts_value({"a"}));
  g.set("tokenizer.ggml.eos_token_id", "").tensor("token_embd.weight", {32, 1}, 8, 0);
  g.data = std::string(34, '\0');
  const auto read = [&] {
    return sentence_of([&] {
      const auto file = open(g);
      GgufTensors(file, gguf_config(*file)).tensor("model.embed_tokens.weight", {1, 32});
    });
  };
  EXPECT_EQ(read(), "");
  g.data[1] = '\x7e';
  EXPECT_TRUE(says(read(), "m.gguf is damaged: tensor 'token_embd.weight' has a scale that is no finite number"));
}

}  // namespace
}  // namespace foretoken::test
