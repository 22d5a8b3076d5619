#include "experiments/sweep/stops.h"

#include <ctime>

#include "experiments/report/statistics.h"

namespace foretoken {

namespace {

// Seconds: steps may lack a processor for so long, and sleeps end so late, where other processes run.
constexpr double kLeast = 0.1, kLate = 0.5;

}  // namespace

double processor_seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

void Stops::woke(double late) {
  if (late > kLate) overslept_ += late;
}

double Stops::seconds() const {
  constexpr double kBusy = 0.25;
  std::vector<double> busy;
  for (const auto& [wall, processor] : steps_) busy.push_back(processor / wall);
  const double usual = median(std::move(busy));
  double sum = overslept_;
  for (const auto& [wall, processor] : steps_)
    if (const double lost = wall - processor / usual; lost > kLeast && processor < kBusy * usual * wall) sum += lost;
  return sum;
}

}  // namespace foretoken
