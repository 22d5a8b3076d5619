// move: KV compaction. For every layer, plane and head, slot from[i] is copied to slot to[i], in order: to[i] <=
// from[i] and both ascend, so that a slot is read before it is overwritten. Bytes: layers * slots * kv_heads *
// head_size * 4 * size, and 16 for a head's scales.
#include <algorithm>

#include "kernels/cuda/cuda_backend.cuh"

namespace foretoken {
namespace {

constexpr int kSlots = 64, kLayers = 96;  // of one launch: the most that fits into a kernel's arguments

struct Moves {
  unsigned char* pool;
  std::int64_t page_bytes;
  const std::int32_t* table;
  int page_rows, kv_heads, row_bytes, slots;
  std::int32_t from[kSlots], to[kSlots];
  std::int64_t planes[4][kLayers];  // keys, values, and the scales of codes
};

// Rows of `row_bytes` bytes in words; a thread copies the same columns of all slots, so program order is the order of
// the copies.
template <class W> __device__ void move_rows(const Moves& m, int row_bytes) {
  const std::int64_t plane = m.planes[blockIdx.z][blockIdx.x] + std::int64_t(blockIdx.y) * m.page_rows * row_bytes;
  const auto row = [&](int slot) {
    return reinterpret_cast<W*>(m.pool + std::int64_t(m.table[slot / m.page_rows]) * m.page_bytes + plane +
                                std::int64_t(slot % m.page_rows) * row_bytes);
  };
  const int words = row_bytes / int(sizeof(W));
  for (int c = int(threadIdx.x); c < words; c += int(blockDim.x))
    for (int i = 0; i < m.slots; ++i) row(m.to[i])[c] = row(m.from[i])[c];
}

// Block (layer, head, plane).
template <class W> __global__ void move_kernel(const __grid_constant__ Moves m) {
  wait_for_previous_kernels();
  let_next_kernel_start();
  if (blockIdx.z < 2)
    move_rows<W>(m, m.row_bytes);
  else
    move_rows<float>(m, 4);
}

}  // namespace

void CudaBackend::move(std::span<const KvLayer> layers, const Tensor& table, std::span<const std::int32_t> from,
                       std::span<const std::int32_t> to) {
  enter();
  for (const KvLayer& kv : layers) written(kv);
  for (std::size_t l = 0; l < layers.size(); l += kLayers) {
    const KvLayer& kv = layers[l];
    const std::size_t count = std::min<std::size_t>(kLayers, layers.size() - l);
    Moves m = {};
    m.pool = kv.pool.data<unsigned char>(), m.page_bytes = kv.pool.row_stride(), m.table = table.data<std::int32_t>();
    m.page_rows = kv.page_rows, m.kv_heads = kv.kv_heads, m.row_bytes = int(kv.head_size * size_of(kv.dtype));
    bool wide = m.row_bytes % 8 == 0 && m.page_bytes % 8 == 0;
    for (std::size_t i = 0; i < count; ++i) {
      const KvLayer& of = layers[l + i];
      m.planes[0][i] = of.keys, m.planes[1][i] = of.values, m.planes[2][i] = of.key_scales,
      m.planes[3][i] = of.value_scales;
      wide = wide && (of.keys | of.values) % 8 == 0;
    }
    for (std::size_t s = 0; s < from.size(); s += kSlots) {
      m.slots = int(std::min<std::size_t>(kSlots, from.size() - s));
      std::copy_n(from.data() + s, m.slots, m.from), std::copy_n(to.data() + s, m.slots, m.to);
      const dim3 blocks(unsigned(count), unsigned(kv.kv_heads), has_scales(kv.dtype) ? 4 : 2);
      launch_kernel("move", stream_, {blocks, 32, 0, 1, dependent_launch()},
                    wide                  ? move_kernel<uint2>
                    : m.row_bytes % 2 > 0 ? move_kernel<std::uint8_t>
                                          : move_kernel<std::uint16_t>,
                    m);
    }
  }
}

}  // namespace foretoken
