#include "framework/model/forward_memory.h"

#include <algorithm>

namespace foretoken {

Tensor free_output(Backend& backend, std::vector<Tensor>& all, int rows, std::int64_t width, std::int64_t most) {
  const std::int64_t wanted = rows * width;
  std::size_t i = 0;
  while (i < all.size() && (all[i].elements() < wanted || all[i].owner().use_count() > 1)) ++i;
  if (i == all.size()) all.push_back(backend.allocate({rows * most}, DType::f32));
  return all[i].reshaped({all[i].elements()}).rows(0, wanted).reshaped({std::int64_t(rows), width});
}

std::shared_ptr<ForwardMemory> ForwardMemories::lend(Backend& backend) {
  std::unique_ptr<ForwardMemory> memory;
  int number = 0;
  {
    const std::lock_guard lock(idle_->mutex);
    std::erase_if(idle_->memories, [&](const auto& m) { return m->backend != backend.serial(); });
    auto& all = idle_->memories;
    const auto first = std::min_element(all.begin(), all.end(), [](auto& a, auto& b) { return a->number < b->number; });
    if (first == all.end())
      number = idle_->made++;
    else
      memory = std::move(*first), all.erase(first);
  }
  if (!memory) memory = std::make_unique<ForwardMemory>(backend, number);
  return {memory.release(), [idle = idle_](ForwardMemory* m) {
            const std::lock_guard lock(idle->mutex);
            idle->memories.emplace_back(m);
          }};
}

}  // namespace foretoken
