// Memory that is used again: a forward allocates a hundred small tensors, and each must cost some tens of nanoseconds.
// Knows sizes, no shapes' meaning.
#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/tensor.h"

namespace foretoken {

// Freed blocks wait in lists by size class (steps of a quarter of a power of two). The reference count of a tensor lies
// in front of its data, in the same block. Tensors may outlive the backend: they keep the arena alive.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  static constexpr std::size_t kHeader = 64;
  static constexpr int kClasses = 256;

  ~Arena();
  Tensor allocate(Shape shape, DType dtype);
  // Gives back a block of this class. Any thread.
  void release(void* block, int size_class);

 private:
  std::mutex lock_;
  std::array<std::vector<void*>, kClasses> free_;
};

// Memory for packed weights: huge pages where the system has them, one weight behind the other in the order in which
// they were prepared, which is the order in which a forward streams them.
class WeightMemory {
 public:
  std::shared_ptr<void> allocate(std::size_t bytes);  // 64-byte aligned, zeroed

 private:
  struct Slab;
  std::shared_ptr<Slab> slab_;
};

}  // namespace foretoken
