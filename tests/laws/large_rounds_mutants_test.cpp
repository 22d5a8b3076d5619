// Planted bugs of rules that show in the longest paths, the largest trees and long texts alone, each killed by the law
// `rounds` as `foretoken check` runs it. The same rule without the bug holds.
#include <type_traits>

#include <gtest/gtest.h>

#include "experiments/conformance/law_table.h"

namespace foretoken::test {

using namespace conformance;

namespace {

enum class RoundFault {
  none,
  from_level_21,
  from_level_51,
  of_200_nodes,
  in_long_texts,
  deep_guesses_at_0,
  siblings_of_200_nodes,
  from_token_256
};

bool shows(RoundFault fault, const Verdict& v, const Trial& t) {
  switch (fault) {
    case RoundFault::from_level_21:
      return v.length >= 20;
    case RoundFault::from_level_51:
      return v.length >= 50;
    case RoundFault::of_200_nodes:
      return t.nodes > 200;
    case RoundFault::in_long_texts:
      return t.position > 1000;
    default:
      return false;
  }
}

// Recursive rejection, which accepts too often where its fault shows.
struct Eager {
  RoundFault fault;
  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      auto r = lane.open(t.p(node), t.q(node));
      int chosen = -1;
      for (int c = t.child(node, node); c >= 0 && chosen < 0; c = t.child(node, c)) {
        const Token x = t.tokens[c];
        const double ratio = (t.certain(c) ? r(x) : r(x) / t.q(node)(x)) * (shows(fault, v, t) ? 1.3 : 1);
        const bool blind = fault == RoundFault::deep_guesses_at_0 && t.p(node).row.one_hot && v.length >= 5;
        if (lane.accept(blind ? 1 : ratio, {Role::accept, std::uint32_t(c), 0}))
          chosen = c;
        else if (fault == RoundFault::siblings_of_200_nodes && t.nodes > 200)
          continue;
        else if (t.certain(c))
          lane.reject_guess(r, x);
        else
          lane.reject_draw(r);
      }
      if (chosen < 0) {
        v.finish(lane.draw(r, {Role::residual, std::uint32_t(node), 0}));
        return v;
      }
      v.follow(node = chosen, t.tokens[chosen]);
    }
  }
};

// The target's own token by a race, which follows the first child whatever it is where its fault shows.
struct EagerRace {
  RoundFault fault;
  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      const bool blind = fault == RoundFault::deep_guesses_at_0 && t.p(node).row.one_hot && v.length >= 5;
      const int vocab = fault == RoundFault::from_token_256 ? 256 : t.vocab;
      const auto law = [p = t.p(node), vocab](Token x) { return x < vocab ? double(p(x)) : 0; };
      const Token next = lane.race(law, t.position + std::uint32_t(v.length));
      const int child = blind || shows(fault, v, t) ? t.child(node, node) : t.match(node, next);
      if (child < 0) {
        v.finish(next);
        return v;
      }
      v.follow(node = child, t.tokens[child]);
    }
  }
};

// Why the first round does not hold that does not; empty if all do.
template <class Rule = Eager> std::string broken(RoundFault fault, Drawn takes) {
  Registries registries = all_registries();
  const bool race = std::is_same_v<Rule, EagerRace>;
  registries.verifiers.add(
      "eager", {"",
                "",
                {},
                [=](const nlohmann::json&, Host&) { return std::make_unique<RuleVerifier<Rule>>(Rule{fault}); },
                [=](const nlohmann::json&, const ModelInfo&) { return Soundness{.takes = {takes}, .race = race}; }});
  const Subject subject{registries, {{{"name", "none"}}, {{"name", "fixed"}}, {{"name", "eager"}}}};
  for (const LawCase& c : round_cases(candidate(subject, false), {}))
    if (const Finding f = c.run(); !f.holds) return c.scenario + ": " + f.why;
  return "";
}

class LargeRounds : public testing::TestWithParam<Drawn> {};

TEST_P(LargeRounds, HoldWithoutAFault) { EXPECT_EQ(broken(RoundFault::none, GetParam()), ""); }

TEST_P(LargeRounds, KillWhatShowsInThemAlone) {
  for (const RoundFault fault : {RoundFault::from_level_21, RoundFault::from_level_51}) {
    const std::string why = broken(fault, GetParam());
    EXPECT_NE(why.find("64 deep"), std::string::npos) << int(fault) << ": " << why;
  }
  EXPECT_NE(broken(RoundFault::in_long_texts, GetParam()), "");
  EXPECT_NE(broken(RoundFault::deep_guesses_at_0, GetParam()).find("temperature 0"), std::string::npos);
  if (GetParam() == Drawn::chain) return;
  for (const RoundFault fault : {RoundFault::of_200_nodes, RoundFault::siblings_of_200_nodes}) {
    const std::string why = broken(fault, GetParam());
    EXPECT_NE(why.find("256 nodes"), std::string::npos) << int(fault) << ": " << why;
  }
}

TEST_P(LargeRounds, OfRacesHoldWithoutAFault) { EXPECT_EQ(broken<EagerRace>(RoundFault::none, GetParam()), ""); }

TEST_P(LargeRounds, OfRacesKillWhatShowsInThemAlone) {
  std::vector<std::pair<RoundFault, const char*>> faults{{RoundFault::from_level_21, "64 deep"},
                                                         {RoundFault::from_level_51, "64 deep"},
                                                         {RoundFault::in_long_texts, ""},
                                                         {RoundFault::deep_guesses_at_0, "temperature 0"},
                                                         {RoundFault::from_token_256, "257 tokens"}};
  if (GetParam() != Drawn::chain) faults.emplace_back(RoundFault::of_200_nodes, "256 nodes");
  for (const auto& [fault, where] : faults) {
    const std::string why = broken<EagerRace>(fault, GetParam());
    EXPECT_FALSE(why.empty()) << int(fault);
    EXPECT_NE(why.find(where), std::string::npos) << int(fault) << ": " << why;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, LargeRounds, testing::Values(Drawn::certain, Drawn::chain, Drawn::independent),
                         [](const auto& instance) { return std::string(name_of(instance.param)); });

}  // namespace
}  // namespace foretoken::test
