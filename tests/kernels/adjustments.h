// Random adjustments of rows of logits, and the expected logits, computed token by token.
#pragma once
#include <limits>

#include "tests/kernels/scenario.h"

namespace foretoken::test {

class AdjustmentScenario {
 public:
  AdjustmentScenario(int vocab, int rows, unsigned seed)
      : logits(random_tensor({rows, vocab}, seed, 3)), token_counts_(std::size_t(rows)), path_(std::size_t(rows)) {
    std::mt19937 engine(seed);
    const auto below = [&](int n) { return int(engine() % unsigned(n)); };
    for (std::size_t r = 0; r < token_counts_.size(); ++r) {
      for (Token x = 0; x < vocab; ++x)
        if (below(3) == 0) {
          const int times = below(4);
          token_counts_[r].push_back({x, times, times > 0 || below(2) == 0, bias(below(12))});
        }
      for (int k = below(12); k > 0; --k) path_[r].push_back(below(vocab + 1) - 1);
      if (r % 4 == 3) token_counts_[r].clear(), path_[r].clear();
      Penalties by{.repetition = below(3) ? 0.5f + 0.25f * float(below(8)) : 1,
                   .frequency = 0.3f * float(below(3)),
                   .presence = 0.7f * float(below(3))};
      adjustments.push_back(
          {token_counts_[r].data(), path_[r].data(), int(token_counts_[r].size()), int(path_[r].size()), by});
    }
  }
  float expected(int row, Token x) const {
    const auto& counts = token_counts_[std::size_t(row)];
    const auto& path = path_[std::size_t(row)];
    float logit = logits.row<float>(row)[x];
    const auto times = std::ranges::count(path, x);
    const auto known = std::ranges::find(counts, x, &TokenCount::token);
    TokenCount s = known == counts.end() ? TokenCount{x, 0, 0, 0} : *known;
    if (known == counts.end() && times == 0) return logit;
    s.times += std::int32_t(times), s.anywhere |= times > 0;
    return adjusted(logit, s, adjustments[std::size_t(row)].penalties);
  }
  const std::vector<TokenCount>& token_counts(int row) const { return token_counts_[std::size_t(row)]; }
  const std::vector<Token>& path(int row) const { return path_[std::size_t(row)]; }

  Tensor logits;
  std::vector<Adjustment> adjustments;  // pointers into host memory

 private:
  // One of 12: none, numbers from -4 to 4, or minus infinity, which forbids the token.
  static float bias(int n) { return n < 9 ? float(n) - 4 : n < 11 ? 0.0f : -std::numeric_limits<float>::infinity(); }

  std::vector<std::vector<TokenCount>> token_counts_;
  std::vector<std::vector<Token>> path_;
};

}  // namespace foretoken::test
