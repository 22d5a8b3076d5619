// Blocks whose rows attend to one another in both directions (Layout::mutual), beside plain sequences: a layout, its
// input, and what attention over it is by plain loops.
#pragma once
#include "kernels/host_backend.h"
#include "tests/kernels/scenario.h"

namespace foretoken::test {

// Sequence i has `prefix[i]` slots and then `rows[i]` rows; with `blocks[i]` they attend to one another, else each to
// those before.
struct MutualCase {
  std::vector<int> prefix, rows;
  std::vector<bool> blocks;
  DType cache = DType::f32;
  int head_size = 64, kv_heads = 2, group = 3;
};

struct MutualScenario {
  MutualCase c;
  Cache cache;
  Layout layout;
  Tensor qkv, frequencies;  // f32 [rows, (heads + 2 kv_heads) head_size], [head_size / 2]

  explicit MutualScenario(const MutualCase& given, unsigned seed)
      : c(given),
        cache(int(given.prefix.size()), slots_of(given), 16, given.kv_heads, given.head_size, given.cache, seed) {
    std::vector<ScenarioRow> all;
    for (std::size_t s = 0; s < c.prefix.size(); ++s)
      for (int r = 0; r < c.rows[s]; ++r) {
        all.push_back(chain_row(int(s), c.prefix[s] + r));
        if (c.blocks[s]) all.back().visible = c.prefix[s] + c.rows[s];
      }
    fill(*make_reference_backend(), cache, slots_of(c), seed);
    layout = layout_of(all, cache.tables, 0), layout.mutual = true;
    qkv = random_tensor({layout.rows, std::int64_t(c.group + 2) * c.kv_heads * c.head_size}, seed + 1);
    std::vector<float> f;
    for (int i = 0; i < c.head_size / 2; ++i) f.push_back(std::pow(1000.0f, -2 * float(i) / float(c.head_size)));
    frequencies = listed(f, DType::f32);
  }
  std::int64_t q_width() const { return std::int64_t(c.group) * c.kv_heads * c.head_size; }
  std::int64_t kv_width() const { return std::int64_t(c.kv_heads) * c.head_size; }

  // softmax(q k^T * scale) v by loops over rows, heads and slots, in double.
  Tensor expected(float scale) const {
    const Tensor y = Tensor::host({layout.rows, q_width()}, DType::f32);
    for (int r = 0; r < layout.rows; ++r)
      for (int h = 0; h < c.group * c.kv_heads; ++h) attend_one(r, h, scale, y.row<float>(r) + h * c.head_size);
    return y;
  }

 private:
  static int slots_of(const MutualCase& c) {
    int most = 0;
    for (std::size_t s = 0; s < c.prefix.size(); ++s) most = std::max(most, c.prefix[s] + c.rows[s]);
    return most;
  }
  std::int32_t at(const Tensor& column, int r) const { return column.data<std::int32_t>()[r]; }
  double kept(double x) const { return c.cache == DType::bf16 ? double(float(bf16(float(x)))) : x; }
  std::vector<double> rotated(int r, std::int64_t column) const {
    const float* const x = qkv.row<float>(r) + column;
    std::vector<double> y(std::size_t(c.head_size));
    for (int i = 0, half = c.head_size / 2; i < half; ++i) {
      const double angle = double(at(layout.positions, r)) * frequencies.data<float>()[i];
      y[std::size_t(i)] = x[i] * std::cos(angle) - x[i + half] * std::sin(angle);
      y[std::size_t(i + half)] = x[i + half] * std::cos(angle) + x[i] * std::sin(angle);
    }
    return y;
  }
  // What the cache holds in a slot before the rows: keys (0) or values (1).
  double stored(int sequence, int slot, int head, int plane, int i) const {
    const KvLayer& kv = cache.layers[1];
    const std::byte* const page =
        kv.pool.row<std::byte>(cache.tables.row<std::int32_t>(sequence)[slot / kv.page_rows]) +
        (plane == 0 ? kv.keys : kv.values);
    const std::int64_t n = (std::int64_t(head) * kv.page_rows + slot % kv.page_rows) * c.head_size + i;
    return c.cache == DType::bf16 ? double(float(reinterpret_cast<const bf16*>(page)[n]))
                                  : double(reinterpret_cast<const float*>(page)[n]);
  }
  void attend_one(int r, int h, float scale, float* y) const {
    const int sequence = at(layout.owner, r), prefix = c.prefix[std::size_t(sequence)], kv_head = h / c.group,
              first = at(layout.begins, sequence), seen = at(layout.visible, r);
    const std::vector<double> q = rotated(r, std::int64_t(h) * c.head_size);
    std::vector<double> scores, sum(std::size_t(c.head_size), 0);
    for (int slot = 0; slot < seen; ++slot) {
      const std::vector<double> k =
          slot < prefix ? std::vector<double>()
                        : rotated(first + slot - prefix, q_width() + std::int64_t(kv_head) * c.head_size);
      double score = 0;
      for (int i = 0; i < c.head_size; ++i)
        score += q[std::size_t(i)] * (k.empty() ? stored(sequence, slot, kv_head, 0, i) : kept(k[std::size_t(i)]));
      scores.push_back(score * scale);
    }
    const double peak = *std::max_element(scores.begin(), scores.end());
    double mass = 0;
    for (int slot = 0; slot < seen; ++slot) {
      const double weight = std::exp(scores[std::size_t(slot)] - peak);
      mass += weight;
      for (int i = 0; i < c.head_size; ++i)
        sum[std::size_t(i)] +=
            weight *
            (slot < prefix
                 ? stored(sequence, slot, kv_head, 1, i)
                 : kept(qkv.row<float>(first + slot - prefix)[q_width() + kv_width() + kv_head * c.head_size + i]));
    }
    for (int i = 0; i < c.head_size; ++i) y[i] = float(sum[std::size_t(i)] / mass);
  }
};

// Blocks alone, of one row, across pages and chunks, and beside sequences that are causal.
inline std::vector<MutualCase> mutual_cases(DType cache) {
  return {{{0}, {4}, {true}, cache},
          {{37}, {16}, {true}, cache},
          {{5, 130, 16}, {1, 16, 7}, {true, true, true}, cache},
          {{120, 40, 3}, {16, 5, 1}, {true, false, false}, cache},
          {{260, 250}, {40, 33}, {true, true}, cache, 128, 1, 4}};
}

}  // namespace foretoken::test
