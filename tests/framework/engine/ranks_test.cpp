// What components read of the target's logits: the ranks in outcomes and the raw distributions of trials.
#include <algorithm>
#include <functional>
#include <numeric>

#include "experiments/conformance/devices.h"
#include "tests/framework/engine/offers_scenario.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

// The tokens in descending order of their logits after `path`, the target's own or, where a request has penalties, the
// adjusted ones. Equal logits: the smaller token first; -1 in place of impossible tokens, which come last.
std::vector<Token> in_order(const Model& target, const std::vector<Token>& path, const Sequence& s) {
  const auto row = dynamic_cast<const conformance::TableModel&>(target).logits(path);
  std::vector<float> logits(row.begin(), row.end());
  for (const TokenBias& b : s.sampling.logit_bias) logits[std::size_t(b.token)] += b.bias;
  for (Token x = 0; x < Token(logits.size()); ++x) {
    const auto times = std::count(path.begin() + s.prompt_length, path.end(), x);
    logits[std::size_t(x)] -= s.sampling.frequency_penalty * float(times);
  }
  std::vector<Token> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](Token x) { return logits[std::size_t(x)]; });
  for (Token& x : order)
    if (logits[std::size_t(x)] < -1000) x = -1;
  return order;
}

// Of every node of the tree, in the step's one readback.
struct Ranks : Offers {
  Ranks() {
    const auto make = [this](Host& h) {
      return std::make_unique<Needing>(h.backend(), [this](const Outcome& o) { compare(o); });
    };
    draft_with(make, {.proposes = {Drawn::certain}, .ranks = 3});
  }
  void compare(const Outcome& o) {
    ASSERT_EQ(o.ranks.shape(), (Shape{o.tree->nodes, 3}));
    if (!o.sequence->running()) return;  // its last tokens may have been cut off
    Tokens path = o.sequence->tokens;    // with the tokens of the round
    path.resize(path.size() - std::size_t(o.verdict->length + 1));
    for (int n = 0; n < o.tree->nodes; ++n, ++nodes) {
      Tokens here = path;
      if (n > 0) here.push_back(*o.tree->known.row<Token>(n));
      const std::vector<Token> order = in_order(*models.target, here, *o.sequence),
                               plain = in_order(*models.target, here, Sequence());
      for (int j = 0; j < 3; ++j)
        EXPECT_EQ(o.ranks.row<Token>(n)[j], order[std::size_t(j)]) << "node " << n << " rank " << j;
      adjusted += order != plain;
    }
  }
  int nodes = 0, adjusted = 0;  // compared; of these, where penalties change the order
};

TEST_F(Ranks, TheTargetsMostProbableTokensComeWithTheOutcome) {
  text(0), text(1);  // ranks are those before warping, also where the warped distribution has one token only
  EXPECT_GT(nodes, 20);
}

// The host reads what the device ranked only after the step's readback.
TEST_F(Ranks, ComeFromADeviceWithSeparateMemory) {
  backend = std::make_unique<conformance::SimulatedDevice>();
  text(0), text(1);
  EXPECT_GT(nodes, 20);
}

TEST_F(Ranks, HaveThePenalties) {
  penalties.logit_bias = {{4, 3}}, penalties.frequency_penalty = 1.5f;
  text(0), text(1);
  EXPECT_GT(nodes, 20);
  EXPECT_GT(adjusted, 5);
}

// Emits the token of rank `rank` in the raw distribution, whatever the warp; the most probable one if probabilities do
// not add up to 1.
struct Ranked {
  int rank = 0;
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane&, const Trial& t) const {
    const Distribution raw = t.raw(0);
    Verdict v;
    double total = 0;
    for (Token x = 0; x < t.vocab; ++x) total += raw(x);
    const int wanted = total > 0.999 && total < 1.001 ? rank : 0;
    for (Token x = 0; x < t.vocab; ++x) {
      int better = 0;
      for (Token y = 0; y < t.vocab; ++y) better += raw(y) > raw(x);
      if (better == wanted) v.finish(x);
    }
    return v;
  }
};

struct RawOffers : Offers {
  RawOffers() {
    configs = {{{"name", "none"}}, {{"name", "fixed"}, {"length", 0}}, {{"name", "mine"}}};
    judge(true);
  }
  void judge(bool raw) {
    registries.verifiers.replace(
        "mine",
        entry_that<Verifier>(states(Soundness{.takes = {Drawn::certain}, .raw = raw}),
                             [raw](const json&, Host&) { return std::make_unique<RuleVerifier<Ranked>>(Ranked{2}); }));
  }
  // The output of the rule, from the target's logits and the penalties.
  Tokens expected() const {
    Sequence s;
    s.prompt_length = 3, s.sampling = penalties;
    Tokens tokens{1, 2, 3};
    while (tokens.size() < 15) tokens.push_back(in_order(*models.target, tokens, s)[2]);
    return tokens;
  }
};

TEST_F(RawOffers, ARuleReadsTheRawDistributionWhateverTheWarp) {
  EXPECT_EQ(text(0), expected());
  EXPECT_EQ(text(0.7f), expected());
  judge(false);
  const Sequence failed = finished(1);
  EXPECT_EQ(failed.finish, Finish::failed);
  EXPECT_TRUE(says(failed.failure, "Trial::raw", "set Soundness::raw")) << failed.failure;
}

TEST_F(RawOffers, DistributionsHaveThePenalties) {
  const Tokens without = expected();
  penalties.logit_bias = {{4, 3}}, penalties.frequency_penalty = 1.5f;
  EXPECT_NE(expected(), without);
  EXPECT_EQ(text(0), expected());
  EXPECT_EQ(text(0.7f), expected());
}

// The same, and throws for a sequence of two tokens.
struct RefusesTwo {
  Ranked rule;
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    if (t.position == 2) throw Error("refused");
    return rule(lane, t);
  }
};

// The rule is then called with each trial alone.
TEST_F(RawOffers, AreOfTheOwnRowsBesideASequenceThatFails) {
  registries.verifiers.replace(
      "mine", entry_that<Verifier>(states(Soundness{.takes = {Drawn::certain}, .raw = true}), [](const json&, Host&) {
        return std::make_unique<RuleVerifier<RefusesTwo>>(RefusesTwo{{2}});
      }));
  const auto e = engine();
  e->submit(request({4, 1}, 12)), e->submit(request({1, 2, 3}, 12));
  std::vector<Sequence> ended;
  while (!e->idle())
    for (Sequence& s : e->step().finished) ended.push_back(std::move(s));
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[0].finish, Finish::failed);
  EXPECT_EQ(ended[1].tokens, expected());
}

TEST_F(Ranks, AreOfTheOwnRowsBesideASequenceThatFails) {
  registries.verifiers.replace(
      "mine", entry_that<Verifier>(states(Soundness{.takes = {Drawn::certain}, .raw = true}), [](const json&, Host&) {
        return std::make_unique<RuleVerifier<RefusesTwo>>(RefusesTwo{{0}});
      }));
  configs.verifier = {{"name", "mine"}};
  const auto e = engine();
  e->submit(request({4, 1}, 12)), e->submit(request({1, 2, 3}, 12));
  int failed = 0;
  while (!e->idle())
    for (const Sequence& s : e->step().finished) failed += s.finish == Finish::failed;
  EXPECT_EQ(failed, 1);
  EXPECT_GT(nodes, 10);
}

}  // namespace
}  // namespace foretoken::test
