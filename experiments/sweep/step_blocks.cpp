#include "experiments/sweep/step_blocks.h"

#include <algorithm>

#include "experiments/report/statistics.h"

namespace foretoken {

BlockTimes StepBlocks::times() const {
  constexpr std::size_t kLeast = 8, kMost = 32;  // steps of a block; blocks
  const auto of_most = std::ranges::max_element(steps_, {}, [](const auto& of_rows) { return of_rows.second.size(); });
  BlockTimes found{.rows = 0, .steps = kLeast, .seconds = {}, .context = {}};
  if (of_most == steps_.end()) return found;
  const auto& [rows, steps] = *of_most;
  const std::size_t size = std::max(kLeast, (steps.size() + kMost - 1) / kMost);
  found.rows = rows;
  found.steps = long(size);
  for (std::size_t begin = 0; begin + size <= steps.size(); begin += size) {
    std::vector<double> times;
    double context = 0;
    for (std::size_t i = begin; i < begin + size; ++i)
      times.push_back(steps[i].seconds), context += steps[i].context / double(size);
    found.seconds.push_back(median(std::move(times)));
    found.context.push_back(context);
  }
  return found;
}

}  // namespace foretoken
