#include "drafters/confidence.h"

#include <algorithm>

namespace foretoken {

std::vector<bool> Confidence::sure(const Distributions& of, std::span<const DistributionAfter> rows,
                                   std::span<const float> least) {
  std::vector<bool> sure(rows.size(), true);
  if (std::ranges::all_of(least, [](float l) { return l <= 0; })) return sure;
  Tensor raw = of.rows;
  if (!std::ranges::all_of(rows, [](const DistributionAfter& row) { return row.warp == Warp{1}; }))
    raw = backend_.distributions(of.logits, std::vector<Warp>(rows.size(), Warp{1})).rows;
  staging_.begin(raw.bytes() + Staging::kAlignment);
  const Tensor read = staging_.array(raw.shape(), raw.dtype()).host;
  backend_.fetch(raw, read);
  backend_.synchronize();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    // The greatest weight is exp(0), so its probability is 1 / mass. A row that is not finite is never sure.
    const auto& row = *reinterpret_cast<const DistributionRow*>(read.row<std::uint8_t>(std::int64_t(i)));
    sure[i] = least[i] <= 0 || (row.greedy >= 0 && 1 / row.mass >= double(least[i]));
  }
  return sure;
}

}  // namespace foretoken
