// One round of one sequence on the host, for rules of verifiers: a target and a draft whose distributions are tables by
// path, a tree that a test draws, and the joint distribution of the emitted tokens, over every outcome of every draw.
#pragma once
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "experiments/conformance/enumerator.h"
#include "framework/components/verifier.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/scenario.h"

namespace foretoken::test {

using Path = std::vector<Token>;

// A distribution for each path, named by a seed: random logits, of which some tokens have probability 0: `impossible`
// ones anywhere, or all below the token `first`.
class PathTable {
 public:
  PathTable(int vocab, unsigned seed, float spread = 1.5f, int impossible = 0, Token first = 0)
      : vocab_(vocab), seed_(seed), spread_(spread), impossible_(impossible), first_(first) {}

  Tensor logits(const Path& path) const {
    std::uint64_t key = seed_;
    for (const Token t : path) key = key * 1000003 + std::uint64_t(t) + 7;
    const Tensor l = random_tensor({1, vocab_}, unsigned(key ^ key >> 32), spread_);
    for (int i = 0; i < impossible_; ++i) l.data<float>()[(int(key % 97) + i) % vocab_] = -1e4f;
    std::fill_n(l.data<float>(), first_, -1e4f);
    return l;
  }
  std::vector<double> probabilities(const Path& path) const {
    const Tensor l = logits(path);
    const Distribution d{l.data<float>(), normalize(l.data<float>(), vocab_, {1}), vocab_};
    std::vector<double> p;
    for (Token x = 0; x < vocab_; ++x) p.push_back(d(x));
    return p;
  }
  int vocab() const { return vocab_; }

 private:
  int vocab_;
  unsigned seed_;
  float spread_;
  int impossible_;
  Token first_;
};

using PathDistribution = std::map<Path, double>;

// The joint distribution of the next `length` tokens after the empty path.
inline PathDistribution path_distribution(const PathTable& target, int length) {
  PathDistribution distribution{{{}, 1.0}};
  for (int i = 0; i < length; ++i) {
    PathDistribution longer;
    for (const auto& [path, weight] : distribution) {
      const auto p = target.probabilities(path);
      for (Token x = 0; x < target.vocab(); ++x) {
        Path next = path;
        next.push_back(x);
        if (p[std::size_t(x)] > 0) longer[next] = weight * p[std::size_t(x)];
      }
    }
    distribution = std::move(longer);
  }
  return distribution;
}

// Draws a tree below the root: `paths[n]` is the path of node n.
using Draft = std::function<DraftTree(Backend&, const Draws&)>;

inline std::vector<Path> paths_of(const DraftTree& tree) {
  std::vector<Path> paths(1);
  for (int n = 1; n < tree.nodes; ++n) {
    paths.push_back(paths[std::size_t(*tree.parents.row<std::int32_t>(n))]);
    paths.back().push_back(*tree.known.row<Token>(n));
  }
  return paths;
}

// The tokens that one round emits for a tree, on a host backend.
inline Verdict verdict_of(Backend& backend, Verifier& verifier, const PathTable& target, const DraftTree& tree,
                          const Draws& draws) {
  const auto paths = paths_of(tree);
  const Tensor logits = Tensor::host({tree.nodes, target.vocab()}, DType::f32);
  for (int n = 0; n < tree.nodes; ++n) backend.copy(target.logits(paths[std::size_t(n)]), logits.rows(n, 1));
  const Distributions p = backend.distributions(logits, std::vector<Warp>(std::size_t(tree.nodes), Warp{1}));
  Staging staging(backend);
  const std::uint32_t position = draws.root;
  const Trials trials(backend, {&tree, 1}, p, {&draws, 1}, {&position, 1}, staging);
  const Tensor verdicts = Tensor::host({1, std::int64_t(sizeof(Verdict))}, DType::u8);
  verifier.verify(backend, trials, verdicts);
  return *reinterpret_cast<const Verdict*>(verdicts.raw());
}

// The joint distribution of the first `length` tokens of a round; where the round emits fewer, the target draws the
// rest.
inline PathDistribution emitted_distribution(Verifier& verifier, const PathTable& target, const Draft& draft,
                                             int length) {
  ReferenceBackend backend;
  conformance::Enumerator chance;
  backend.set_chance(&chance);
  const Draws draws{1, 2, 9, 0};
  PathDistribution distribution;
  do {
    const Verdict v = verdict_of(backend, verifier, target, draft(backend, draws), draws);
    PathDistribution whole{{Path(v.tokens, v.tokens + std::min(length, v.length + 1)), chance.weight()}};
    for (bool open = true; open;) {
      open = false;
      PathDistribution longer;
      for (const auto& [path, weight] : whole) {
        if (int(path.size()) == length) {
          longer[path] += weight;
          continue;
        }
        open = true;
        const auto p = target.probabilities(path);
        for (Token x = 0; x < target.vocab(); ++x) {
          Path next = path;
          next.push_back(x);
          longer[next] += weight * p[std::size_t(x)];
        }
      }
      whole = std::move(longer);
    }
    for (const auto& [path, weight] : whole) distribution[path] += weight;
  } while (chance.next());
  return distribution;
}

inline double total_variation(const PathDistribution& a, const PathDistribution& b) {
  PathDistribution all = a;
  for (const auto& [path, weight] : b) all[path] -= weight;
  double sum = 0;
  for (const auto& [path, difference] : all) sum += std::abs(difference) / 2;
  return sum;
}

}  // namespace foretoken::test
