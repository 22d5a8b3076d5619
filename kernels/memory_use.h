// What a backend's allocate() has given out, for results. This module must not know what the memory holds.
#pragma once
#include <cstdint>

namespace foretoken {

struct MemoryUse {
  std::int64_t held = 0;     // bytes of tensors that exist
  std::int64_t most = 0;     // of these at once, since Backend::restart_peak()
  std::int64_t replays = 0;  // besides, of memory that recorded bodies write to whenever they are replayed
};

}  // namespace foretoken
