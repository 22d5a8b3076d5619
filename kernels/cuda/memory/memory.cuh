// Device memory that is reused without waiting: all work runs on one stream, so the next user of a block writes to it
// after the last read of its previous user. This header must not know tensors' meaning or operations.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "kernels/memory_use.h"
#include "kernels/out_of_memory.h"
#include "kernels/tensor.h"

namespace foretoken {

// Blocks cut from slabs of cudaMalloc: best fit, adjacent free blocks are merged. Slabs of more than kWhole bytes,
// which hold the pages of caches, are never divided: if weights took memory where pages were, the next pages would not
// fit there. Not thread-safe.
class CudaPool {
 public:
  static constexpr std::int64_t kAlignment = 512, kWhole = std::int64_t(4) << 30;

  ~CudaPool();
  void* take(std::int64_t bytes);  // a multiple of kAlignment; null where the device has no more
  void give(void* block);
  // Returns slabs without used blocks to the device.
  void trim();
  std::int64_t idle() const { return idle_; }    // free bytes in slabs
  std::int64_t bytes() const { return bytes_; }  // of all slabs
  std::int64_t used() const { return bytes_ - idle_; }

 private:
  struct Block {
    std::int64_t bytes;
    bool free, begins_slab;
  };
  using Blocks = std::map<char*, Block>;
  bool grow(std::int64_t bytes);
  void join(Blocks::iterator block);

  Blocks blocks_;                                  // by address
  std::set<std::pair<std::int64_t, char*>> free_;  // by size
  std::int64_t idle_ = 0, bytes_ = 0;
};

// The memory of one GPU. Allocations while a body is recorded come from a separate pool: every replay of the graph
// writes to that memory again, so it must not be used for anything else. All graphs share the pool, since they run one
// after another.
class CudaMemory : public std::enable_shared_from_this<CudaMemory> {
 public:
  explicit CudaMemory(int device) : device_(device) {}

  // Uninitialised, dense. Throws OutOfMemory where the device has no more.
  Tensor allocate(Shape shape, DType dtype);
  void recording(bool on);
  // Of tensors that existed at once while the last body was recorded.
  std::int64_t recorded_bytes() const;
  // A body with so many is replayed: they count in MemoryUse::most, as they did when it ran unrecorded.
  void replayed(std::int64_t bytes);
  std::int64_t free_bytes();  // free bytes of the device and of the pool
  MemoryUse use() const;
  void restart_peak();

 private:
  void* take(CudaPool& pool, std::int64_t bytes);

  int device_;
  mutable std::mutex mutex_;
  CudaPool eager_, recorded_;
  std::int64_t most_ = 0;  // bytes of eager_ in use, and of a replayed body
  // Bytes of recorded_ in use when the last recording began, and the most until it ended.
  std::int64_t recorded_before_ = 0, recorded_most_ = 0;
  bool recording_ = false;
};

}  // namespace foretoken
