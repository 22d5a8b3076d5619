#include "experiments/conformance/round_cases.h"

#include <algorithm>
#include <memory>
#include <string>

#include "experiments/conformance/law_cases.h"
#include "experiments/conformance/laws.h"

namespace foretoken::conformance {
namespace {

constexpr float kImpossible = -1e4f;

// A number in [0, ways) that depends on a path and a purpose.
int choose(int ways, int seed, std::span<const Token> path, std::uint32_t purpose) {
  std::uint64_t hash = std::uint64_t(seed) * 0x9E3779B97F4A7C15ull + purpose;
  for (const Token x : path) hash = (hash ^ std::uint64_t(x + 2)) * 0x100000001B3ull;
  return int(Draws{hash}.uniform({Role::draft, 0, purpose & 1023u}) * ways);
}

// Logits of table models: the draft's are the target's with noise.
auto tables(int vocab, int seed) {
  const TableModel::Options options{
      .vocab = vocab, .order = 0, .seed = std::uint64_t(seed), .impossible = seed % 2 ? 0.15 : 0};
  const auto target = std::make_shared<TableModel>(options);
  const auto draft = std::make_shared<TableModel>(named_table("table:other", options));
  return [target, draft](std::span<const Token> path, bool of_draft) {
    Tokens context{0};
    context.insert(context.end(), path.begin(), path.end());
    const auto logits = (of_draft ? draft : target)->logits(context);
    return std::vector<float>(logits.begin(), logits.end());
  };
}

bool may_have_siblings(Drawn drawn) { return drawn != Drawn::chain && drawn != Drawn::aside; }

std::string name_for(const std::string& what, int seed) { return what + ", seed " + std::to_string(seed); }

}  // namespace

RoundCase deep_chain(Drawn drawn, int seed) {
  constexpr int kDepth = 16;
  RoundCase c{.name = name_for("16 deep, " + std::string(foretoken::name_of(drawn)), seed), .vocab = 3};
  for (int n = 0; n < kDepth; ++n) c.nodes.push_back({n, drawn});
  std::vector<int> random{choose(3, seed, {}, 1), 3 + choose(2, seed, {}, 2), 5 + choose(2, seed, {}, 3),
                          8 + choose(4, seed, {}, 4), 12 + choose(4, seed, {}, 5)};
  c.logits = [random, seed, table = tables(3, 300 + seed)](std::span<const Token> path, bool draft) {
    if (std::ranges::find(random, int(path.size())) != random.end()) return table(path, draft);
    std::vector<float> one_hot(3, kImpossible);
    one_hot[std::size_t(choose(3, seed, path.first(0), 100 + std::uint32_t(path.size())))] = 0;
    return one_hot;
  };
  return c;
}

RoundCase wide_tree(int vocab, Drawn drawn, int seed) {
  RoundCase c{.name = name_for(std::to_string(vocab) + " tokens, " + foretoken::name_of(drawn), seed), .vocab = vocab};
  std::vector<Token> possible{0, vocab - 1};
  for (const Token edge : {256, vocab / 256 * 256, 512, vocab / 2})
    for (const Token x : {edge - 1, edge})
      if (x > 0 && x < vocab && std::ranges::find(possible, x) == possible.end()) possible.push_back(x);
  possible.resize(std::min<std::size_t>(possible.size(), 5));
  const int siblings = may_have_siblings(drawn) ? 2 : 1;
  for (int i = 0; i < siblings; ++i) c.nodes.push_back({0, drawn});
  c.nodes.push_back({1, drawn});
  c.logits = [vocab, possible, table = tables(int(possible.size()), 400 + seed)](std::span<const Token> path,
                                                                                 bool draft) {
    std::vector<float> logits(std::size_t(vocab), kImpossible);
    std::vector<Token> few;  // the path in the numbers of the possible tokens
    for (const Token x : path) few.push_back(Token(std::ranges::find(possible, x) - possible.begin()));
    const std::vector<float> of_few = table(few, draft);
    for (std::size_t i = 0; i < possible.size(); ++i) logits[std::size_t(possible[i])] = of_few[i];
    return logits;
  };
  return c;
}

RoundCase one_family(Drawn drawn, int siblings, int vocab, int seed) {
  RoundCase c{.name = name_for(std::to_string(siblings) + " siblings, " + foretoken::name_of(drawn) + ", " +
                                   std::to_string(vocab) + " tokens",
                               seed),
              .vocab = vocab,
              .logits = tables(vocab, 500 + seed),
              .seed = std::uint64_t(seed)};
  for (int i = 0; i < siblings; ++i) c.nodes.push_back({0, drawn});
  return c;
}

RoundCase random_round(const std::vector<Drawn>& kinds, int nodes, int vocab, int seed) {
  std::string names;
  for (const Drawn d : kinds) names += std::string(names.empty() ? "" : " and ") + foretoken::name_of(d);
  RoundCase c{.name = name_for("random tree of " + std::to_string(nodes) + " nodes, " + names + ", " +
                                   std::to_string(vocab) + " tokens",
                               seed),
              .vocab = vocab,
              .logits = tables(vocab, 600 + seed),
              .seed = std::uint64_t(seed)};
  const bool guesses = std::ranges::find(kinds, Drawn::certain) != kinds.end();
  std::vector<int> depth{0};
  for (int parent = 0; int(c.nodes.size()) < nodes && parent <= int(c.nodes.size()); ++parent) {
    const std::array<Token, 1> at{parent};
    const Drawn kind = kinds[std::size_t(choose(int(kinds.size()), seed, at, 1))];
    const int most = may_have_siblings(kind) ? 4 : 1;
    int count = parent == 0 ? std::max(1, most - choose(3, seed, at, 2)) : choose(most + 1, seed, at, 2);
    if (depth[std::size_t(parent)] >= 3) count = 0;
    count = std::min(count, nodes - int(c.nodes.size()));
    const bool guess_first = guesses && count > 1 && may_have_siblings(kind) && choose(3, seed, at, 3) == 0;
    for (int i = 0; i < count; ++i) {
      const bool absent = i > 0 && i + 1 == count && choose(5, seed, at, 4) == 0;
      c.nodes.push_back({parent, guess_first && i == 0 ? Drawn::certain : kind, absent});
      depth.push_back(depth[std::size_t(parent)] + 1);
    }
  }
  return c;
}

std::vector<RoundCase> round_cases_of(const Soundness& soundness) {
  std::vector<RoundCase> all;
  for (const Drawn d : soundness.takes) {
    const bool chain = !may_have_siblings(d);
    for (int seed = 1; seed <= 3; ++seed) {
      if (!soundness.race) all.push_back(deep_chain(d, seed));
      if (!chain)
        for (const int siblings : {2, 3, 4}) all.push_back(one_family(d, siblings, soundness.race ? 3 : 5, seed));
      all.push_back(random_round({d}, 6, soundness.race ? 2 : 4, seed));
    }
    if (soundness.race) continue;  // the enumerator follows the noise of whole vocabularies: few tokens alone
    for (const int vocab : {255, 257, 513, 4096}) all.push_back(wide_tree(vocab, d, vocab));
  }
  std::vector<Drawn> kinds = soundness.takes;
  for (int seed = 1; seed <= 6; ++seed) all.push_back(random_round(kinds, 6, soundness.race ? 2 : 4, 10 + seed));
  return all;
}

Cases round_cases(const Candidate& c, const Environment&) {
  Cases all;
  const auto warped = [](RoundCase round, float temperature, int top_k) {
    round.warp.temperature = temperature, round.warp.top_k = top_k;
    round.name += ", temperature " + std::to_string(temperature).substr(0, 3);
    return round;
  };
  for (const RoundCase& round : round_cases_of(c.soundness))
    all.push_back({round.name, [s = c.subject, round] { return one_round(s, round); }});
  for (const float temperature : {0.0f, 0.6f, 1.6f})
    for (int seed = 30; seed < 34; ++seed) {
      const RoundCase round = warped(random_round(c.soundness.takes, 6, c.soundness.race ? 2 : 4, seed), temperature,
                                     temperature > 0 ? 3 : 0);
      all.push_back({round.name, [s = c.subject, round] { return one_round(s, round); }});
    }
  if (!c.soundness.induced) return all;
  for (int seed = 41; seed <= 43; ++seed) {
    const RoundCase round = warped(random_round(c.soundness.takes, 8, 6, seed), 0.8f, 0);
    all.push_back({round.name + ", sampled", [s = c.subject, round] { return sampled_round(s, round, 20000, 1e-6); }});
  }
  return all;
}

}  // namespace foretoken::conformance
