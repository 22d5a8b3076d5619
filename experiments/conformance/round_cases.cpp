#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>

#include "experiments/conformance/rounds.h"
#include "experiments/conformance/table_model.h"

namespace foretoken::conformance {
namespace {

constexpr float kImpossible = -1e4f;
constexpr int kDeep = 16;  // levels of a deep tree

// A number in [0, ways) that depends on a path and a purpose.
int choose(int ways, int seed, std::span<const Token> path, std::uint32_t purpose) {
  std::uint64_t hash = std::uint64_t(seed) * 0x9E3779B97F4A7C15ull + purpose;
  for (const Token x : path) hash = (hash ^ std::uint64_t(x + 2)) * 0x100000001B3ull;
  return int(Draws{hash}.uniform({Role::draft, 0, purpose & 1023u}) * ways);
}

// Logits of table models: the draft's are the target's with noise. `order` as in TableModel.
auto tables(int vocab, int seed, int order = 0) {
  const TableModel::Options options{
      .vocab = vocab, .order = order, .seed = std::uint64_t(seed), .impossible = seed % 2 ? 0.15 : 0};
  const auto target = std::make_shared<TableModel>(options);
  const auto draft = std::make_shared<TableModel>(named_table("table:other", options));
  return [target, draft](std::span<const Token> path, bool of_draft) {
    Tokens context{0};
    context.insert(context.end(), path.begin(), path.end());
    const auto logits = (of_draft ? draft : target)->logits(context);
    return std::vector<float>(logits.begin(), logits.end());
  };
}

// Tokens at both ends of a vocabulary, on both sides of multiples of 256, and between them, in order.
std::vector<Token> edges_of(int vocab) {
  std::vector<Token> edges;
  for (const Token x : {0, 255, 256, 511, 512, vocab / 3, vocab / 2, 2 * vocab / 3, vocab / 256 * 256 - 1,
                        vocab / 256 * 256, vocab - 1})
    if (x >= 0 && x < vocab && std::ranges::find(edges, x) == edges.end()) edges.push_back(x);
  std::ranges::sort(edges);
  return edges;
}

bool may_have_siblings(Drawn drawn) { return drawn != Drawn::chain && drawn != Drawn::aside; }

std::string name_for(const std::string& what, int seed) { return what + ", seed " + std::to_string(seed); }

// Logits over three tokens that are random after `random` numbers of tokens; elsewhere p = q is one-hot.
auto random_after(std::vector<int> random, int seed) {
  return [random = std::move(random), seed, table = tables(3, 300 + seed)](std::span<const Token> path, bool draft) {
    if (std::ranges::find(random, int(path.size())) != random.end()) return table(path, draft);
    std::vector<float> one_hot(3, kImpossible);
    one_hot[std::size_t(choose(3, seed, path.first(0), 100 + std::uint32_t(path.size())))] = 0;
    return one_hot;
  };
}

RoundCase chain(const std::string& what, int vocab, int levels, Drawn drawn, int seed) {
  RoundCase c{.name = name_for(what + foretoken::name_of(drawn), seed), .vocab = vocab};
  for (int n = 0; n < levels; ++n) c.nodes.push_back({n, drawn});
  return c;
}

}  // namespace

RoundCase deep_chain(Drawn drawn, int seed) {
  RoundCase c = chain("16 deep, ", 3, kDeep, drawn, seed);
  c.logits = random_after({choose(3, seed, {}, 1), 3 + choose(2, seed, {}, 2), 5 + choose(2, seed, {}, 3),
                           8 + choose(4, seed, {}, 4), 12 + choose(4, seed, {}, 5)},
                          seed);
  return c;
}

RoundCase longest_chain(Drawn drawn, int seed) {
  RoundCase c = chain("64 deep, ", 3, kMaxPath, drawn, seed);
  c.position = 100'000;
  c.logits = random_after({choose(16, seed, {}, 1), 17 + choose(14, seed, {}, 2), 32 + choose(15, seed, {}, 3),
                           48 + choose(16, seed, {}, 4)},
                          seed);
  return c;
}

RoundCase fullest_tree(Drawn drawn, int seed) {
  RoundCase c{.name = name_for("256 nodes, " + std::string(foretoken::name_of(drawn)), seed), .vocab = 3};
  const std::vector<int> random{choose(20, seed, {}, 1), 20 + choose(20, seed, {}, 2), 40 + choose(20, seed, {}, 3)};
  for (int level = 0, parent = 0; level < kMaxPath; ++level) {
    const auto below = std::ranges::count_if(random, [&](int other) { return other > level; });
    const int first = int(c.nodes.size()) + 1, left = kMaxNodes - first - (kMaxPath - 1 - level) - int(below);
    const bool decides = std::ranges::find(random, level) != random.end();
    const int siblings = decides ? 2 : std::min(5, left);
    for (int i = 0; i < siblings; ++i) c.nodes.push_back({parent, drawn});
    parent = level == random[1] ? first + 1 : first;
  }
  c.logits = random_after(random, seed);
  return c;
}

RoundCase nodes_apart(Drawn drawn, int first) {
  const bool tree = may_have_siblings(drawn);
  const std::vector<int> random =
      tree ? std::vector{first, first + 32, first + 96, first + 224} : std::vector{first, first + 16, first + 48};
  RoundCase c{
      .name = name_for(std::string(tree ? "nodes 128 apart, " : "nodes 32 apart, ") + foretoken::name_of(drawn), first),
      .vocab = 3};
  std::vector<int> levels;  // of the random nodes
  for (int node = 0, level = 0; level < kMaxPath && int(c.nodes.size()) + 1 < kMaxNodes; ++level) {
    const int number = int(c.nodes.size()) + 1, at = int(std::ranges::lower_bound(random, number) - random.begin()),
              next = at < int(random.size()) ? random[std::size_t(at)] : kMaxNodes;
    const bool decides = next == number;
    if (decides) levels.push_back(level);
    for (int i = 0; i < (!tree || decides ? 1 : std::min(5, next - number)); ++i) c.nodes.push_back({node, drawn});
    node = number;
  }
  c.logits = random_after(levels, first);
  return c;
}

RoundCase deep_tree(Drawn drawn, int seed) {
  RoundCase c{.name = name_for("16 deep, two families, " + std::string(foretoken::name_of(drawn)), seed), .vocab = 3};
  const int upper = 7 + choose(3, seed, {}, 1), lower = 11 + choose(4, seed, {}, 2);
  for (int level = 0, node = 0; level < kDeep; ++level) {
    const int siblings = level == upper || level == lower ? 2 : 1, parent = node;
    node = int(c.nodes.size()) + 1;
    for (int i = 0; i < siblings; ++i) c.nodes.push_back({parent, drawn});
    if (level == upper) c.nodes.push_back({node + 1, drawn});  // the second sibling has a child too
  }
  c.logits = random_after({choose(3, seed, {}, 3), upper, lower}, seed);
  return c;
}

RoundCase wide_tree(int vocab, Drawn drawn, int seed, int tokens) {
  RoundCase c{.name = name_for(std::to_string(vocab) + " tokens, " + foretoken::name_of(drawn), seed), .vocab = vocab};
  const std::vector<Token> edges = edges_of(vocab);
  std::vector<Token> possible;
  for (int i = 0; i < tokens; ++i)
    possible.push_back(edges[(std::size_t(seed) + std::size_t(i) * edges.size() / std::size_t(tokens)) % edges.size()]);
  std::ranges::sort(possible);
  const int siblings = may_have_siblings(drawn) ? 2 : 1;
  for (int i = 0; i < siblings; ++i) c.nodes.push_back({0, drawn});
  c.nodes.push_back({1, drawn});
  c.logits = [vocab, possible, table = tables(tokens, 400 + seed)](std::span<const Token> path, bool draft) {
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

RoundCase confident_family(Drawn drawn, int gap, int seed) {
  RoundCase c{.name = name_for("3 siblings, " + std::string(foretoken::name_of(drawn)) + ", drafts with a gap of " +
                                   std::to_string(gap),
                               seed),
              .vocab = 4};
  c.logits = [gap, target = tables(4, 700 + 2 * seed)](std::span<const Token> path, bool draft) {
    if (!draft || !path.empty()) return target(path, draft);
    const float g = float(gap);
    return std::vector<float>{-g, 0, -g - 1.5f, -g - 0.5f};
  };
  for (int i = 0; i < 3; ++i) c.nodes.push_back({0, drawn});
  return c;
}

RoundCase long_family(Drawn drawn, int siblings, int seed) {
  const int vocab = siblings + 4;
  RoundCase c{
      .name = name_for("family of " + std::to_string(siblings) + " siblings, " + foretoken::name_of(drawn), seed),
      .vocab = vocab,
      .seed = std::uint64_t(seed)};
  c.logits = [vocab](std::span<const Token>, bool draft) {
    const auto probability = [&](Token x) {
      if (x == 0) return draft ? 0.0005f : 0.48f;
      if (x == vocab - 1) return draft ? 0.015f : 0.48f;
      return (draft ? 0.9845f : 0.04f) / float(vocab - 2);
    };
    std::vector<float> logits;
    for (Token x = 0; x < vocab; ++x) logits.push_back(std::log(probability(x)));
    return logits;
  };
  for (int i = 0; i < siblings; ++i) c.nodes.push_back({0, drawn});
  return c;
}

namespace {

std::string names_of(const std::vector<Drawn>& kinds) {
  std::string names;
  for (const Drawn d : kinds) names += std::string(names.empty() ? "" : " and ") + foretoken::name_of(d);
  return names;
}

// Adds `count` children of `parent`, all of this kind but, with `guess`, one certain guess among them, and with
// `absent` one that is absent. Siblings without repeats stand together, and where no token was left for them the last
// ones are absent.
void add_family(RoundCase& c, int parent, Drawn kind, int count, bool guess, bool absent, int seed) {
  const std::array<Token, 1> at{parent};
  const bool together = kind == Drawn::without_replacement;
  const int guessed = !guess ? -1 : !together ? choose(count, seed, at, 5) : (count - 1) * choose(2, seed, at, 5);
  for (int i = 0; i < count; ++i) c.nodes.push_back({parent, i == guessed ? Drawn::certain : kind});
  if (!absent) return;
  const int missing = !together ? choose(count, seed, at, 6) : guessed == count - 1 ? count - 2 : count - 1;
  c.nodes[c.nodes.size() - std::size_t(count - missing)].absent = true;
}

}  // namespace

RoundCase random_round(const std::vector<Drawn>& kinds, int nodes, int vocab, int seed) {
  RoundCase c{.name = name_for("random tree of " + std::to_string(nodes) + " nodes, " + names_of(kinds) + ", " +
                                   std::to_string(vocab) + " tokens",
                               seed),
              .vocab = vocab,
              .logits = tables(vocab, 600 + seed),
              .seed = std::uint64_t(seed),
              .position = seed % 3 == 0   ? 4096u
                          : seed % 3 == 1 ? 4095u
                                          : 17u};
  const bool guesses = std::ranges::find(kinds, Drawn::certain) != kinds.end();
  std::vector<int> depth{0};
  for (int parent = 0; int(c.nodes.size()) < nodes && parent <= int(c.nodes.size()); ++parent) {
    const std::array<Token, 1> at{parent};
    const Drawn kind = kinds[std::size_t(choose(int(kinds.size()), seed, at, 1))];
    const int most = may_have_siblings(kind) ? 4 : 1;
    int count = parent == 0 ? std::max(1, most - choose(4, seed, at, 2)) : choose(most + 1, seed, at, 2);
    if (depth[std::size_t(parent)] >= 3) count = 0;
    count = std::min(count, nodes - int(c.nodes.size()));
    if (count == 0) continue;
    const bool guess = guesses && count > 1 && choose(2, seed, at, 3) == 0;
    add_family(c, parent, kind, count, guess, (count > 1 || parent > 0) && choose(5, seed, at, 4) == 0, seed);
    depth.resize(c.nodes.size() + 1, depth[std::size_t(parent)] + 1);
  }
  return c;
}

RoundCase large_round(const std::vector<Drawn>& kinds, int nodes, int seed) {
  constexpr int kVocab = 8;
  RoundCase c{.name = name_for("tree of " + std::to_string(nodes) + " nodes, " + names_of(kinds), seed),
              .vocab = kVocab,
              .logits = tables(kVocab, 700 + seed, 2),
              .seed = std::uint64_t(seed)};
  for (int parent = 0; int(c.nodes.size()) < nodes; ++parent) {
    const std::array<Token, 1> at{parent};
    const Drawn kind = kinds[std::size_t(choose(int(kinds.size()), seed, at, 1))];
    const int most = !may_have_siblings(kind) ? 1 : parent == 0 ? 6 : 1 + choose(4, seed, at, 2);
    add_family(c, parent, kind, std::min(most, nodes - int(c.nodes.size())), false, false, seed);
  }
  return c;
}

RoundCase full_chain(Drawn drawn, int length, int seed) {
  constexpr int kVocab = 6;
  RoundCase c = chain(std::to_string(length) + " random levels, ", kVocab, length, drawn, seed);
  c.logits = tables(kVocab, 800 + seed, 2);
  c.seed = std::uint64_t(seed);
  return c;
}

}  // namespace foretoken::conformance
