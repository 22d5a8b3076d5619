// How a run names a model: a directory or a GGUF file, a trained small model inflated to a large shape, or random
// weights of a shape, and the types of its weights and of its cache. This module must not know how a model is loaded,
// or on which device.
#pragma once
#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace foretoken {

struct ModelChoice {
  std::string directory;            // of config.json, model.safetensors, tokenizer.json; empty: random weights
  std::string inflate;              // the shape to which the model of `directory` is inflated; empty: none
  std::string random;               // the shape of random weights
  std::uint64_t seed = 1;           // of random weights
  std::string scales = "bf16";      // of random weights: of which scales are numbers where `dtype` rounds them
  std::string tokenizer;            // the directory whose tokenizer encodes the prompts of a random model
  std::string dtype = "auto";       // of the weights, as TransformerOptions takes it
  std::string head_dtype = "auto";  // of the head, likewise
  bool long_context = false;        // LongRoPE's long factors for all sequences, and all positions that they reach
  std::string kv_dtype =
      "target";  // of its cache, as TransformerOptions takes it; "target": as the run's target has it

  ModelChoice() = default;
  ModelChoice(std::string path) : directory(std::move(path)) {}  // implicit, since most callers have a path
  ModelChoice(const char* path) : directory(path) {}

  // `model`: a path, {"directory": PATH, "inflate": SHAPE, "dtype": "auto", "head_dtype": "auto", "kv_dtype": "target",
  // "long_context": false} or {"random": SHAPE, "seed": 1, "scales": "bf16", "tokenizer": DIRECTORY, "dtype": "auto",
  // "head_dtype": "auto", "kv_dtype": "target", "long_context": false}. `inflate` (a shape or null), `dtype` and
  // `kv_dtype` may be given beside it instead ("auto", "target": not given). Anything else, an unknown shape, random
  // weights to be inflated, or a part given twice: an Error.
  static ModelChoice read(const nlohmann::json& model, const nlohmann::json& inflate, const nlohmann::json& dtype,
                          const nlohmann::json& kv_dtype);
  static ModelChoice read(const nlohmann::json& model, const nlohmann::json& inflate, const nlohmann::json& dtype);
  static ModelChoice read(const nlohmann::json& model, const nlohmann::json& inflate);
  static ModelChoice read(const nlohmann::json& model);
  // What read() takes alone, in one form for equal choices: a path where that says all.
  nlohmann::json document() const;
  // As results and tables name it: "experiments/models/target inflated to llama-3.1-8b", "random llama-3.1-8b seed 1".
  // Without the types of the weights and of the cache.
  std::string text() const;
  // The directory or GGUF file whose tokenizer is used.
  const std::string& tokenizer_directory() const { return random.empty() ? directory : tokenizer; }
};

}  // namespace foretoken
