// What a backend's allocate() has given out, for results. This module must not know what the memory holds.
#pragma once
#include <cstdint>

namespace foretoken {

struct MemoryUse {
  std::int64_t held = 0;  // bytes of tensors that exist
  std::int64_t most = 0;  // of these at once, since Backend::restart_peak(); a body that is replayed has its own again
  std::int64_t replays = 0;  // of memory that is kept for recorded bodies, whichever engine recorded them
};

}  // namespace foretoken
