#include "framework/model/forward_memory.h"

namespace foretoken {

Tensor free_output(Backend& backend, std::vector<Tensor>& all, int rows, std::int64_t width) {
  std::size_t i = 0;
  while (i < all.size() && (all[i].dim(0) < rows || all[i].dim(1) != width || all[i].owner().use_count() > 1)) ++i;
  if (i == all.size()) all.push_back(backend.allocate({std::int64_t(rows), width}, DType::f32));
  return all[i].rows(0, rows);
}

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
