// Counts over steps: what was tested and accepted, by place. This module must not
// know what a run or a result line is.
#pragma once
#include <array>
#include <map>
#include <string>
#include <vector>

#include "framework/components/step_report.h"

namespace foretoken {

// One more at each of the first `positions` places.
inline void count(std::vector<long>& at, int positions) {
  if (int(at.size()) < positions) at.resize(std::size_t(positions), 0);
  for (int i = 0; i < positions; ++i) ++at[std::size_t(i)];
}

// By level from below the root down, and by place among siblings: how often a child stood there to be tested, and how
// often it was accepted.
struct ChildCounts {
  std::vector<std::vector<long>> offered, accepted;

  void add(const SequenceReport& r) {
    if (offered.size() < r.levels.size()) offered.resize(r.levels.size()), accepted.resize(r.levels.size());
    for (std::size_t l = 0; l < r.levels.size(); ++l) {
      const TestedLevel& level = r.levels[l];
      count(offered[l], level.children);
      accepted[l].resize(offered[l].size(), 0);
      if (level.accepted >= 0) ++accepted[l][std::size_t(level.accepted)];
    }
  }
};

// Rounds without a draft, by reason.
struct NoDraftCounts {
  std::array<long, std::size_t(NoDraft::count)> rounds{};

  void add(const SequenceReport& r) {
    if (r.no_draft != NoDraft::drafted) ++rounds[std::size_t(r.no_draft)];
  }
  // The reasons that were met.
  std::map<std::string, long> by_reason() const {
    std::map<std::string, long> all;
    for (std::size_t i = 0; i < rounds.size(); ++i)
      if (rounds[i] > 0) all[name_of(NoDraft(i))] = rounds[i];
    return all;
  }
};

}  // namespace foretoken
