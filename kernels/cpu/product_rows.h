// Products over packed weights, for any kWidth: see Product in operations.h.
//
//   y[r][o] = sum_k x[r][k] w[o][k]        x [rows, in], w [out, in]
//
// Bytes: out * in * size(w), once, whatever the number of rows (x and y are small and stay in a cache). Operations: 2
// rows out in. Prediction for 28 MB of bf16 weights: limited by bandwidth up to about 5 rows, then by arithmetic. Where
// the machine has bf16 dot products, product_octets.h takes the place of this. One block keeps kRows x kColumns vectors
// of sums in registers; each weight that is loaded serves kRows rows.
#pragma once
#include "kernels/cpu/operations.h"
#include "kernels/cpu/vectors.h"

namespace foretoken {
namespace {

// A loader defines how weights are read: X is one item of x, which holds kInputs inputs; an item of one output takes
// kBytes bytes of weights.
struct FloatWeights {
  using X = float;
  static constexpr int kInputs = 1, kBytes = 4;
  static Floats add(const std::byte* w, X x, Floats sum) { return fused(load<Floats>(w), spread(x), sum); }
};
struct TwoFloats {
  float even, odd;
};
struct PairWeights {  // bf16 pairs: the even input is the lower half of a word
  using X = TwoFloats;
  static constexpr int kInputs = 2, kBytes = 4;
  static Floats add(const std::byte* w, X x, Floats sum) {
    const Words pair = load<Words>(w);
    sum = fused(as_floats(pair << 16), spread(x.even), sum);
    return fused(as_floats(pair & 0xffff0000u), spread(x.odd), sum);
  }
};

// How many bytes ahead weights are prefetched. Several rows do so many operations per cache line that the processor
// itself does not run ahead far enough; a panel's first block of rows prefetches for all. The distance must leave space
// in the L1 cache (48 KB, maybe shared with another thread), and a multiple of 4 KB would map to the sets that are in
// use: products of the demo target with 5 rows on one thread take 545 us with a distance of 4 KB, 478 with 8, 425 with
// 12, 407 with 16, 397 with 18, 424 with 20, 445 with 24, and 618 without.
constexpr std::int64_t kAhead = 18432;

inline void put(const Product& p, std::int64_t row, std::int64_t o, Floats sum) {
  float* y = p.y + row * p.y_stride + o;
  if (p.out - o >= kWidth) {
    save(y, p.accumulate ? load<Floats>(y) + sum : sum);
  } else {
    for (int i = 0; i < p.out - o; ++i) y[i] = p.accumulate ? y[i] + sum[i] : sum[i];
  }
}

// Adds `items` items of x to the sums of R rows, of C vectors of outputs in each of P panels.
template <class W, int R, int C, int P, bool kFetch>
inline void accumulate(const std::byte* w, std::int64_t panel_bytes, const typename W::X* x, std::int64_t stride,
                       std::int64_t items, const std::byte* fetch, Floats (&sum)[R][P][C]) {
  for (std::int64_t k = 0; k < items; ++k, w += kPanel * W::kBytes, fetch += kFetch ? kPanel * W::kBytes : 0) {
    if (kFetch)
      for (int line = 0; line < kPanel * W::kBytes; line += 64) __builtin_prefetch(fetch + line, 0, 3);
    for (int q = 0; q < P; ++q)
      for (int c = 0; c < C; ++c)
        for (int r = 0; r < R; ++r)
          sum[r][q][c] = W::add(w + q * panel_bytes + c * kWidth * W::kBytes, x[r * stride + k], sum[r][q][c]);
  }
}

template <class W, int R, int C, int P> void block(const Product& p, std::int64_t panel, std::int64_t row, int column) {
  const std::int64_t items = p.inputs / W::kInputs, panel_bytes = items * kPanel * W::kBytes;
  const std::byte* w = static_cast<const std::byte*>(p.weights) + panel * panel_bytes + column * W::kBytes;
  const std::int64_t stride = p.x_stride / W::kInputs;
  const auto* x = static_cast<const typename W::X*>(p.x) + row * stride;
  Floats sum[R][P][C] = {};
  if (R > 1 && row == 0) {
    constexpr std::int64_t kItem = kPanel * W::kBytes;
    // `within`: items during which this panel is prefetched.
    const std::int64_t within = items > kAhead / kItem ? items - kAhead / kItem : 0;
    accumulate<W, R, C, P, true>(w, panel_bytes, x, stride, within, w + kAhead, sum);
    accumulate<W, R, C, P, true>(w + within * kItem, panel_bytes, x + within, stride, items - within, w + p.next, sum);
  } else {
    accumulate<W, R, C, P, false>(w, panel_bytes, x, stride, items, nullptr, sum);
  }
  for (int r = 0; r < R; ++r) {
    for (int q = 0; q < P; ++q) {
      for (int c = 0; c < C; ++c) {
        const std::int64_t o = (panel + q) * kPanel + column + c * kWidth;
        if (o < p.out) put(p, row + r, o, sum[r][q][c]);
      }
    }
  }
}

// f<R>(row) for blocks of R rows: as few as possible, of about equal sizes, at most kMaxRows each.
template <int kMaxRows, class F> inline void for_blocks(std::int64_t rows, const F& f) {
  const std::int64_t blocks = (rows + kMaxRows - 1) / kMaxRows;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t row = rows * b / blocks;
    switch (rows * (b + 1) / blocks - row) {
      case 1:
        f.template operator()<1>(row);
        break;
      case 2:
        f.template operator()<2>(row);
        break;
      case 3:
        f.template operator()<kMaxRows >= 3 ? 3 : 1>(row);
        break;
      case 4:
        f.template operator()<kMaxRows >= 4 ? 4 : 1>(row);
        break;
      case 5:
        f.template operator()<kMaxRows >= 5 ? 5 : 1>(row);
        break;
      case 6:
        f.template operator()<kMaxRows >= 6 ? 6 : 1>(row);
        break;
      case 7:
        f.template operator()<kMaxRows >= 7 ? 7 : 1>(row);
        break;
      case 8:
        f.template operator()<kMaxRows >= 8 ? 8 : 1>(row);
        break;
      case 9:
        f.template operator()<kMaxRows >= 9 ? 9 : 1>(row);
        break;
      default:
        f.template operator()<kMaxRows>(row);
        break;
    }
  }
}

// C vectors of outputs at a time.
template <class W, int kMaxRows, int C> void blocks_of_panel(const Product& p, std::int64_t panel) {
  for_blocks<kMaxRows>(p.rows, [&]<int R>(std::int64_t row) {
    for (int column = 0; column < kPanel; column += C * kWidth) block<W, R, C, 1>(p, panel, row, column);
  });
}

// One row needs few accumulators, so it takes more outputs at a time: additions to one accumulator wait for each other.
template <class W, int kMaxRows, int C> void product(const Product& p, std::int64_t begin, std::int64_t end) {
  constexpr int kWhole = kPanel / kWidth, kPanels = kWidth == 16 ? 2 : 1;
  std::int64_t panel = begin;
  for (; p.rows == 1 && panel + kPanels <= end; panel += kPanels) block<W, 1, kWhole, kPanels>(p, panel, 0, 0);
  for (; panel < end; ++panel) blocks_of_panel<W, kMaxRows, C>(p, panel);
}

}  // namespace
}  // namespace foretoken
