// Weights of any shape from a seed, for studies of cost: no file, no download, 8e9 numbers in seconds. The model's
// outputs are meaningless, but its activations are finite and of the magnitude of a trained model's. This module must
// not know what a tensor is used for, beyond its name and shape.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "framework/model/tensor_source.h"

namespace foretoken {

// Element (r, c) of a matrix is  deviation * tile[(start(seed, name, r) + c) mod kTile].  The tile holds 2^20 numbers
// of mean 0 and variance 1 (sums of four uniforms), element i from Philox counter i under the seed; the start of a row
// comes from Philox for its name and number. So rows are windows of one long random array: independent enough for a
// study of cost, and as cheap as a copy of memory. deviation: 0.02 for the embedding and the head, 1 / sqrt(inputs) for
// the rest, which keeps activations near 1. Vectors: ones for the gains of norms, else elements of the tile times 0.02.
// Every matrix is bf16, every vector f32.
class RandomWeights : public TensorSource {
 public:
  static constexpr std::int64_t kTile = std::int64_t(1) << 20;

  // `between` is called now and then while a matrix is filled; what it throws ends that.
  explicit RandomWeights(std::uint64_t seed, std::function<void()> between = {}, DType scales = DType::bf16);

  // Any name, rank 1 or 2. Rows are filled by all cores.
  Tensor tensor(const std::string& name, const Shape& expected) const override;
  DType scales() const override { return scales_; }
  std::vector<std::string> names() const override { return {}; }
  std::string where() const override { return "random weights of seed " + std::to_string(seed_); }
  // The same elements into rows of a host matrix [out, in], bf16 or f32.
  void fill(const std::string& name, Tensor to) const;

 private:
  std::int64_t start(const std::string& name, std::int64_t row) const;
  std::span<const bf16> scaled(float deviation) const;  // the tile times a deviation

  std::uint64_t seed_;
  std::function<void()> between_;
  DType scales_;
  std::vector<float> tile_;
  mutable std::map<float, std::vector<bf16>> scaled_;  // one caller at a time
};

}  // namespace foretoken
