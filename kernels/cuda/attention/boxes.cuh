// Pages of an AttentionWork as TMA boxes. This header must not know which kernel reads them.
#pragma once
#include <numeric>

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/page_boxes.cuh"

namespace foretoken {

// Describes keys and values in boxes of as many rows as divide a page and a step; returns the number of rows. 0: fewer
// than 8 do, the scales of codes cannot be copied by fours, or the driver cannot describe the pages.
inline int describe_pages(CUtensorMap& keys, CUtensorMap& values, const AttentionWork& a) {
  const int rows = std::gcd(a.page_rows, kStep);
  const bool codes = a.codes != CacheCodes::none;
  if (rows < 8 || (codes && (a.key_scales | a.value_scales) % 16 != 0)) return 0;
  PagePlane plane{a.pool + a.keys, a.pages, a.page_bytes, a.kv_heads, a.page_rows, a.head_size, rows, codes};
  if (!describe(keys, plane)) return 0;
  plane.begin += a.values - a.keys;
  return describe(values, plane) ? rows : 0;
}

}  // namespace foretoken
