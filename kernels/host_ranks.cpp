// Sums over ranks in host memory.
#include "kernels/error.h"
#include "kernels/host_backend.h"

namespace foretoken {

// Every rank sums a piece of the numbers of all and writes it to all.
void HostBackend::all_reduce(Tensor x, const Rank& rank) {
  if (x.dtype() != DType::f32 || !x.dense()) throw Error("all_reduce: the numbers must be f32 and dense");
  const std::int64_t n = x.elements(), begin = n * rank.number / rank.size(), end = n * (rank.number + 1) / rank.size();
  rank.group->meet(rank.number, {"a sum", n, x.raw()}, [&](std::span<void* const> memory) {
    for (std::int64_t i = begin; i < end; ++i) {
      float sum = static_cast<const float*>(memory[0])[i];
      for (std::size_t r = 1; r < memory.size(); ++r) sum += static_cast<const float*>(memory[r])[i];
      for (void* const of : memory) static_cast<float*>(of)[i] = sum;
    }
  });
}

}  // namespace foretoken
