// The composition root: puts devices, models, tokenizers, drafters and verifiers on one table and builds engines from runs.
// What is expensive (a device, a model) is made once and shared by all runs of a process.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/engine/engine.h"
#include "framework/text/tokenizer.h"

namespace foretoken {

class Workbench {
 public:
  Workbench();

  const Registries& registries() const { return registries_; }
  // "auto", "cpu", "reference", "cuda".
  Backend& backend(const std::string& device, int threads);
  // The device that "auto" means here.
  static std::string resolve(const std::string& device);
  std::shared_ptr<Model> model(Backend& backend, const std::string& directory, const std::string& dtype, const std::string& kv_dtype);
  std::shared_ptr<const Tokenizer> tokenizer(const std::string& directory);
  // The engine of a complete run; with `plain`, of its baseline: the same without speculation.
  std::unique_ptr<Engine> engine(const nlohmann::json& run, bool plain);

 private:
  Registries registries_;
  std::map<std::string, std::unique_ptr<Backend>> backends_;
  std::map<std::string, std::shared_ptr<Model>> models_;
  std::map<std::string, std::shared_ptr<const Tokenizer>> tokenizers_;
};

// A request of a complete run for this prompt: its sampling, limits and stop texts. `stream` names its draws.
Request request_of(const nlohmann::json& run, const ModelInfo& model, std::shared_ptr<const Tokenizer> tokenizer, const std::string& prompt, std::uint64_t stream);

// Ends a text where one of `stops` appears and keeps the tokens that lie wholly before it.
StopRule stop_at(std::vector<std::string> stops, std::shared_ptr<const Tokenizer> tokenizer);

// {"cpu", "cores", "instructions", "os", "memory_gib"} of this machine with this device.
nlohmann::json machine(const Backend& backend);

}  // namespace foretoken
