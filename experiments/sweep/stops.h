// Time that a measurement's process was stopped for (a suspended machine, Ctrl-Z). This module must not know steps of
// an engine.
#pragma once
#include <utility>
#include <vector>

namespace foretoken {

// Seconds of all processors that this process used.
double processor_seconds();

// A process that was stopped measures time that was not its own: steps in which it used hardly any processor, for far
// longer than steps take; and sleeps that ended long after they should have. Sleeping itself is no stop.
class Stops {
 public:
  void step(double wall, double processor) { steps_.push_back({wall, processor}); }
  // It was to sleep until an arrival, and woke up so many seconds later.
  void woke(double late);
  // Processors are busy for about the same share of every step: one in which they were for far less was not ours.
  double seconds() const;

 private:
  std::vector<std::pair<double, double>> steps_;
  double overslept_ = 0;
};

}  // namespace foretoken
