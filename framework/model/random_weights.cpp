#include "framework/model/random_weights.h"

#include <algorithm>
#include <cmath>

#include "framework/model/in_parallel.h"
#include "kernels/error.h"
#include "kernels/philox.h"

namespace foretoken {
namespace {

constexpr float kDeviation = 0.02f;

// The sum of four uniforms less its mean, over its deviation 2^32 / sqrt(3): the sum is of integers, so every machine
// has the same bits.
float nearly_gaussian(const Philox& p) {
  const std::int64_t sum = std::int64_t(p.word[0]) + p.word[1] + p.word[2] + p.word[3] - (std::int64_t(1) << 33);
  return float(double(sum) * (std::sqrt(3.0) * 0x1p-32));
}

// FNV-1a.
std::uint64_t hash(const std::string& name) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const char c : name) h = (h ^ std::uint8_t(c)) * 0x100000001b3ull;
  return h;
}

bool ends_with_norm(const std::string& name) { return name.ends_with("norm.weight"); }

}  // namespace

RandomWeights::RandomWeights(std::uint64_t seed, std::function<void()> between, DType scales)
    : seed_(seed), between_(std::move(between)), scales_(scales), tile_(kTile) {
  in_parallel(kTile, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      tile_[std::size_t(i)] =
          nearly_gaussian(philox4x32_10(std::uint32_t(i), 0, 0, 0, std::uint32_t(seed_), std::uint32_t(seed_ >> 32)));
  });
}

std::int64_t RandomWeights::start(const std::string& name, std::int64_t row) const {
  const std::uint64_t h = hash(name);
  const Philox p = philox4x32_10(std::uint32_t(row), 1, std::uint32_t(h), std::uint32_t(h >> 32), std::uint32_t(seed_),
                                 std::uint32_t(seed_ >> 32));
  return std::int64_t(p.word[0]) % kTile;
}

std::span<const bf16> RandomWeights::scaled(float deviation) const {
  std::vector<bf16>& tile = scaled_[deviation];
  if (tile.empty()) {
    tile.resize(kTile);
    std::ranges::transform(tile_, tile.begin(), [&](float x) { return bf16(x * deviation); });
  }
  return tile;
}

void RandomWeights::fill(const std::string& name, Tensor to) const {
  const std::int64_t in = to.dim(1);
  const bool table = name.find("embed_tokens") != std::string::npos || name.find("lm_head") != std::string::npos;
  const std::span<const bf16> tile = scaled(table ? kDeviation : 1 / std::sqrt(float(in)));
  const auto rows = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::int64_t at = start(name, r);
      for (std::int64_t c = 0, n; c < in; c += n, at = 0) {
        n = std::min(in - c, kTile - at);
        const auto from = tile.subspan(std::size_t(at), std::size_t(n));
        if (to.dtype() == DType::bf16)
          std::ranges::copy(from, to.row<bf16>(r) + c);
        else
          std::ranges::transform(from, to.row<float>(r) + c, [](bf16 x) { return float(x); });
      }
    }
  };
  in_parallel(to.dim(0), in, rows, between_);
}

Tensor RandomWeights::tensor(const std::string& name, const Shape& expected) const {
  if (expected.rank() == 2) {
    const Tensor matrix = Tensor::host(expected, DType::bf16);
    fill(name, matrix);
    return matrix;
  }
  if (expected.rank() != 1) throw Error("random weights have no tensor '" + name + "' of shape " + expected.text());
  const Tensor vector = Tensor::host(expected, DType::f32);
  const std::int64_t at = start(name, 0);
  for (std::int64_t i = 0; i < vector.elements(); ++i)
    vector.data<float>()[i] = ends_with_norm(name) ? 1 : kDeviation * tile_[std::size_t((at + i) % kTile)];
  return vector;
}

}  // namespace foretoken
