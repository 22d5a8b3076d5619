#include "experiments/conformance/left_in_use.h"

#include <malloc.h>

namespace foretoken::conformance {
namespace {

std::size_t bytes_in_use() {
  const struct mallinfo2 m = mallinfo2();
  return m.uordblks + m.hblkhd;
}

}  // namespace

void expect_nothing_left(const std::function<void(int)>& live, const std::string& remedy, Finding& f) {
  constexpr int kParts = 3, kLives = 1000;
  constexpr std::size_t kMost = 4 * kLives;
  std::size_t before = 0;
  int grown = 0;  // parts that left more in use than noise; the first one may fill caches
  for (int part = 0; part < kParts; ++part) {
    for (int i = 0; i < kLives; ++i) live(part * kLives + i);
    const std::size_t now = bytes_in_use();
    grown += part > 0 && now > before + kMost;
    if (grown == kParts - 1)
      f.fail("of the last " + std::to_string(kLives) + " sequences, which were all forgotten, " +
             std::to_string(now - before) + " bytes are still in use, as of those before them; " + remedy);
    before = now;
  }
  f.cases += kParts * kLives;
}

}  // namespace foretoken::conformance
