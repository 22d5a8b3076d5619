// What operations on mixtures of experts take (Shazeer et al. 2017, arXiv 1701.06538): the experts that rows use, and a
// matrix of each expert. This module must not know layers or models.
#pragma once
#include <vector>

#include "kernels/weight.h"

namespace foretoken {

// Which experts a row uses, and their shares, by its logits. Scores are the softmax of the logits over all experts, or
// their sigmoids; those with the greatest are used. With groups, of one size each, only experts of the `used_groups`
// greatest groups are, where a group's score is that of its greatest expert, or the sum of its two greatest
// (DeepSeek-V2: arXiv 2405.04434; V3: 2412.19437). No other expert is used; Transformers gives those a score of 0,
// which differs where all scores of a used group are less. The lowest among equals; a NaN counts as infinite.
struct RoutingRules {
  int used = 1;              // experts of a row
  bool renormalized = true;  // shares are scores over the sum of the row's own; else scores
  bool sigmoid = false;
  bool sums_two = false;  // of groups
  int groups = 1, used_groups = 1;
  float scale = 1;         // by which shares are multiplied
  Tensor correction = {};  // f32 [experts], in the backend's memory: added to scores, but not to shares; absent: 0

  // The greatest logits have the greatest scores.
  bool by_logits() const { return !sigmoid && !correction && used_groups == groups; }

  RoutingRules() = default;
  RoutingRules(int used, bool renormalized = true) : used(used), renormalized(renormalized) {}
};

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
