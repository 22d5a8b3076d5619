// Seconds of the clock that measurements are timed with.
#pragma once
#include <chrono>

namespace foretoken {

inline double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }
inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return seconds(std::chrono::steady_clock::now() - start);
}

}  // namespace foretoken
