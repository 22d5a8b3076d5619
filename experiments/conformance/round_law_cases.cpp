// The scenarios of the law `rounds`: which trees a verifier is judged on, and with which values of its options.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "experiments/conformance/components.h"
#include "experiments/conformance/devices.h"
#include "experiments/conformance/law_table.h"
#include "experiments/conformance/laws.h"
#include "experiments/conformance/rounds.h"
#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

using nlohmann::json;

bool has_siblings(Drawn drawn) { return drawn != Drawn::chain && drawn != Drawn::aside; }

// The enumerator follows the noise of whole vocabularies where a verifier races, so of few tokens.
int few_tokens(const Soundness& s) { return s.race ? 2 : 4; }

RoundCase warped(RoundCase round, float temperature, int top_k) {
  round.warp.temperature = temperature, round.warp.top_k = top_k;
  round.name += ", temperature " + std::to_string(temperature).substr(0, 3);
  return round;
}

// Logits are whole numbers, so that several tokens are the most probable: at temperature 0 the first of them is the
// target's own, and a cut keeps all that are equal.
RoundCase with_ties(RoundCase round) {
  round.name += ", ties";
  round.logits = [logits = round.logits](std::span<const Token> path, bool draft) {
    std::vector<float> rounded = logits(path, draft);
    for (float& x : rounded) x = std::round(x);
    return rounded;
  };
  return round;
}

// p and q are the same, and not one-hot: nothing but rounding is left of p after a rejection.
RoundCase of_the_target_itself(RoundCase round) {
  round.name += ", drafted by the target itself";
  round.logits = [logits = round.logits](std::span<const Token> path, bool) { return logits(path, false); };
  return round;
}

// Of guesses, which have few outcomes however many they are: so many that a rule with room for 16 of them shows.
constexpr int kManySiblings = 24;

void add_cases_of_kind(const Soundness& soundness, Drawn d, std::vector<RoundCase>& all) {
  for (int seed = 1; seed <= 3; ++seed) {
    all.push_back(deep_chain(d, seed));
    if (seed < 3 && has_siblings(d)) all.push_back(deep_tree(d, seed));
    if (has_siblings(d))
      for (const int siblings : {2, 3, 4}) all.push_back(one_family(d, siblings, soundness.race ? 3 : 5, seed));
    // Of guesses even the last is accepted or not by chance, and a large family has few outcomes.
    if (d == Drawn::certain)
      for (const int siblings : {9, kManySiblings}) all.push_back(one_family(d, siblings, siblings + 5, seed));
    all.push_back(random_round({d}, 6, few_tokens(soundness), seed));
  }
  all.push_back(longest_chain(d, 1));
  for (int seed = 1; seed <= 3; ++seed) all.push_back(warped(longest_chain(d, seed), 0, 0));
  if (has_siblings(d)) all.push_back(fullest_tree(d, 1));
  all.push_back(nodes_apart(d, 3));
  // Of a race the enumerator cannot follow what such drafts leave: it takes parts of the noise below 1e-14 for
  // rounding. A rule that draws races alone has no use for what a rejected sibling leaves of q.
  if (has_siblings(d) && !soundness.race)
    for (const int gap : {30, 40, 60, 90}) all.push_back(confident_family(d, gap, 1));
  for (const int vocab : {255, 257, 513}) all.push_back(wide_tree(vocab, d, vocab, 4));
  for (const int seed : {1, 2, 3, 4}) all.push_back(wide_tree(4096, d, seed, 3));
}

}  // namespace

std::vector<RoundCase> few_round_cases_of(const Soundness& soundness) {
  std::vector<RoundCase> all;
  for (int seed = 11; seed <= 16; ++seed) all.push_back(random_round(soundness.takes, 6, few_tokens(soundness), seed));
  for (const float temperature : {0.0f, 0.6f, 1.6f})
    for (int seed = 30; seed < 34; ++seed)
      all.push_back(
          warped(random_round(soundness.takes, 6, few_tokens(soundness), seed), temperature, temperature > 0 ? 3 : 0));
  for (int seed = 34; seed < 38; ++seed)
    for (const float temperature : {0.0f, 0.6f})
      all.push_back(with_ties(
          warped(random_round(soundness.takes, 6, few_tokens(soundness), seed), temperature, temperature > 0 ? 1 : 0)));
  return all;
}

std::vector<RoundCase> round_cases_of(const Soundness& soundness) {
  std::vector<RoundCase> all;
  for (const Drawn d : soundness.takes) add_cases_of_kind(soundness, d, all);
  for (int seed = 21; seed <= 23; ++seed)
    all.push_back(of_the_target_itself(random_round(soundness.takes, 6, few_tokens(soundness), seed)));
  for (RoundCase& round : few_round_cases_of(soundness)) all.push_back(std::move(round));
  return all;
}

namespace {

// What a verifier with these options promises; nothing where it refuses them, since options may depend on each other.
std::optional<Soundness> promise_of(const Subject& subject) {
  try {
    return soundness_of(subject.registries, subject.configs.verifier);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Trees too large to be enumerated are drawn and judged with Philox: an exact verifier by scores, a lossy one by a
// chi-square test of one tree.
void add_sampled(const Subject& s, const Soundness& soundness, Cases& all) {
  if (soundness.induced) {
    for (int seed = 41; seed <= 43; ++seed) {
      const RoundCase round = warped(random_round(soundness.takes, 8, 6, seed), 0.8f, 0);
      all.push_back({round.name + ", sampled", [s, round] { return sampled_round(s, round, 20000, 1e-6); }});
    }
    return;
  }
  std::vector<RoundCase> large;
  for (const Drawn d : soundness.takes) {
    if (has_siblings(d)) large.push_back(large_round({d}, 30, int(d) + 1));
    if (has_siblings(d) && d != Drawn::certain) large.push_back(long_family(d, 32, int(d) + 1));
    if (d != Drawn::certain) large.push_back(full_chain(d, 16, int(d) + 1));
  }
  for (const RoundCase& round : large)
    all.push_back({round.name + ", scored", [s, round] { return scored_round(s, round, 3000, 1e-6); }});
}

// A rule is called for many trees, in any order and on several threads.
template <class B> void add_in_order(const Subject& s, const std::string& scenario, Cases& all) {
  all.push_back({scenario, [s] {
                   ReferenceBackend in_order;
                   B other;
                   return same_tree_verdicts(s, {.vocab = 13, .trees = 24}, in_order, other);
                 }});
}

// A promise that nothing can be held to.
Finding no_stated_law(const Soundness& soundness) {
  Finding f;
  f.fail("the verifier promises \"" + soundness.promise +
         "\" and states no distribution that it could be held to; let Soundness::induced compute it");
  return f;
}

// A chain of guesses of the target's most probable token, 0, up to the last, which is `last`; the target's logits are
// `logits` everywhere, its temperature is 0.
Round greedy_chain(const std::vector<float>& logits, int length, Token last, Drawn kind) {
  const int vocab = int(logits.size());
  const Distribution raw{logits.data(), normalize(logits.data(), vocab, {.temperature = 1}), vocab};
  std::vector<double> before, one_hot(logits.size(), 0.0);
  for (Token x = 0; x < vocab; ++x) before.push_back(raw(x));
  one_hot[0] = 1;
  Round round;
  for (int n = 0; n <= length; ++n) {
    const Token next = n + 1 == length ? last : 0;
    round.parents.push_back(n - 1), round.tokens.push_back(n == length ? last : 0), round.drawn.push_back(kind);
    round.p.push_back(one_hot), round.raw.push_back(before);
    round.q.emplace_back(kind != Drawn::certain && n < length ? logits.size() : 0, 0.0);
    if (!round.q.back().empty()) round.q.back()[std::size_t(next)] = 1;
  }
  return round;
}

}  // namespace

bool states_greedy(const Candidate& c) {
  const auto& takes = c.soundness.takes;
  if (takes.empty()) return false;
  const Drawn kind = std::ranges::find(takes, Drawn::certain) != takes.end() ? Drawn::certain : takes[0];
  const std::array<float, 10> gaps{0, 0.02f, 0.1f, 0.3f, 0.6f, 1, 2, 4, 8, 1e4f};
  for (const float second : gaps)
    for (const float third : gaps)
      for (int length = 1; length <= 4; ++length)
        for (const Token last : {0, 1, 2})
          for (const auto& [text, p] : c.soundness.induced(greedy_chain({0, -second, -third}, length, last, kind)))
            if (p > 0 && std::ranges::any_of(text, [](Token x) { return x != 0; })) return false;
  return true;
}

Cases round_cases(const Candidate& c, const Environment&) {
  Cases all;
  if (!c.soundness.exact() && !c.soundness.induced) {
    const auto refuse = [soundness = c.soundness] { return no_stated_law(soundness); };
    return {{"the stated distribution", refuse, verifier_of(c)}};
  }
  const auto add = [&](const Subject& s, const std::vector<RoundCase>& rounds) {
    for (const RoundCase& round : rounds) all.push_back({round.name, [s, round] { return one_round(s, round); }});
  };
  add(c.subject, round_cases_of(c.soundness));
  add_sampled(c.subject, c.soundness, all);
  all.push_back({"trees judged in a batch and alone",
                 [s = c.subject] { return same_verdicts_alone(s, {.vocab = 13, .trees = 100}); }});
  add_in_order<Backwards>(c.subject, "the last tree judged first", all);
  add_in_order<Turns>(c.subject, "trees judged at once", all);
  for (const json& verifier : other_options(c.subject.registries.verifiers, c.subject.configs.verifier)) {
    Subject other = c.subject;
    other.configs.verifier = verifier;
    if (const auto soundness = promise_of(other)) add(other, few_round_cases_of(*soundness));
  }
  for (int seed = 1; c.soundness.first_children && seed <= 4; ++seed) {
    const RoundCase round = random_round(c.soundness.takes, 6, few_tokens(c.soundness), seed);
    all.push_back(
        {round.name + ", first children alone", [s = c.subject, round] { return first_children_alone(s, round); }});
  }
  if (!c.soundness.exact())
    all.push_back({"one draft of a target that is nearly sure", [s = c.subject] { return prefers_probable(s); }});
  for (LawCase& law_case : all) law_case.concerns = verifier_of(c);
  return all;
}

}  // namespace foretoken::conformance
