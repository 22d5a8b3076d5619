// Host work on many rows by all cores, at load time. Threads are started for each call, which costs little compared
// with filling gigabytes; operations of a forward use a thread pool instead. This module must not know what the work
// is.
#pragma once
#include <cstdint>
#include <functional>

namespace foretoken {

// f(begin, end) for shares of [0, n), one thread a share (kernels/in_shares.h). `work`: elements that one of the n
// costs; little work stays on the calling thread. An exception ends the program: f must not throw. With `between` the
// work is done in rounds of some tenths of a second, and between() is called on the calling thread before each: what it
// throws ends the work.
void in_parallel(std::int64_t n, std::int64_t work, const std::function<void(std::int64_t, std::int64_t)>& f,
                 const std::function<void()>& between = {});

// The same without rounds, for functions that take how their work is divided (ForShares of kernels/weight.h).
void by_all_cores(std::int64_t n, std::int64_t work, const std::function<void(std::int64_t, std::int64_t)>& f);

// The threads that all calls together have started since the program began, so that tests and measurements see whether
// work was divided.
std::int64_t threads_started();

}  // namespace foretoken
