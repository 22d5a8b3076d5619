// Device memory that is handed out again without waiting: all work runs on one stream, so whoever gets a block next
// writes to it after its last reader. This header must not know tensors' meaning or operations.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "kernels/error.h"
#include "kernels/tensor.h"

namespace foretoken {

// The device has no more memory: whoever can do without asks for it in vain.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// Blocks cut from slabs of cudaMalloc: best fit, neighbours merge when they come back. Slabs of more than kWhole bytes,
// which hold the pages of caches, are never cut: weights in the place where pages were would keep the next pages out.
// Not thread-safe.
class CudaPool {
 public:
  static constexpr std::int64_t kAlignment = 512, kWhole = std::int64_t(4) << 30;

  ~CudaPool();
  void* take(std::int64_t bytes);  // a multiple of kAlignment; null where the device has no more
  void give(void* block);
  // Returns slabs of which nothing is in use to the device.
  void trim();
  std::int64_t idle() const { return idle_; }  // bytes in slabs that nobody uses

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
  std::int64_t idle_ = 0;
};

// The memory of one GPU. What is allocated while a body is recorded comes from a pool of its own: every replay of the
// graph writes there again, so it must never serve anything else; all graphs share it, since they run one after
// another.
class CudaMemory : public std::enable_shared_from_this<CudaMemory> {
 public:
  explicit CudaMemory(int device) : device_(device) {}

  // Uninitialised, dense. Throws OutOfMemory where the device has no more.
  Tensor allocate(Shape shape, DType dtype);
  void recording(bool on) { recording_ = on; }
  std::int64_t free_bytes();  // what the device has, and what lies idle here

 private:
  void* take(CudaPool& pool, std::int64_t bytes);

  int device_;
  std::mutex mutex_;
  CudaPool eager_, recorded_;
  bool recording_ = false;
};

}  // namespace foretoken
