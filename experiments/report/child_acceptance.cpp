#include "experiments/report/child_acceptance.h"

#include <algorithm>

#include "framework/decode/draft_tree.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using Counts = std::vector<std::vector<long>>;

void expect_counts(const Counts& offered, const Counts& accepted) {
  bool fits = offered.size() == accepted.size() && offered.size() <= std::size_t(kMaxPath);
  for (std::size_t l = 0; fits && l < offered.size(); ++l) {
    fits = offered[l].size() == accepted[l].size() && offered[l].size() < std::size_t(kMaxNodes);
    for (std::size_t k = 0; fits && k < offered[l].size(); ++k) fits = accepted[l][k] <= offered[l][k];
  }
  if (!fits)
    throw Error(
        "\"offered_children\" and \"accepted_children\" of a result line are not those of a run; the line is damaged: "
        "remove it, and measure again");
}

}  // namespace

bool ChildAcceptance::add(const SideRecord& measured) {
  if (!measured.offered_children || !measured.accepted_children) return false;
  const Counts &offered = *measured.offered_children, &accepted = *measured.accepted_children;
  expect_counts(offered, accepted);
  if (counts_.size() < offered.size()) counts_.resize(offered.size());
  for (std::size_t l = 0; l < offered.size(); ++l) {
    if (counts_[l].size() < offered[l].size()) counts_[l].resize(offered[l].size());
    for (std::size_t k = 0; k < offered[l].size(); ++k)
      counts_[l][k].offered += double(offered[l][k]), counts_[l][k].accepted += double(accepted[l][k]);
  }
  return true;
}

ChildCount ChildAcceptance::at_all_levels(int place) const {
  ChildCount all;
  for (const std::vector<ChildCount>& level : counts_)
    if (std::size_t(place) < level.size())
      all.offered += level[std::size_t(place)].offered, all.accepted += level[std::size_t(place)].accepted;
  return all;
}

bool ChildAcceptance::pooled(int level, int place) const {
  const std::vector<ChildCount>& counts = counts_[std::size_t(level)];
  return std::size_t(place) >= counts.size() || counts[std::size_t(place)].offered < kEnough;
}

std::vector<std::vector<double>> ChildAcceptance::probabilities() const {
  std::vector<std::vector<double>> found;
  for (int level = 0; level < int(counts_.size()); ++level) {
    std::vector<double>& places = found.emplace_back();
    for (int place = 0; place + 1 < kMaxNodes; ++place) {
      const ChildCount all = at_all_levels(place);
      if (all.offered < kEnough) break;
      places.push_back((pooled(level, place) ? all : counts_[std::size_t(level)][std::size_t(place)]).share());
    }
  }
  return found;
}

}  // namespace foretoken
