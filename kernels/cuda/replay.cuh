// Bodies that were recorded as CUDA graphs, by key. This room must not know what a body does.
#pragma once
#include <cuda_runtime.h>

#include <functional>
#include <list>
#include <string>
#include <unordered_map>

#include "kernels/cuda/memory.cuh"

namespace foretoken {

class CudaReplays {
 public:
  CudaReplays(cudaStream_t stream, CudaMemory& memory) : stream_(stream), memory_(memory) {}
  ~CudaReplays();
  CudaReplays(const CudaReplays&) = delete;

  // The first run of a key is plain (it warms caches up), the second is recorded, and from then on it is replayed.
  void run(const std::string& key, const std::function<void()>& body);
  bool recording() const { return recording_; }

 private:
  static constexpr std::size_t kMost = 256;  // graphs; the one that was not used for longest goes
  struct Entry {
    std::string key;
    cudaGraphExec_t graph = nullptr;
  };
  cudaGraphExec_t record(const std::string& key, const std::function<void()>& body);

  cudaStream_t stream_;
  CudaMemory& memory_;
  std::list<Entry> entries_;  // the latest first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
  bool recording_ = false, running_ = false;
};

}  // namespace foretoken
