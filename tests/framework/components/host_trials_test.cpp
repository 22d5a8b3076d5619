// A device backend with a verifier whose rule is compiled for the host only.
#include <cmath>

#include <gtest/gtest.h>

#include "framework/components/verifier.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken::test {
namespace {

// A reference backend that reports to be a device, for which no rule is compiled.
class Foreign final : public ReferenceBackend {
 public:
  Device device() const override { return {Device::Kind::cuda, 0}; }
};

struct Nothing {
  template <class Lane> Verdict operator()(Lane& lane, const Trial& trial) const {
    Verdict v;
    v.finish(lane.draw(trial.p(0), {Role::bonus, 0, 0}));
    return v;
  }
};

// The serial number of a new backend. The difference of two calls counts the objects with a Serial that were made since
// the first call; here only backends have one.
std::uint64_t made() { return make_reference_backend()->serial(); }

TEST(HostTrials, a_host_only_verifier_makes_one_backend_and_reuses_it) {
  Foreign device;
  RuleVerifier<Nothing> verifier;
  const std::vector<float> logits{0, 1, 2};
  const Distributions p = device.distributions(Tensor::host_copy<float>(logits, DType::f32).reshaped({1, 3}),
                                               std::vector{Warp{.temperature = 0}});
  const std::vector<DraftTree> trees{DraftTree::rooted(device, 1, 0)};
  const std::vector<Draws> draws(1);
  const std::vector<std::uint32_t> positions{1};
  Staging staging(device);
  const Tensor verdicts = device.allocate({1, std::int64_t(sizeof(Verdict))}, DType::u8);
  constexpr int kRounds = 5;
  const std::uint64_t before = made();
  for (int i = 0; i < kRounds; ++i) {
    const Trials trials(device, trees, p, draws, positions, staging);
    verifier.verify(device, trials, verdicts);
    EXPECT_EQ(reinterpret_cast<const Verdict*>(verdicts.raw())->next, 2);
  }
  EXPECT_EQ(made() - before, 2u) << "one besides that of made()";
}

constexpr int kFirst = 5;  // position of the first trial below; they have one after the other

// Notes all that a trial says, apart from other trials, which run on other threads: its position, its nodes, and every
// number of p, q and raw.
struct Reading {
  std::vector<std::vector<double>>* all;
  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    std::vector<double>* const seen = &all->at(std::size_t(t.position) - kFirst);
    seen->push_back(t.position);
    for (int n = 0; n < t.nodes; ++n) {
      seen->push_back(t.parents[n]), seen->push_back(t.tokens[n]);
      for (const Distribution& d : {t.p(n), t.q(n), t.raw(n)})
        for (Token x = 0; x < t.vocab; ++x) seen->push_back(d(x));
    }
    Verdict v;
    v.finish(lane.draw(t.p(0), {Role::bonus, 0, 0}));
    return v;
  }
};

// Three trees: a chain whose second node the device drew from the q of the first; a bare root; two guesses.
struct ThreeTrees {
  explicit ThreeTrees(Backend& device) : device(device) {
    trees.push_back(DraftTree::rooted(device, 1, 2));
    trees[0].guess(0, 2);
    trees[0].q.distributions = {{}, row(9)};
    *trees[0].tokens.row<Token>(trees[0].grow(1, Drawn::chain)) = 0;
    trees.push_back(DraftTree::rooted(device, 2, 0));
    trees.push_back(DraftTree::rooted(device, 0, 2));
    trees[2].guess(0, 1), trees[2].guess(0, 2);
  }
  // Of the logits n, 2n and 3n mod 5 + 1, over three tokens.
  Distributions row(int n) const { return rows(n, 1, Warp{.temperature = 0.5f}); }
  Distributions rows(int first, int count, const Warp& warp) const {
    const Tensor logits = Tensor::host({count, 3}, DType::f32);
    for (int r = 0; r < count; ++r)
      for (int x = 0; x < 3; ++x) logits.row<float>(r)[x] = float((first + r) * (x + 1) % 5 + 1);
    return device.distributions(logits, std::vector<Warp>(std::size_t(count), warp));
  }
  Backend& device;
  std::vector<DraftTree> trees;
};

TEST(HostTrials, copies_say_what_the_devices_trials_say) {
  Foreign device;
  const ThreeTrees three(device);
  const Distributions p = three.rows(0, 7, Warp{.temperature = 0.5f}), raw = three.rows(0, 7, Warp{.temperature = 1});
  // The probability of token x by the definition, of logits (r, 2r, 3r) mod 5 + 1 at a temperature.
  const auto softmax = [](int r, int x, double temperature) {
    double sum = 0;
    for (int y = 0; y < 3; ++y) sum += std::exp((r * (y + 1) % 5 + 1) / temperature);
    return std::exp((r * (x + 1) % 5 + 1) / temperature) / sum;
  };
  struct Node {
    int parent, token, p, q;  // rows of p, and of what its children were drawn from
  };
  const std::vector<std::vector<Node>> nodes = {
      {{-1, 1, 0, 0}, {0, 2, 1, 9}, {1, 0, 2, 2}}, {{-1, 2, 3, 3}}, {{-1, 0, 4, 4}, {0, 1, 5, 5}, {0, 2, 6, 6}}};
  const std::vector<std::uint32_t> positions{kFirst, kFirst + 1, kFirst + 2};
  std::vector<std::vector<double>> expected(3), seen(3);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    expected[i].push_back(positions[i]);
    for (const Node& n : nodes[i]) {
      expected[i].push_back(n.parent), expected[i].push_back(n.token);
      for (const auto& [row, temperature] : {std::pair(n.p, 0.5), std::pair(n.q, 0.5), std::pair(n.p, 1.0)})
        for (int x = 0; x < 3; ++x) expected[i].push_back(softmax(row, x, temperature));
    }
  }
  const std::vector<Draws> draws{{1, 2, 3, 0}, {1, 2, 4, 0}, {1, 2, 5, 0}};
  Staging staging(device);
  const Trials trials(device, three.trees, p, draws, positions, staging, raw);
  const Tensor verdicts = device.allocate({3, std::int64_t(sizeof(Verdict))}, DType::u8);
  RuleVerifier<Reading>(Reading{&seen}).verify(device, trials, verdicts);
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(seen[i].size(), expected[i].size());
    for (std::size_t k = 0; k < seen[i].size(); ++k) EXPECT_NEAR(seen[i][k], expected[i][k], 1e-6) << i << ", " << k;
    HostLane lane(device, 3, draws[i]);
    EXPECT_EQ(reinterpret_cast<const Verdict*>(verdicts.raw())[i].next,
              lane.draw(p[int(three.trees[0].nodes * (i > 0) + (i > 1))], {Role::bonus, 0, 0}))
        << "the draws of trial " << i;
  }
}

}  // namespace
}  // namespace foretoken::test
