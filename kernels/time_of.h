// Time of work on a device. This header must not know what is timed.
#pragma once
#include <algorithm>
#include <vector>

#include "kernels/backend.h"

namespace foretoken {

// Median seconds of f, on the device's own clock; repeats > 0.
template <class F> double time_of(Backend& b, int repeats, const F& f) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const Mark from = b.mark();
    f();
    const Mark to = b.mark();
    b.synchronize();
    times.push_back(b.seconds(from, to));
  }
  std::ranges::sort(times);
  return (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
}

}  // namespace foretoken
