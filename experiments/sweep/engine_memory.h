// The memory of an engine while it serves. This module must not know what is measured besides, nor how it is shown.
#pragma once
#include <cstdint>

#include "experiments/report/result.h"
#include "framework/engine/engine.h"

namespace foretoken {

class EngineMemory {
 public:
  // From now on; one engine of a device at a time. `engine` must outlive it.
  explicit EngineMemory(Engine& engine);

  void step(const StepReport& report);
  // Weights with embeddings, each model once and the target's not as a draft's. Scratch: the most that steps held
  // besides (activations, those of replayed forwards too; logits and features, also such as a model kept from an
  // earlier engine; distributions).
  MemoryUsed figures() const;

 private:
  std::int64_t draft_weights() const;
  std::int64_t states_per_token() const;
  std::int64_t output_bytes() const;

  Engine& engine_;
  std::int64_t before_;  // that the device held
  std::int64_t kept_;    // of these for logits and features
  int most_pages_ = 0;
};

}  // namespace foretoken
