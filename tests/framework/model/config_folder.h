// A folder with a config.json: that of a small Llama, with changes.
#pragma once
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "framework/model/config.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {

using nlohmann::json;

inline const json kLlama = {{"architectures", {"LlamaForCausalLM"}},
                            {"model_type", "llama"},
                            {"vocab_size", 100},
                            {"hidden_size", 64},
                            {"num_hidden_layers", 2},
                            {"num_attention_heads", 4},
                            {"intermediate_size", 128},
                            {"max_position_embeddings", 512},
                            {"rms_norm_eps", 1e-6},
                            {"hidden_act", "silu"}};

class ConfigFolder : public testing::Test {
 protected:
  ModelConfig load(const json& changes = json::object()) {
    json j = kLlama;
    j.update(changes);
    for (const auto& [key, value] : changes.items())
      if (value == "absent") j.erase(key);
    folder_.write("config.json", j.dump());
    return ModelConfig::load(folder_.path());
  }
  std::string refusal(const json& changes) {
    return sentence_of([&] { load(changes); });
  }
  TemporaryFolder folder_;
};

}  // namespace foretoken::test
