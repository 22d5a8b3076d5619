// The distributions that lossy verifiers state, on one small tree, against numbers computed by hand from the papers'
// definitions. That the rules emit what is stated is the law `rounds`.
#include <gtest/gtest.h>

#include "experiments/conformance/scenario.h"

namespace foretoken::test {

using namespace conformance;

namespace {

using nlohmann::json;

const std::vector<double> kAfterRoot{0.5, 0.3, 0.2}, kAfterA{0.1, 0.2, 0.7}, kAfterB{0.2, 0.2, 0.6},
    kAfterC{0.3, 0.3, 0.4};

// The root's children A and B hold the tokens 0 and 1; the child C of A holds the token 2.
Round tree() {
  Round r;
  r.parents = {-1, 0, 0, 1}, r.tokens = {0, 0, 1, 2};
  r.drawn.assign(4, Drawn::certain);
  r.p = {kAfterRoot, kAfterA, kAfterB, kAfterC};
  r.raw = r.p, r.q.resize(4);
  return r;
}

// Adds `path` and one token of p with this weight.
void add(std::vector<Token> path, const std::vector<double>& p, double weight, EmittedLaw& law) {
  for (std::size_t x = 0; x < p.size(); ++x) {
    path.push_back(Token(x));
    law[path] += weight * p[x];
    path.pop_back();
  }
}

EmittedLaw only(std::vector<Token> path, const std::vector<double>& p) {
  EmittedLaw law;
  add(std::move(path), p, 1, law);
  return law;
}

void expect_states(const json& verifier, const EmittedLaw& law, const Round& round = tree()) {
  const EmittedLaw stated = soundness_of(all_registries(), verifier).induced(round);
  EXPECT_EQ(stated.size(), law.size()) << verifier.dump();
  for (const auto& [emitted, p] : law) {
    const auto at = stated.find(emitted);
    EXPECT_NEAR(at == stated.end() ? 0 : at->second, p, 1e-12) << verifier.dump() << ", [" << text_of(emitted) << "]";
  }
}

// exp(-H) is 0.357 after the root and 0.449 after A.
TEST(Lossy, TypicalAcceptanceComparesWithTheLesserOfEpsilonAndDeltaExpOfMinusEntropy) {
  const auto verifier = [](double epsilon, double delta) {
    return json{{"name", "typical_acceptance"}, {"epsilon", epsilon}, {"delta", delta}};
  };
  expect_states(verifier(0.09, 0.3), only({0, 2}, kAfterC));
  expect_states(verifier(0.9, 1.0), only({0, 2}, kAfterC));
  expect_states(verifier(0.9, 1.5), only({}, kAfterRoot));
  expect_states(verifier(0.55, 1.5), only({}, kAfterRoot));
  expect_states(verifier(0.45, 1.5), only({0, 2}, kAfterC));
  Round without_a = tree();
  without_a.tokens[1] = -1;
  expect_states(verifier(0.29, 10), only({1}, kAfterB), without_a);
  expect_states(verifier(0.31, 10), only({}, kAfterRoot), without_a);
}

TEST(Lossy, ThresholdTestsOneNumberAgainstTheSumOfTheChildren) {
  EmittedLaw law;
  add({0, 2}, kAfterC, 0.625 * 0.875, law);          // 0.5 / 0.8, 0.7 / 0.8
  add({0}, {1.0 / 3, 2.0 / 3}, 0.625 * 0.125, law);  // p after A without the token 2
  add({1}, kAfterB, 0.375, law);                     // (0.5 + 0.3) / 0.8
  expect_states({{"name", "threshold"}, {"single", 1}, {"accumulated", 0.8}}, law);
  EmittedLaw target;  // with both at 1 the law is the target's own
  add({0, 2}, kAfterC, 0.5 * 0.7, target);
  add({0}, {1.0 / 3, 2.0 / 3}, 0.5 * 0.3, target);
  add({1}, kAfterB, 0.3, target);
  target[{2}] = 0.2;
  expect_states({{"name", "threshold"}, {"single", 1}, {"accumulated", 1}}, target);
  expect_states({{"name", "threshold"}, {"single", 0.5}, {"accumulated", 1}}, only({0, 2}, kAfterC));
}

TEST(Lossy, RelaxedTopKTakesTheKBestWithinTheMargin) {
  const auto verifier = [](int k, double margin) {
    return json{{"name", "relaxed_top_k"}, {"k", k}, {"margin", margin}};
  };
  Round without_a = tree();
  without_a.tokens[1] = -1;
  expect_states(verifier(1, 1), only({0, 2}, kAfterC));
  expect_states(verifier(1, 1), only({}, kAfterRoot), without_a);
  expect_states(verifier(2, 1), only({1}, kAfterB), without_a);
  expect_states(verifier(2, 0.19), only({}, kAfterRoot), without_a);
}

TEST(Lossy, BigLittleRollsBackWhatIsTooImprobable) {
  expect_states({{"name", "big_little"}, {"rollback", 0.7}}, only({0, 2}, kAfterC));  // -log 0.5 = 0.693
  expect_states({{"name", "big_little"}, {"rollback", 0.69}}, only({}, kAfterRoot));
}

TEST(Lossy, SyntheticAcceptsByItsProfile) {
  EmittedLaw law;
  add({}, kAfterRoot, 0.2, law);
  add({0}, kAfterA, 0.8 * 0.6, law);
  add({0, 2}, kAfterC, 0.8 * 0.4, law);
  expect_states({{"name", "synthetic"}, {"acceptance", 0.8}, {"decay", 0.5}}, law);
}

}  // namespace
}  // namespace foretoken::test
