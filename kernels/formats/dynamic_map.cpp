#include "kernels/formats/dynamic_map.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace foretoken::formats {
namespace {

// torch.linspace(0.1, 1, n): from both ends, with one rounding of start + step * i.
std::vector<float> boundaries(int n) {
  const float start = 0.1f, end = 1.0f, step = (end - start) / float(n - 1);
  std::vector<float> all;
  for (int i = 0; i < n; ++i)
    all.push_back(i < n / 2 ? float(double(start) + double(step) * i)
                            : float(double(end) - double(step) * (n - 1 - i)));
  return all;
}

// Seven decades; each has twice the numbers of the one below, which are the middles of equal parts of [0.1, 1].
std::array<float, 256> computed() {
  std::array<float, 256> map{};
  std::size_t at = 0;
  for (int decade = 0; decade < 7; ++decade) {
    const float unit = float(std::pow(10.0, decade - 6));
    const std::vector<float> edges = boundaries((1 << decade) + 1);
    for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
      const float middle = unit * ((edges[i] + edges[i + 1]) / 2);
      map[at++] = middle, map[at++] = -middle;
    }
  }
  map[at++] = 0, map[at++] = 1;
  std::ranges::sort(map);
  return map;
}

// Of two numbers equally near, the lower.
float nearest(float x) {
  const auto& map = dynamic_map();
  const auto above = std::ranges::lower_bound(map, x);
  if (above == map.begin()) return map.front();
  if (above == map.end()) return map.back();
  const float low = *(above - 1), high = *above;
  return x > (low + high) / 2 ? high : low;
}

}  // namespace

const std::array<float, 256>& dynamic_map() {
  static const std::array<float, 256> map = computed();
  return map;
}

float mean_of(std::span<const float> scales) {
  double sum = 0, n = 0;
  for (const float s : scales)
    if (std::isfinite(s)) sum += double(s), ++n;
  return n > 0 ? float(sum / n) : 0;
}

void round_by_dynamic_map(std::span<float> scales, float mean) {
  for (std::size_t begin = 0; begin < scales.size(); begin += kScalesInABlock) {
    const auto block = scales.subspan(begin, std::min(kScalesInABlock, scales.size() - begin));
    float greatest = 0;
    for (const float s : block)
      if (std::isfinite(s)) greatest = std::max(greatest, std::abs(s - mean));
    for (float& s : block) {
      if (!std::isfinite(s)) continue;
      const float code = greatest > 0 ? nearest((s - mean) / greatest) : 0;
      const float scaled = code * greatest;
      s = scaled + mean;
    }
  }
}

}  // namespace foretoken::formats
