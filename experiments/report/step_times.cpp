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

void read_timed_steps(const nlohmann::json& measure, std::vector<TimedSteps>& all) {
  if (!measure.contains("steps_of_rows")) return;
  for (const nlohmann::json& s : measure["steps_of_rows"]) {
    const auto of = [&](const char* key) { return s.at(key).get<double>(); };
    all.push_back(
        {of("rows"), of("steps"), of("sequences"), of("levels"), of("drafted"), of("draft_seconds"), of("seconds")});
    const TimedSteps& t = all.back();
    if (!(t.rows > 0 && t.steps > 0 && t.sequences > 0 && t.levels >= 0 && t.drafted >= 0 && t.draft_seconds >= 0 &&
          t.seconds > 0))
      throw Error("the times of steps with " + std::to_string(t.rows) +
                  " rows are not those of a run; the line is damaged: remove it, and measure again");
  }
}

StepTimes fitted(const std::vector<TimedSteps>& measured) {
  StepTimes t;
  double sequences = 0;
  std::vector<Point> target, draft;
  for (const TimedSteps& m : measured) {
    target.push_back({m.steps, 1, m.rows, std::max(0.0, m.seconds - m.draft_seconds) / m.steps});
    if (m.levels > 0) draft.push_back({m.steps, m.levels / m.steps, m.drafted / m.steps, m.draft_seconds / m.steps});
    t.steps += m.steps, sequences += m.sequences, t.most_rows = std::max(t.most_rows, m.rows);
  }
  if (t.steps == 0) return t;
  const auto [fixed, row] = least_squares(target);
  const auto [level, drafted] = least_squares(draft);
  t.fixed = fixed, t.row = row, t.level = level, t.drafted = drafted, t.sequences = sequences / t.steps;
  for (const TimedSteps& m : measured) {
    const double found = fixed + row * m.rows + (level * m.levels + drafted * m.drafted) / m.steps;
    t.deviation += std::abs(found / (m.seconds / m.steps) - 1) * m.steps / t.steps;
  }
  return t;
}

}  // namespace foretoken
