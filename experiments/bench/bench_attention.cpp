#include "experiments/bench/bench_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "experiments/bench/bench.h"
#include "kernels/error.h"
#include "kernels/time_of.h"

namespace foretoken {
namespace {

constexpr int kInputs = 256;                        // inputs of the product that makes the rows
constexpr double kOutOfCaches = double(512 << 20);  // bytes
constexpr int kMostLayers = 16;

Tensor random_bf16(Shape shape, float scale) {
  const Tensor t = Tensor::host(shape, DType::bf16);
  std::minstd_rand engine(7);
  for (bf16& v : t.values<bf16>()) v = bf16((float(engine() % 1024) / 512 - 1) * scale);
  return t;
}

// Pages of all layers, filled with numbers, and a table for each sequence, with pages scattered as in a long-used pool.
struct Pages {
  std::vector<KvLayer> layers;
  Tensor tables;

  Pages(Backend& b, const AttentionLoad& load, int count) {
    const int width = (load.context + kPageRows - 1) / kPageRows;
    const KvShape shape(std::vector<LayerShape>(std::size_t(count), load.layer));
    const std::int64_t page = shape.page_bytes(kPageRows), bytes = page * width * load.batch;
    const Tensor pool = b.allocate({std::int64_t(width) * load.batch, page}, DType::u8), flat = pool.reshaped({bytes});
    const Tensor halves = random_bf16({std::min<std::int64_t>(bytes, 8 << 20) / 2}, 1),
                 numbers(halves.owner(), halves.raw(), {halves.bytes()}, DType::u8);
    const Tensor there = b.upload(numbers);
    for (std::int64_t at = 0; at < bytes; at += numbers.dim(0)) {
      const std::int64_t n = std::min(numbers.dim(0), bytes - at);
      b.copy(there.rows(0, n), flat.rows(at, n));
    }
    layers = shape.in_pages(pool, kPageRows);
    tables = Tensor::host({load.batch, width}, DType::i32);
    std::iota(tables.data<std::int32_t>(), tables.data<std::int32_t>() + tables.elements(), 0);
    std::shuffle(tables.data<std::int32_t>(), tables.data<std::int32_t>() + tables.elements(), std::mt19937(1));
  }
};

Layout layout_of(Backend& b, const AttentionLoad& load, const Tensor& tables) {
  Layout l;
  l.rows = load.batch * load.rows, l.sequences = load.batch, l.table_width = int(tables.dim(1)),
  l.deepest = load.context, l.longest = load.rows;
  std::vector<std::int32_t> slots, owner, visible, begins;
  for (int s = 0; s < load.batch; ++s) {
    begins.push_back(s * load.rows);
    for (int r = 0; r < load.rows; ++r)
      slots.push_back(load.context - load.rows + r), owner.push_back(s), visible.push_back(slots.back() + 1);
  }
  begins.push_back(l.rows);
  const auto there = [&](const std::vector<std::int32_t>& v) {
    return b.upload(Tensor::host_copy(std::span<const std::int32_t>(v), DType::i32));
  };
  l.positions = l.slots = there(slots), l.owner = there(owner), l.visible = there(visible), l.begins = there(begins),
  l.tables = b.upload(tables);
  return l;
}

// Queries, keys and values as a layer's product writes them, in the device's type of activations.
Tensor rows_of(Backend& b, const ModelConfig& m, int rows) {
  const Tensor x = Tensor::host({rows, kInputs}, DType::f32), gain = Tensor::host({kInputs}, DType::f32);
  for (std::int64_t i = 0; i < x.elements(); ++i)
    x.data<float>()[i] = float(i * 2654435761u >> 8 & 0xffff) / 65536 - 0.5f;
  std::fill_n(gain.data<float>(), kInputs, 1.0f);
  const Weight w = b.prepare(
      Weight::dense(b.upload(random_bf16({std::int64_t(m.heads + 2 * m.kv_heads) * m.head_size, kInputs}, 0.1f))));
  return b.norm_linear(b.upload(x), b.upload(gain), 1e-5f, w);
}

}  // namespace

double AttentionLoad::bytes() const { return double(batch) * context * double(layer.bytes_per_row()); }

double attention_seconds(Backend& b, const ModelConfig& m, const AttentionLoad& load, int repeats) {
  constexpr int kWarmUp = 3;  // one recorded, two replayed
  static std::int64_t runs = 0;
  if (load.rows > load.context)
    throw Error("attention alone: " + std::to_string(load.rows) + " rows do not fit into a context of " +
                std::to_string(load.context) + "; give a longer context");
  const int layers = int(std::clamp(std::ceil(kOutOfCaches / load.bytes()), 1.0, double(kMostLayers)));
  const Pages pages(b, load, layers);
  const Layout layout = layout_of(b, load, pages.tables);
  const std::vector<float> turns = m.rope_frequencies();
  const Tensor rows = rows_of(b, m, layout.rows),
               frequencies = b.upload(Tensor::host_copy(std::span<const float>(turns), DType::f32));
  const std::int64_t q = std::int64_t(m.heads) * m.head_size, kv = std::int64_t(m.kv_heads) * m.head_size,
                     key[] = {-1, ++runs};
  const auto body = [&] {
    for (const KvLayer& layer : pages.layers)
      b.rope_attend(rows.columns(0, q), rows.columns(q, kv), rows.columns(q + kv, kv), layer, layout, frequencies,
                    1 / std::sqrt(float(m.head_size)));
  };
  for (int i = 0; i < kWarmUp; ++i) b.replay(key, body);
  return time_of(b, repeats, [&] { b.replay(key, body); }) / layers;
}

}  // namespace foretoken
