#include "experiments/report/step_times.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/error.h"

namespace foretoken {
namespace {

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

}  // namespace foretoken
