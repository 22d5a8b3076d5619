// Rearranges weights for the products of this backend, once, at load time: see Packing in operations.h.
#pragma once
#include <cstdint>
#include <memory>

#include "kernels/cpu/arena.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/weight.h"

namespace foretoken {

struct PackedWeight final : PreparedWeight {
  Packing packing = Packing::f32;
  std::int64_t out = 0, in = 0;
  std::int64_t inputs = 0;  // with padding: bf16 is padded to pairs
  std::int64_t panels = 0;
  int groups = 0, group = 0;
  std::shared_ptr<void> data, scales, zeros;

  std::int64_t bytes() const override;
};

PackedWeight pack(const Weight& weight, WeightMemory& memory, ThreadPool& pool);

}  // namespace foretoken
