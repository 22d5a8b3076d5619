// Checkpoints whose files contradict one another, or that hold weights which the forward does not use, do not load.
#include <gtest/gtest.h>

#include "framework/model/inflation.h"
#include "tests/framework/model/model_folder.h"

namespace foretoken::test {
namespace {

// The message of loading a committed model in one file after `change`; "" where it loads.
std::string refusal(const std::string& name, const std::function<void(ModelFolder&)>& change) {
  ModelFolder m(name);
  change(m);
  m.write();
  return m.refusal();
}

TEST(Contradiction, FewerLayersThanTheFileHas) {
  EXPECT_TRUE(says(refusal("llama2", [](ModelFolder& m) { m.config["num_hidden_layers"] = 1; }),
                   "holds 9 tensors that a LlamaForCausalLM of 1 layer does not use: "
                   "model.layers.1.input_layernorm.weight, model.layers.1.mlp.down_proj.weight, "
                   "model.layers.1.mlp.gate_proj.weight and 6 more",
                   "config.json", "download both again"));
}

TEST(Contradiction, BiasesThatTheArchitectureDoesNotUse) {
  EXPECT_TRUE(says(refusal("llama2", [](ModelFolder& m) { m.add("model.layers.0.self_attn.q_proj.bias", {64}); }),
                   "holds 1 tensor that a LlamaForCausalLM of 2 layers does not use: "
                   "model.layers.0.self_attn.q_proj.bias;"));
  EXPECT_TRUE(says(refusal("qwen2", [](ModelFolder& m) { m.add("model.layers.1.self_attn.o_proj.bias", {48}); }),
                   "model.layers.1.self_attn.o_proj.bias;"));
  EXPECT_TRUE(says(refusal("biased", [](ModelFolder& m) { m.config["mlp_bias"] = false; }), "holds 6 tensors",
                   "model.layers.0.mlp.down_proj.bias, model.layers.0.mlp.gate_proj.bias, "
                   "model.layers.0.mlp.up_proj.bias and 3 more"));
}

TEST(Contradiction, NormsThatTheArchitectureDoesNotUse) {
  EXPECT_TRUE(says(refusal("llama3", [](ModelFolder& m) { m.add("model.layers.0.self_attn.q_norm.weight", {24}); }),
                   "model.layers.0.self_attn.q_norm.weight;"));
  EXPECT_TRUE(says(refusal("qwen3",
                           [](ModelFolder& m) {
                             m.config["architectures"] = {"LlamaForCausalLM"};
                             m.config["model_type"] = "llama";
                           }),
                   "holds 4 tensors", "model.layers.0.self_attn.k_norm.weight"));
}

TEST(Contradiction, AnotherHeadAlthoughTied) {
  const auto with_head = [](float first) {
    return [first](ModelFolder& m) {
      m.tensors["lm_head.weight"] = host_copy(m.tensors.at("model.embed_tokens.weight"));
      if (first != 0) *m.tensors["lm_head.weight"].data<float>() = first;
    };
  };
  EXPECT_EQ(refusal("llama3", with_head(0)), "");  // the same matrix, stored twice
  EXPECT_TRUE(says(refusal("llama3", with_head(7)), "tie_word_embeddings", "'lm_head.weight'",
                   "differs from 'model.embed_tokens.weight'"));
  EXPECT_TRUE(says(refusal("llama2", [](ModelFolder& m) { m.config["tie_word_embeddings"] = true; }), "differs"));
  EXPECT_TRUE(says(refusal("llama3", [](ModelFolder& m) { m.add("lm_head.weight", {96, 47}); }),
                   "'lm_head.weight' has the shape [96, 47]"));
  EXPECT_TRUE(says(refusal("llama3", [](ModelFolder& m) { m.config["tie_word_embeddings"] = false; }),
                   "has no tensor 'lm_head.weight'"));
}

TEST(Contradiction, TensorsThatDoNotChangeTheForwardAreAllowed) {
  EXPECT_EQ(refusal("llama2",
                    [](ModelFolder& m) {
                      for (const std::string at : {"model.layers.0.", "model.layers.1."}) {
                        m.add(at + "self_attn.rotary_emb.inv_freq", {8});
                        m.add(at + "self_attn.k_proj.k_scale", {});
                        m.add(at + "self_attn.v_proj.v_scale", {});
                        m.add(at + "mlp.up_proj.input_scale", {1});
                        m.add(at + "mlp.up_proj.weight_scale", {64, 1});
                        m.add(at + "mlp.up_proj.weight_zero_point", {64, 1});
                      }
                      m.add("model.rotary_emb.inv_freq", {8});
                      m.add("mtp.layers.0.input_layernorm.weight", {64});
                      m.add("model.mtp_layers.0.self_attn.q_proj.weight", {64, 64}, DType::bf16);
                    }),
            "");
  const auto predictor = [](ModelFolder& m) { m.add("model.layers.2.eh_proj.weight", {64, 128}); };
  EXPECT_TRUE(says(refusal("llama2", predictor), "model.layers.2.eh_proj.weight"));
  EXPECT_EQ(refusal("llama2",
                    [&](ModelFolder& m) {
                      predictor(m);
                      m.config["num_nextn_predict_layers"] = 1;
                    }),
            "");
  EXPECT_TRUE(says(refusal("llama2",
                           [&](ModelFolder& m) {
                             m.add("model.layers.3.eh_proj.weight", {64, 128});
                             m.config["num_nextn_predict_layers"] = 1;
                           }),
                   "model.layers.3.eh_proj.weight"));
}

// What predicts further tokens has tensors for it: a layer without them is one that config.json left out.
TEST(Contradiction, ALayerOfTheModelIsNoLayerOfPrediction) {
  const auto layer_left_out = [](ModelFolder& m) {
    m.config["num_hidden_layers"] = 1, m.config["num_nextn_predict_layers"] = 1;
  };
  EXPECT_TRUE(says(refusal("llama2", layer_left_out), "of 1 layer does not use", "model.layers.1."));
  for (const char* part : {"eh_proj", "enorm", "hnorm"})
    EXPECT_EQ(refusal("llama2",
                      [&](ModelFolder& m) {
                        layer_left_out(m);
                        m.add(std::string("model.layers.1.") + part + ".weight", {64});
                      }),
              "");
}

// Tensors of quantized weights are an Error: only a quantizer's parameters of dense matrices are exempt.
TEST(Contradiction, QuantizedMatricesBesideDenseOnes) {
  for (const char* part : {"qweight", "qzeros", "scales", "weight_packed"})
    EXPECT_TRUE(says(
        refusal("llama2",
                [&](ModelFolder& m) { m.add(std::string("model.layers.0.mlp.up_proj.") + part, {8, 64}, DType::i32); }),
        std::string("model.layers.0.mlp.up_proj.") + part + ";"));
}

TEST(Contradiction, ShardsFollowTheSameRule) {
  ModelFolder m("llama2");
  m.write_shards();
  EXPECT_EQ(m.refusal(), "");
  m.config["num_hidden_layers"] = 1;
  m.write_shards();
  EXPECT_TRUE(says(m.refusal(), "holds 9 tensors", "model.layers.1.input_layernorm.weight"));
}

TEST(Contradiction, ATensorInTwoShards) {
  ModelFolder m("llama2");
  const nlohmann::json map = m.write_shards();
  ASSERT_EQ(map["lm_head.weight"], "a.safetensors");
  Tensors b;
  for (const auto& [name, t] : m.tensors)
    if (map[name] == "b.safetensors" || name == "lm_head.weight") b[name] = t;
  m.folder().write("b.safetensors", safetensors_of(b));
  EXPECT_TRUE(says(m.refusal(), "tensor 'lm_head.weight' is in a.safetensors and in b.safetensors",
                   "model.safetensors.index.json", "download"));
}

TEST(Contradiction, AShardWithATensorThatTheIndexDoesNotName) {
  ModelFolder m("llama2");
  nlohmann::json map = m.write_shards();
  map.erase("model.norm.weight");
  m.folder().write("model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
  EXPECT_TRUE(says(m.refusal(), "does not name tensor 'model.norm.weight'", ".safetensors holds", "download"));
}

TEST(Contradiction, OneFileAndAnIndexOfOthers) {
  ModelFolder m("llama2");
  nlohmann::json map = m.write_shards();
  m.write();
  EXPECT_TRUE(says(m.refusal(), "holds model.safetensors and model.safetensors.index.json, which names a.safetensors",
                   "remove"));
  for (auto& file : map) file = "model.safetensors";
  m.folder().write("model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
  EXPECT_EQ(m.refusal(), "");
}

TEST(Contradiction, OfAModelThatIsInflated) {
  const auto inflate = [](const ModelFolder& m) {
    return sentence_of([&] {
      const ModelConfig small = ModelConfig::load(m.folder().path());
      ModelConfig shape = small;
      shape.width += 64, shape.layers += 2;
      InflatedWeights(std::make_shared<Checkpoint>(Checkpoint::open(m.folder().path())), small, shape, "small",
                      "large");
    });
  };
  ModelFolder m("llama3");
  m.write();
  EXPECT_EQ(inflate(m), "");
  m.add("model.layers.0.self_attn.q_norm.weight", {24});
  m.write();
  EXPECT_TRUE(says(inflate(m), "model.layers.0.self_attn.q_norm.weight;"));
}

}  // namespace
}  // namespace foretoken::test
