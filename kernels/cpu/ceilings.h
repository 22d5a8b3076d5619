// Measures the limits of this machine: memory bandwidth and arithmetic throughput of its threads. The roofline of every
// operation follows from these two numbers.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_backend.h"

namespace foretoken {

// A working set that is read repeatedly: memory of its own, or the packed weights that products read.
class ReadProbe {
 public:
  // Passes before a measurement: a last-level cache that other data has just filled keeps a set only after some passes.
  static constexpr int kWarmUp = 4;

  ReadProbe(CpuBackend& cpu, std::int64_t bytes);
  ReadProbe(CpuBackend& cpu, std::span<const Weight> weights);  // prepared by this backend; they are kept alive
  // Bytes a second of all threads together, the set having just been read; small sets are read several times.
  double bytes_a_second();
  void read();  // once
  std::int64_t bytes() const { return bytes_; }

 private:
  struct Piece {
    const std::byte* data;
    std::int64_t bytes;
  };
  void cut(const void* data, std::int64_t bytes);

  CpuBackend& cpu_;
  std::int64_t bytes_ = 0;
  std::vector<Piece> pieces_;
  std::vector<std::shared_ptr<const void>> owners_;
};

// Floating-point operations a second of all threads, by the instruction that the backend's bf16 products use; a
// multiplication and an addition count as two. Takes about a millisecond.
double operations_a_second(CpuBackend& cpu);

// Seconds for all threads to start and finish: a few cache lines move between cores. This distinguishes cores that
// share a last-level cache from cores that do not (which read faster, having two).
double fork_seconds(CpuBackend& cpu);

}  // namespace foretoken
