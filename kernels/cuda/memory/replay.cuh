// Bodies that were recorded as CUDA graphs, by key. This header must not know what a body does.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <cuda_runtime.h>

#include "kernels/cuda/memory/memory.cuh"

namespace foretoken {

class CudaReplays {
 public:
  // At most `most` are kept; the least recently used one is dropped. `compares`: as CudaOptions::compare_replays.
  CudaReplays(cudaStream_t stream, CudaMemory& memory, std::size_t most, bool compares)
      : stream_(stream), memory_(memory), most_(most), compares_(compares || kDebug) {}
  ~CudaReplays();
  CudaReplays(const CudaReplays&) = delete;

  // The first run of a key runs the body and then records it, where new keys are recorded; later runs replay the
  // recording. Returns whether a graph was launched.
  bool run(std::span<const std::int64_t> key, const std::function<void()>& body, const Tensor& result);
  bool recording() const { return recording_; }
  std::uint64_t recordings() const { return recordings_; }
  void record_new(bool on) { records_ = on; }
  std::uint64_t unrecorded() const { return unrecorded_; }
  bool compares() const { return compares_; }

 private:
#ifdef NDEBUG
  static constexpr bool kDebug = false;
#else
  static constexpr bool kDebug = true;
#endif
  using Key = std::vector<std::int64_t>;
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { (void)cudaGraphExecDestroy(graph); }
  };
  using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy>;
  struct Entry {
    Key key;
    Graph graph;
    std::int64_t bytes;  // of tensors that the body has at once
  };
  struct Before {  // lexicographic; a span can be looked up without a copy
    using is_transparent = void;
    bool operator()(std::span<const std::int64_t> a, std::span<const std::int64_t> b) const {
      return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
    }
  };
  Graph record(std::span<const std::int64_t> key, const std::function<void()>& body);
  void keep(Key key, Graph graph);
  void compare(const Key& key, const std::function<void()>& body, const Tensor& result);
  Tensor on_host(const Tensor& result) const;  // not Backend::copy: a check must not count as a wait of the host

  cudaStream_t stream_;
  CudaMemory& memory_;
  std::size_t most_;
  bool compares_;
  std::list<Entry> entries_;  // most recently used first
  std::map<Key, std::list<Entry>::iterator, Before> by_key_;
  bool records_ = true, recording_ = false, running_ = false;
  std::uint64_t recordings_ = 0, unrecorded_ = 0;
};

}  // namespace foretoken
