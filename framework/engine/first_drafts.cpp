#include "framework/engine/first_drafts.h"

#include <cmath>

namespace foretoken {

void FirstDrafts::add(const Readback& read) {
  if (!read.chances || measured()) return;
  for (std::int64_t i = 0; i < read.chances.dim(0); ++i) {
    const double chance = double(*read.chances.row<float>(i));
    const Verdict& v = *reinterpret_cast<const Verdict*>(read.verdicts.row<std::uint8_t>(i));
    if (!(chance >= 0) || v.next < 0) continue;
    ++tests_, expected_ += chance, accepted_ += v.length > 0;
  }
}

// A draft whose probabilities are true is accepted at least that often: sum_x q(x)^2 where the target is certain of
// each token, and more where it is not. With fewer than 20 expected ones half of them may be chance.
std::string FirstDrafts::doubt(const std::string& drafter) const {
  if (!measured() || expected_ < 20 || accepted_ >= expected_ / 2) return {};
  return drafter + " had " + std::to_string(accepted_) + " of its first " + std::to_string(tests_) +
         " drafts accepted, where its own probabilities expect " + std::to_string(std::lround(expected_)) +
         ": of a head, see whether the states it reads are off by a layer or those of another target, whether a norm "
         "on what it is fed, or fed back, is missing, and whether its slots and the base of its rotary positions are "
         "those it was trained with";
}

}  // namespace foretoken
