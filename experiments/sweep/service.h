// What one request of a measurement got, and when.
#pragma once
#include <chrono>

#include "experiments/report/result.h"

namespace foretoken {

struct Service {
  std::chrono::steady_clock::time_point submitted, first, last, finished;
  RequestRecord record;  // without the seconds that follow from these times
  long from_cache = 0;   // prompt tokens that its first reading found in the cache
  bool placed = false, started = false;
  bool left_out = false;  // it never began: its conversation had reached the context
  bool fills = false;     // it is one of those that first fill the places
};

}  // namespace foretoken
