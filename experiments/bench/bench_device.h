// Time of work on a device, and the device's peaks: bytes a second of a large copy (of a CPU: of reading), operations a
// second of a large product (of a CPU: of its multiply-add instructions). This module must not know models or
// scenarios.
#pragma once
#include <vector>

#include "experiments/report/statistics.h"
#include "kernels/backend.h"

namespace foretoken {

// Median seconds of f, on the device's own clock.
template <class F> double time_of(Backend& b, int repeats, const F& f) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const Mark from = b.mark();
    f();
    const Mark to = b.mark();
    b.synchronize();
    times.push_back(b.seconds(from, to));
  }
  return median(times);
}

struct DeviceSpeed {
  double bytes_a_second = 0, operations_a_second = 0;  // of copies: reads and writes both count
};

DeviceSpeed measure_device(Backend& b);

}  // namespace foretoken
