#include "kernels/cpu/rotation.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace foretoken {

void Rotations::Table::cover(std::int32_t position) {
  assert(position >= 0);
  const auto chunk = std::size_t(position / kChunk);
  if (chunk >= chunks_.size()) chunks_.resize(chunk + 1);
  if (chunks_[chunk]) return;
  const std::size_t n = frequencies_.size();
  chunks_[chunk] = std::make_unique<float[]>(std::size_t(kChunk) * 2 * n);
  for (std::int32_t p = 0; p < kChunk; ++p) {
    float* row = chunks_[chunk].get() + std::size_t(p) * 2 * n;
    for (std::size_t i = 0; i < n; ++i) {
      const float angle = float(std::int32_t(chunk) * kChunk + p) * frequencies_[i];
      row[i] = float(std::cos(double(angle)) * factor_);
      row[n + i] = float(std::sin(double(angle)) * factor_);
    }
  }
}

const Rotations::Table& Rotations::table(std::span<const float> frequencies, float factor,
                                         std::span<const std::int32_t> positions) {
  std::lock_guard lock(lock_);
  auto found = std::find_if(tables_.begin(), tables_.end(), [&](const auto& t) {
    return t->factor_ == factor && std::ranges::equal(t->frequencies_, frequencies);
  });
  if (found == tables_.end()) found = tables_.insert(tables_.end(), std::make_unique<Table>(frequencies, factor));
  for (const std::int32_t position : positions) (*found)->cover(position);
  return **found;
}

}  // namespace foretoken
