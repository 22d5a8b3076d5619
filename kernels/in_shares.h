// Work in shares, each by a thread of its own that is started for it. This module must not know what the work is.
#pragma once
#include <cstdint>
#include <functional>

namespace foretoken {

// f(s) for s in [0, shares), each once: s = 0 on the calling thread, the others on threads. Where the system starts no
// more threads, the calling thread does their shares. Returns how many threads were started. An exception ends the
// program: f must not throw.
std::int64_t in_shares(std::int64_t shares, const std::function<void(std::int64_t)>& f);

}  // namespace foretoken
