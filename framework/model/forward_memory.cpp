#include "framework/model/forward_memory.h"

namespace foretoken {

std::shared_ptr<ForwardMemory> ForwardMemories::lend(Backend& backend) {
  std::unique_ptr<ForwardMemory> memory;
  {
    const std::lock_guard lock(idle_->mutex);
    std::erase_if(idle_->memories, [&](const auto& m) { return m->backend != backend.serial(); });
    if (!idle_->memories.empty()) memory = std::move(idle_->memories.back()), idle_->memories.pop_back();
  }
  if (!memory) memory = std::make_unique<ForwardMemory>(backend);
  return {memory.release(), [idle = idle_](ForwardMemory* m) {
            const std::lock_guard lock(idle->mutex);
            idle->memories.emplace_back(m);
          }};
}

}  // namespace foretoken
