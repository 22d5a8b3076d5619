// What a model's forwards read their inputs from and write their logits to, beside caches. It is lent to who feeds the
// model and lent again when they are gone, so that forwards which a device recorded for one engine lie where the next
// engine's do. This module must not know what is fed.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/staging.h"

namespace foretoken {

struct ForwardMemory {
  explicit ForwardMemory(Backend& b) : backend(b.serial()), staging(b) {}
  std::uint64_t backend;  // whose it is
  Staging staging;
  std::vector<Tensor> logits;  // f32 [rows, vocab] each; one that nobody else holds is free
};

// Safe to use from several threads. Memory that is lent may outlive it.
class ForwardMemories {
 public:
  // What was given back last, if it is this backend's, else new.
  std::shared_ptr<ForwardMemory> lend(Backend& backend);

 private:
  struct Idle {
    std::mutex mutex;
    std::vector<std::unique_ptr<ForwardMemory>> memories;  // of one backend
  };
  std::shared_ptr<Idle> idle_ = std::make_shared<Idle>();
};

}  // namespace foretoken
