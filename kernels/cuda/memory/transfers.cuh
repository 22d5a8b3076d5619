// Asynchronous copies between host and device through pinned memory: the host may continue as soon as its bytes are in
// the ring, and reads fetched data after the next wait(). Also counts waits and records points in time of the stream.
// This header must not know what the bytes mean.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include <cuda_runtime.h>

#include "kernels/backend.h"

namespace foretoken {

// Rows of bytes, `pitch` apart; dense memory is one row.
struct ByteRows {
  char* at = nullptr;
  std::int64_t rows = 0, bytes = 0, pitch = 0;
  static ByteRows of(const Tensor& t);
};

class CudaTransfers {
 public:
  // See Grid::dependent_launch, CudaOptions::slow_pushes.
  CudaTransfers(cudaStream_t stream, bool dependent_launch, bool slow);
  ~CudaTransfers();
  CudaTransfers(const CudaTransfers&) = delete;

  void send(const ByteRows& from, const ByteRows& to);  // host to device; `from` may change at once
  // Host to device, after all kernels that were queued before. Returns whether a kernel copies: readers of `device`
  // must then wait for it or come after a barrier (CudaBackend::reads_early); otherwise all later work waits for the
  // copy.
  bool push(const char* host, char* device, std::int64_t bytes);
  void move(const ByteRows& from, const ByteRows& to);  // device to device
  void fetch(const Tensor& from, const Tensor& to);     // device to host; `to` holds it after the next wait()
  void wait();                                          // until the stream is empty
  std::uint64_t waits() const { return waits_; }

  Mark mark();
  double seconds(const Mark& from, const Mark& to) const;

 private:
  // A ring of four quarters: an event after each marks when its bytes have been sent.
  static constexpr std::int64_t kQuarter = 8 << 20, kLanding = 16 << 20;
  static constexpr int kMarks = 8192;
  char* reserve(std::int64_t bytes);  // pinned memory of the ring for `bytes` bytes, at most kQuarter

  struct Landing {
    char* at;
    Tensor to;
  };
  cudaStream_t stream_;
  bool dependent_launch_, slow_;
  char *ring_ = nullptr, *landing_ = nullptr;
  std::array<cudaEvent_t, 4> left_{};
  int quarter_ = 0;
  std::int64_t used_ = 0, landed_ = 0;
  std::vector<Landing> pending_;
  std::uint64_t waits_ = 0;
  std::vector<cudaEvent_t> marks_;
  int next_mark_ = 0, passed_ = 0;  // marks below `passed_` precede a wait
};

}  // namespace foretoken
