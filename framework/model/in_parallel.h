// Host work on many rows by all cores, at load time: threads come and go, which costs nothing beside filling gigabytes.
// This room must not know what the work is; operations of a forward have a pool of their own.
#pragma once
#include <cstdint>
#include <functional>

namespace foretoken {

// f(begin, end) for shares of [0, n), one thread a share. `work`: elements that one of the n costs; little work stays
// on the calling thread. An exception ends the program: f must not throw.
void in_parallel(std::int64_t n, std::int64_t work, const std::function<void(std::int64_t, std::int64_t)>& f);

}  // namespace foretoken
