#include "experiments/report/tree_counts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

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

struct Point {
  double weight, x, y, z;  // z is about a x + b y
};

// a and b of least squares, neither negative. Where x and y are proportional, b is 0.
std::array<double, 2> least_squares(const std::vector<Point>& points) {
  double xx = 0, xy = 0, yy = 0, xz = 0, yz = 0;
  for (const Point& p : points) {
    xx += p.weight * p.x * p.x, xy += p.weight * p.x * p.y, yy += p.weight * p.y * p.y;
    xz += p.weight * p.x * p.z, yz += p.weight * p.y * p.z;
  }
  constexpr double kProportional = 1e-9;
  const double determinant = xx * yy - xy * xy;
  const double of_x = xx > 0 ? std::max(0.0, xz / xx) : 0, of_y = yy > 0 ? std::max(0.0, yz / yy) : 0;
  if (!(determinant > kProportional * xx * yy)) return {of_x, 0};
  const double a = (xz * yy - yz * xy) / determinant, b = (yz * xx - xz * xy) / determinant;
  if (a < 0) return {0, of_y};
  if (b < 0) return {of_x, 0};
  return {a, b};
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

void add_steps(const SideRecord& measured, std::vector<StepsOfRows>& all) {
  for (const StepsOfRows& s : measured.steps_of_rows) {
    if (!(s.rows > 0 && s.steps > 0 && s.sequences > 0 && s.draft_seconds >= 0 && s.seconds > 0))
      throw Error("the times of steps with " + std::to_string(s.rows) +
                  " rows are not those of a run; the line is damaged: remove it, and measure again");
    all.push_back(s);
  }
}

StepTimes fitted(const std::vector<StepsOfRows>& measured) {
  StepTimes t;
  double sequences = 0;
  std::vector<Point> target, draft;
  for (const StepsOfRows& m : measured) {
    const double steps = double(m.steps), rows = double(m.rows);
    target.push_back({steps, 1, rows, std::max(0.0, m.seconds - m.draft_seconds) / steps});
    if (m.levels > 0)
      draft.push_back({steps, double(m.levels) / steps, double(m.drafted) / steps, m.draft_seconds / steps});
    t.steps += steps;
    sequences += double(m.sequences);
    t.most_rows = std::max(t.most_rows, rows);
  }
  if (t.steps == 0) return t;
  const auto [fixed, row] = least_squares(target);
  const auto [level, drafted] = least_squares(draft);
  t.fixed = fixed, t.row = row, t.level = level, t.drafted = drafted, t.sequences = sequences / t.steps;
  for (const StepsOfRows& m : measured) {
    const double steps = double(m.steps);
    const double found =
        fixed + row * double(m.rows) + (level * double(m.levels) + drafted * double(m.drafted)) / steps;
    t.deviation += std::abs(found / (m.seconds / steps) - 1) * steps / t.steps;
  }
  return t;
}

BestTrees::BestTrees(Probabilities probabilities, int most_nodes)
    : probabilities_(std::move(probabilities)), most_nodes_(most_nodes) {
  values_.resize(probabilities_.size() + 1);
  for (int more = 0; more <= levels(); ++more)
    for (int level = 0; level + more <= levels(); ++level) {
      const std::vector<double> below =
          more == 0 ? std::vector<double>(std::size_t(most_nodes_), 0.0) : std::move(children(level, more).front());
      std::vector<double>& best = values_[std::size_t(more)].emplace_back();
      for (int n = 0; n < most_nodes_; ++n) best.push_back(1 + below[std::size_t(n)]);
    }
}

const std::vector<double>& BestTrees::value(int level, int levels) const {
  return values_[std::size_t(levels)][std::size_t(level)];
}

std::vector<std::vector<double>> BestTrees::children(int level, int levels) const {
  const std::vector<double>&p = probabilities_[std::size_t(level)], &below = value(level + 1, levels - 1);
  std::vector<std::vector<double>> best(p.size() + 1, std::vector<double>(std::size_t(most_nodes_), 0.0));
  for (std::size_t place = p.size(); place-- > 0;)
    for (std::size_t nodes = 1; nodes < std::size_t(most_nodes_); ++nodes)
      for (std::size_t own = 1; own <= nodes; ++own)
        best[place][nodes] = std::max(best[place][nodes], p[place] * below[own - 1] + best[place + 1][nodes - own]);
  return best;
}

void BestTrees::grow(const std::vector<int>& path, int nodes, int levels, std::vector<std::vector<int>>& paths) const {
  if (levels == 0) return;
  const int level = int(path.size());
  const std::vector<double>&p = probabilities_[std::size_t(level)], &below = value(level + 1, levels - 1);
  const auto best = children(level, levels);
  std::size_t left = std::size_t(nodes) - 1;
  for (std::size_t place = 0; place < p.size() && best[place][left] > 0; ++place) {
    std::size_t own = 1;  // the fewest nodes that reach the best
    while (p[place] * below[own - 1] + best[place + 1][left - own] < best[place][left]) ++own;
    std::vector<int> child = path;
    child.push_back(int(place));
    paths.push_back(child);
    grow(child, int(own), levels - 1, paths);
    left -= own;
  }
}

std::vector<std::vector<int>> BestTrees::shape(int nodes, int levels) const {
  std::vector<std::vector<int>> paths;
  grow({}, nodes, levels, paths);
  return paths;
}

}  // namespace foretoken
