// move: KV compaction. For every layer, plane and head, slot from[i] is copied to slot to[i], in order: to[i] <=
// from[i] and both ascend, so that a slot is read before it is overwritten. Bytes: layers * slots * kv_heads *
// head_size * 4 * size.
#include <algorithm>

#include "kernels/cuda/cuda_backend.cuh"

namespace foretoken {
namespace {

constexpr int kSlots = 64, kLayers = 128;  // of one launch: the most that fits into a kernel's arguments

struct Moves {
  unsigned char* pool;
  std::int64_t page_bytes;
  const std::int32_t* table;
  int page_rows, kv_heads, row_bytes, slots;
  std::int32_t from[kSlots], to[kSlots];
  std::int64_t keys[kLayers], values[kLayers];
};

// Block (layer, head, plane); a thread copies the same columns of all slots, so program order is the order of the
// copies.
template <class W> __global__ void move_kernel(const __grid_constant__ Moves m) {
  wait_for_previous_kernels();
  let_next_kernel_start();
  const std::int64_t plane =
      (blockIdx.z == 0 ? m.keys : m.values)[blockIdx.x] + std::int64_t(blockIdx.y) * m.page_rows * m.row_bytes;
  const auto row = [&](int slot) {
    return reinterpret_cast<W*>(m.pool + std::int64_t(m.table[slot / m.page_rows]) * m.page_bytes + plane +
                                std::int64_t(slot % m.page_rows) * m.row_bytes);
  };
  const int words = m.row_bytes / int(sizeof(W));
  for (int c = int(threadIdx.x); c < words; c += int(blockDim.x))
    for (int i = 0; i < m.slots; ++i) row(m.to[i])[c] = row(m.from[i])[c];
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
      m.keys[i] = layers[l + i].keys, m.values[i] = layers[l + i].values;
      wide = wide && (m.keys[i] | m.values[i]) % 8 == 0;
    }
    for (std::size_t s = 0; s < from.size(); s += kSlots) {
      m.slots = int(std::min<std::size_t>(kSlots, from.size() - s));
      std::copy_n(from.data() + s, m.slots, m.from), std::copy_n(to.data() + s, m.slots, m.to);
      launch_kernel("move", stream_, {dim3(unsigned(count), unsigned(kv.kv_heads), 2), 32, 0, 1, dependent_launch()},
                    wide ? move_kernel<uint2> : move_kernel<std::uint16_t>, m);
    }
  }
}

}  // namespace foretoken
