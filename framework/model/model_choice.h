// How a run names a model: a directory, a trained small model inflated to a large shape, or random weights of a shape.
// This module must not know how a model is loaded, or on which device.
#pragma once
#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace foretoken {

struct ModelChoice {
  std::string directory;   // of config.json, model.safetensors, tokenizer.json; empty: random weights
  std::string inflate;     // the shape to which the model of `directory` is inflated; empty: none
  std::string random;      // the shape of random weights
  std::uint64_t seed = 1;  // of random weights
  std::string tokenizer;   // the directory whose tokenizer encodes the prompts of a random model

  ModelChoice() = default;
  ModelChoice(std::string path) : directory(std::move(path)) {}  // implicit, since most callers have a path
  ModelChoice(const char* path) : directory(path) {}

  // `model`: a path, or {"random": SHAPE, "seed": 1, "tokenizer": DIRECTORY}; `inflate`: a shape or null. Anything
  // else, an unknown shape, or random weights to be inflated: an Error.
  static ModelChoice read(const nlohmann::json& model, const nlohmann::json& inflate);
  // `model` of a run with all defaults filled in, so that equal choices have equal documents.
  nlohmann::json document() const;
  // As results and tables name it: "experiments/models/target inflated to llama-3.1-8b", "random llama-3.1-8b seed 1".
  std::string text() const;
  // The directory whose tokenizer.json is used.
  const std::string& tokenizer_directory() const { return random.empty() ? directory : tokenizer; }
};

}  // namespace foretoken
