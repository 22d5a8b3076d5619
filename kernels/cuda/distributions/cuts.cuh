// The threshold of top-k, top-p and min-p for a row: that of normalize() in kernels/distribution.cpp, bit for bit.
// Thresholds are found among the keys of floats, integers in the same order: by radix selection, 11 bits a pass; for
// top-p the selection adds rounded masses and gives a candidate only; sums in the tree of distribution.h, usually two,
// determine the threshold. Bytes: 4 * vocab a pass, from the nearest cache: top-k 1 to 3 passes, top-p 4 to 6, min-p 1.
#pragma once
#include <cub/block/block_scan.cuh>

#include "kernels/cuda/distributions/values.cuh"

namespace foretoken {

// Floats in their order as integers, and back; -0 and 0 are one.
__device__ inline std::uint32_t key_of(float f) {
  const std::uint32_t bits = __float_as_uint(add(f, 0.0f));
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline float of_key(std::uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

struct CutMemory {
  static constexpr int kBinBits = 11, kBins = 1 << kBinBits, kBinsEach = kBins / kCrewThreads;
  using Scan = cub::BlockScan<std::uint32_t, kCrewThreads>;
  std::uint32_t bins[2][kBins];
  typename Scan::TempStorage scan;
  int bin;
  std::uint32_t above;
};

class Cuts {
 public:
  // `row` must have its peak and temperature set. `lowest` is the least key of the row.
  __device__ Cuts(Crew& crew, CutMemory& memory, const float* logits, int vocab, const DistributionRow& row,
                  std::uint32_t lowest)
      : crew_(&crew),
        memory_(&memory),
        logits_(logits),
        vocab_(vocab),
        weights_(logits, row),
        least_(lowest),
        peak_(key_of(row.peak)) {}

  __device__ float threshold(const Warp& warp) {
    if (warp.top_k > 0 && warp.top_k < vocab_) least_ = crossing([](float) { return 1u; }, std::uint32_t(warp.top_k));
    if (warp.top_p < 1) least_ = likely(warp.top_p);
    if (warp.min_p > 0) least_ = at_least(warp.min_p);
    return of_key(least_);
  }

 private:
  // The greatest key in [least_, peak_] such that the units of all logits from it on reach `target`; least_ where they
  // never do.
  template <class Units> __device__ std::uint32_t crossing(Units units, std::uint32_t target) {
    std::uint32_t low = least_, high = peak_, above = 0;
    for (int buffer = 0; low < high; buffer ^= 1) {
      const int shift = max(0, 32 - __clz(int(high - low)) - CutMemory::kBinBits);
      std::uint32_t* const bins = memory_->bins[buffer];
      for (int b = int(threadIdx.x); b < CutMemory::kBins; b += kCrewThreads) bins[b] = 0;
      __syncthreads();
      crew_->for_share(logits_, [&](int, float l) {
        const std::uint32_t from_low = key_of(l) - low;
        if (from_low <= high - low) atomicAdd(&bins[from_low >> shift], units(l));
      });
      crew_->sync();
      find_bin(bins, above, target);
      above = memory_->above;
      low += std::uint32_t(memory_->bin) << shift;
      high = min(high, low + ((1u << shift) - 1));
    }
    crew_->sync();  // all blocks have read these bins
    return low;
  }

  // Finds the bin of the target, and the units above it: memory_->bin, memory_->above.
  __device__ void find_bin(std::uint32_t* bins, std::uint32_t above, std::uint32_t target) {
    constexpr int kEach = CutMemory::kBinsEach;
    const int top = CutMemory::kBins - 1 - int(threadIdx.x) * kEach;
    std::uint32_t units[kEach] = {}, mine = 0, before, all;
    for (int r = 0; r < crew_->size(); ++r)
      for (int i = 0; i < kEach; ++i) units[i] += *crew_->at(&bins[top - i], r);
    for (int i = 0; i < kEach; ++i) mine += units[i];
    CutMemory::Scan(memory_->scan).ExclusiveSum(mine, before, all);
    before += above;
    if (int(threadIdx.x) == kCrewThreads - 1 && before + mine < target)
      memory_->bin = 0, memory_->above = before + mine - units[kEach - 1];
    for (int i = 0; i < kEach; before += units[i++])
      if (before < target && before + units[i] >= target) memory_->bin = top - i, memory_->above = before;
    __syncthreads();
  }

  // The least logit such that the mass of greater ones is below top_p. That mass, S(key), falls as the key rises: `yes`
  // is a logit that is kept, and no logit up to `no` is.
  __device__ std::uint32_t likely(float top_p) {
    const double all = crew_->sum([&](Token x) { return key_of(logits_[x]) >= least_ ? weights_(x) : 0.0f; });
    const double limit = mul(double(top_p), all);
    const float scale = float(0x1p31 / all);
    const double target = limit / all * 0x1p31;
    std::uint32_t key = crossing([&](float l) { return __float2uint_rn(mul(weights_.of(l), scale)); },
                                 target > 1 ? std::uint32_t(fmin(target, 0x1p31)) : 1);
    std::uint32_t yes = peak_, no = least_ - 1;
    for (int tries = 0; yes > no + 1; ++tries) {
      const Around near = around(key);
      if (near.mass < limit) {
        yes = near.down;
        key = yes - 1;
      } else {
        no = key;
        if (near.up >= yes) break;
        key = near.up;
      }
      if (tries >= 8) key = no + (yes - no) / 2;
    }
    return yes;
  }

  struct Around {
    double mass;             // of the logits above a key
    std::uint32_t down, up;  // keys: the greatest logit up to `key` and the least above it
  };
  __device__ Around around(std::uint32_t key) {
    std::uint32_t down = 0, up = ~0u;
    const double mass = crew_->sum([&](Token x) {
      const std::uint32_t k = key_of(logits_[x]);
      if (k > key)
        up = min(up, k);
      else
        down = max(down, k);
      return k > key ? weights_(x) : 0.0f;
    });
    struct Pair {
      std::uint32_t down, up;
    };
    const Pair both = crew_->agree(
        Pair{down, up}, [](const Pair& a, const Pair& b) { return Pair{max(a.down, b.down), min(a.up, b.up)}; });
    return {mass, both.down, both.up};
  }

  // The least logit that is kept so far and whose weight is at least min_p.
  __device__ std::uint32_t at_least(float min_p) {
    std::uint32_t least = peak_;
    crew_->for_share(logits_, [&](int, float l) {
      const std::uint32_t key = key_of(l);
      if (key >= least_ && key < least && weights_.of(l) >= min_p) least = key;
    });
    return crew_->agree(least, [](std::uint32_t a, std::uint32_t b) { return min(a, b); });
  }

  Crew* crew_;
  CutMemory* memory_;
  const float* logits_;
  int vocab_;
  Weights<false> weights_;  // of all tokens
  std::uint32_t least_, peak_;
};

}  // namespace foretoken
