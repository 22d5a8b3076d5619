// What a run says where it names a model: a directory, a trained small model inflated to a large shape, or random
// weights of a shape. This module must not know how any of them is loaded, or on which device.
#pragma once
#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace foretoken {

struct ModelChoice {
  std::string directory;   // of config.json, model.safetensors, tokenizer.json; empty: random weights
  std::string inflate;     // the shape that the model of `directory` is embedded in; empty: as it is
  std::string random;      // the shape of random weights
  std::uint64_t seed = 1;  // of random weights
  std::string tokenizer;   // the directory whose tokens the prompts of a random model are made of

  ModelChoice() = default;
  ModelChoice(std::string path) : directory(std::move(path)) {}  // a path is a choice: what most callers have
  ModelChoice(const char* path) : directory(path) {}

  // `model`: a path, or {"random": SHAPE, "seed": 1, "tokenizer": DIRECTORY}; `inflate`: a shape or null. Anything
  // else, an unknown shape, or random weights to be inflated: an Error.
  static ModelChoice read(const nlohmann::json& model, const nlohmann::json& inflate);
  // `model` of a run with every default filled in, so that equal choices are equal text.
  nlohmann::json document() const;
  // As results and tables name it: "experiments/models/target inflated to llama-3.1-8b", "random llama-3.1-8b seed 1".
  std::string text() const;
  // Whose tokenizer.json gives the tokens.
  const std::string& tokenizer_directory() const { return random.empty() ? directory : tokenizer; }
};

}  // namespace foretoken
