// What operations on mixtures of experts take (Shazeer et al. 2017, arXiv 1701.06538): the experts that rows use, and a
// matrix of each expert. This module must not know layers or models.
#pragma once
#include <vector>

#include "kernels/weight.h"

namespace foretoken {

// Made by Backend::route, in the backend's memory, so that the products behind it replay. Pair r * used + j is row r
// with the j-th of its experts.
struct Routing {
  int experts = 0, used = 0;
  Tensor chosen;   // i32 [rows, used]: of each row, in the order of their shares; -1: of another rank
  Tensor shares;   // f32 [rows, used]
  Tensor pairs;    // i32 [rows * used]: all pairs by their experts, those of one ascending; then whatever
  Tensor offsets;  // i32 [experts + 1]: where the pairs of each expert begin there
  Tensor touched;  // i32 [experts]: the experts that have pairs, ascending; then -1
  std::int64_t rows() const { return chosen.dim(0); }
  std::int64_t count() const { return pairs.dim(0); }  // of pairs
};

// A matrix [out, in] of each expert, made by Backend::group_experts.
struct ExpertWeights {
  std::int64_t out = 0, in = 0;
  std::vector<Weight> matrices;                    // prepared; without their numbers where `prepared` holds them
  std::shared_ptr<const PreparedWeight> prepared;  // what products read where a device has one for all
  std::int64_t bytes() const;                      // of all
};

}  // namespace foretoken
