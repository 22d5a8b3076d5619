#include "kernels/in_shares.h"

#include <system_error>
#include <thread>
#include <vector>

namespace foretoken {

std::int64_t in_shares(std::int64_t shares, const std::function<void(std::int64_t)>& f) {
  std::vector<std::jthread> threads;
  std::int64_t here = shares;  // from this one on shares follow in this thread
  try {
    for (std::int64_t next = 1; next < shares; ++next) threads.emplace_back(std::cref(f), next);
  } catch (const std::system_error&) {
    here = std::int64_t(threads.size()) + 1;
  }
  if (shares > 0) f(0);
  for (; here < shares; ++here) f(here);
  return std::int64_t(threads.size());
}

}  // namespace foretoken
