#include "experiments/sweep/engine_memory.h"

#include <algorithm>
#include <set>

namespace foretoken {

EngineMemory::EngineMemory(Engine& engine)
    : engine_(engine), before_(engine.host().backend().memory().held), kept_(output_bytes()) {
  engine.host().backend().restart_peak();
}

void EngineMemory::step(const StepReport& report) { most_pages_ = std::max(most_pages_, report.pages_in_use); }

MemoryUsed EngineMemory::figures() const {
  const MemoryUse use = engine_.host().backend().memory();
  const PagePool& pool = engine_.pool();
  MemoryUsed found{.target_weights = engine_.target().info().memory(),
                   .draft_weights = draft_weights(),
                   .cache = pool.memory().bytes(),
                   .cache_used = most_pages_ * pool.page_bytes(),
                   .states_per_token = states_per_token(),
                   .scratch = std::nullopt};
  if (use.most > 0) found.scratch = use.most - before_ + kept_;
  return found;
}

std::int64_t EngineMemory::states_per_token() const {
  const ModelInfo& target = engine_.target().info();
  return with_taps(target, engine_.target().taps()).bytes_per_row() - target.kv.bytes_per_row();
}

std::int64_t EngineMemory::draft_weights() const {
  std::set<std::uint64_t> counted = {engine_.target().model()->serial()};
  std::int64_t bytes = 0;
  for (const auto& books : engine_.host().books())
    if (counted.insert(books->weights().serial).second) bytes += books->weights().bytes;
  return bytes;
}

// A model keeps this memory from one engine to the next, so that it may have been there before.
std::int64_t EngineMemory::output_bytes() const {
  std::int64_t bytes = engine_.target().books()->output_bytes();
  for (const auto& books : engine_.host().books()) bytes += books->output_bytes();
  return bytes;
}

}  // namespace foretoken
