// Reuses memory: a forward allocates about a hundred small tensors, and each allocation must cost some tens of
// nanoseconds only. This module must not know what the memory holds.
#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/memory_use.h"
#include "kernels/tensor.h"

namespace foretoken {

// Freed blocks are kept in lists by size class (steps of a quarter of a power of two). A tensor's reference count is in
// front of its data, in the same block. Tensors may outlive the backend: they keep the arena alive.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  static constexpr std::size_t kHeader = 64;
  static constexpr int kClasses = 256;

  ~Arena();
  Tensor allocate(Shape shape, DType dtype);
  // Returns a block of this class. Safe from any thread.
  void release(void* block, int size_class);
  MemoryUse memory() const;
  void restart_peak();

 private:
  mutable std::mutex lock_;
  std::array<std::vector<void*>, kClasses> free_;
  std::int64_t held_ = 0, most_ = 0;  // bytes of blocks in use
};

// Memory for packed weights: huge pages where the system has them, one weight after the other in the order of
// preparation, in which a forward also reads them.
class WeightMemory {
 public:
  std::shared_ptr<void> allocate(std::size_t bytes);  // 64-byte aligned, zeroed

 private:
  struct Slab;
  std::shared_ptr<Slab> slab_;
};

}  // namespace foretoken
