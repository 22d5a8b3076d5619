// Rearranges weights for the products of this backend, once, at load time: see Packing in operations.h.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

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
  std::vector<std::int32_t> order;       // Weight::order
  const WeightFormat* format = nullptr;  // of codes; their groups and scales:
  int groups = 0, group = 0;
  bool exact = false;                             // Codes::exact
  const ActivationFormat* activations = nullptr;  // Weight::activations and input_scale
  float input_scale = 0;
  std::shared_ptr<void> data, scales, zeros, minima;

  std::int64_t bytes() const override;
  std::int64_t scale_bytes() const;  // of each of scales, zeros and minima
  // What products read: two of each four inputs, or all numbers of a dense type; else codes.
  bool sparse() const { return packing == Packing::sparse || packing == Packing::sparse_octets; }
  bool dense() const { return packing == Packing::f32 || packing == Packing::bf16 || packing == Packing::bf16_octets; }
  std::int64_t panel_bytes() const;  // of data
  Codes codes() const;
  std::int64_t padded_group() const { return (group + 3) / 4 * 4; }  // see RoundedInputs
};

// `octets`: as Operations::rounds_to_bf16 needs them.
PackedWeight pack(const Weight& weight, bool octets, WeightMemory& memory, ThreadPool& pool);
// bf16 numbers of input k for the outputs of a panel, [kPanel]; `weight` consists of codes.
void unpack_input(const PackedWeight& weight, std::int64_t panel, std::int64_t k, float* outputs);
// The numbers of one output, [in]. Throws Error for columns in another order.
void unpack_row(const PackedWeight& weight, std::int64_t o, float* row);

}  // namespace foretoken
