// The peaks of a device, which bound the time of all work on it. This header must not know how they are measured.
#pragma once

namespace foretoken {

struct DeviceSpeed {
  double bytes_a_second = 0;  // of reading, or of a large copy, whose reads and writes both count
  double operations_a_second = 0;
  bool reads = false;  // whether the bytes are of reading
};

}  // namespace foretoken
