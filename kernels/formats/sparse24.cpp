// 2:4: two of each four inputs of an output stay, as bf16 numbers; the others are 0. Their places take a bit for each
// input: with it 9 of bf16's 16 bits a weight are stored. Magnitude, and Wanda (Sun et al. 2023, arXiv 2306.11695).
#include <cmath>
#include <limits>

#include "kernels/formats/formats.h"
#include "kernels/formats/rounding.h"

namespace foretoken::formats {
namespace {

class Sparse24 final : public WeightFormat {
 public:
  std::string name() const override { return "sparse24"; }
  std::string meaning() const override { return "2:4, two bf16 numbers of each 4 inputs"; }
  int bits() const override { return 16; }
  std::span<const float> numbers() const override { return {}; }
  Coding coding() const override { return Coding::sparse; }
  Block block(std::int64_t, std::int64_t in) const override { return group_of(in, {4}); }
};

// Of four scores, the place of the greatest, the first among equals; `but`: a place that does not count.
int greatest_of(const double (&scores)[4], int but) {
  int best = -1;
  for (int i = 0; i < 4; ++i)
    if (i != but && (best < 0 || scores[i] > scores[best])) best = i;
  return best;
}

}  // namespace

const WeightFormat& sparse24() {
  static const Sparse24 format;
  return format;
}

void keep_two_of_four(std::span<const float> row, std::span<const float> norms, bf16* values, std::uint8_t* kept) {
  for (std::size_t k = 0; k < row.size(); k += 4) {
    double scores[4];
    for (std::size_t i = 0; i < 4; ++i) {
      const double score = std::abs(double(row[k + i])) * (norms.empty() ? 1.0 : double(norms[k + i]));
      const bool finite = std::isfinite(row[k + i]) && std::isfinite(score);
      scores[i] = finite ? score : std::numeric_limits<double>::infinity();
    }
    const int first = greatest_of(scores, -1), second = greatest_of(scores, first);
    const auto four = std::uint8_t(1 << first | 1 << second);
    kept[k / 8] = k % 8 == 0 ? four : std::uint8_t(kept[k / 8] | four << 4);
    for (std::size_t i = 0; i < 4; ++i)
      if (four >> i & 1) *values++ = bf16(row[k + i]);
  }
}

void spread_two_of_four(const bf16* values, const std::uint8_t* kept, std::span<float> row) {
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = kept[i / 8] >> i % 8 & 1 ? float(*values++) : 0.0f;
}

}  // namespace foretoken::formats
