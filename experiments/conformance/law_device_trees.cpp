#include <algorithm>
#include <span>

#include "experiments/conformance/whole_runs.h"
#include "framework/components/pairing.h"

namespace foretoken::conformance {
namespace {

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// The shape of one tree: who is whose child, and how each node is drawn. Families stand together.
struct Shape {
  std::vector<int> parents{-1};
  std::vector<Drawn> drawn{Drawn::certain};
  int nodes() const { return int(parents.size()); }
  bool draws_below(int node) const {
    for (int n = node + 1; n < nodes(); ++n)
      if (parents[std::size_t(n)] == node && drawn[std::size_t(n)] != Drawn::certain) return true;
    return false;
  }
};

class Forest {
 public:
  Forest(const DeviceTreesCase& c, const std::vector<Drawn>& kinds) : c_(c) {
    for (int i = 0; i < c.trees; ++i) {
      shapes_.push_back(shape(i, kinds));
      for (int n = 0; n < shapes_.back().nodes(); ++n) {
        p_warps_.push_back(warp(i));
        if (shapes_.back().draws_below(n)) q_of_.push_back(int(p_warps_.size()) - 1), q_warps_.push_back(warp(i));
      }
    }
    p_ = Tensor::host({std::int64_t(p_warps_.size()), c.vocab}, DType::f32);
    q_ = Tensor::host({std::max<std::int64_t>(1, std::int64_t(q_of_.size())), c.vocab}, DType::f32);
    q_warps_.resize(std::size_t(q_.dim(0)));
    for (std::int64_t i = 0; i < p_.elements(); ++i) p_.data<float>()[i] = quarter(std::uint64_t(i), 1);
    for (std::size_t r = 0; r < q_of_.size(); ++r)  // drafts resemble the target, so that some are accepted
      for (int x = 0; x < c.vocab; ++x)
        q_.row<float>(std::int64_t(r))[x] =
            p_.row<float>(q_of_[r])[x] + 0.25f * quarter(r * std::uint64_t(c.vocab) + std::uint64_t(x), 2);
  }

  // What a device makes of it: the tokens of all nodes, and a sentence for each verdict.
  struct Made {
    std::vector<Token> tokens;
    std::vector<std::string> verdicts;
    long accepted = 0, rejected = 0;
  };
  // Trees are judged in one batch, or each alone.
  Made judge(const Subject& subject, Backend& backend, bool alone = false) const {
    const Models models = table_models({.vocab = c_.vocab});
    PagePool pool(backend, 64, 1);
    Host host(backend, pool, models.target->info(), models.load, false, {models.target, nullptr, &subject.registries});
    const auto verifier = subject.registries.verifiers.make(subject.configs.verifier, host);
    const Soundness soundness = subject.registries.verifiers.traits(subject.configs.verifier, host.target());
    const Distributions p = backend.distributions(backend.upload(p_), p_warps_),
                        q = backend.distributions(backend.upload(q_), q_warps_);
    Distributions raw;
    if (soundness.raw) raw = backend.distributions(p.logits, std::vector<Warp>(p_warps_.size(), Warp{1}));
    const std::vector<DraftTree> trees = drawn_trees(backend, q, soundness.race);
    std::vector<Draws> draws;
    for (int i = 0; i < c_.trees; ++i) draws.push_back(draws_of(i));
    const Tensor verdicts = backend.allocate({c_.trees, std::int64_t(sizeof(Verdict))}, DType::u8);
    std::vector<Token> tokens;
    int row = 0;
    for (int i = 0, count = alone ? 1 : c_.trees; i < c_.trees; i += count) {
      const auto batch = std::span(trees).subspan(std::size_t(i), std::size_t(count));
      int rows = 0;
      for (const DraftTree& t : batch) rows += t.nodes;
      Staging staging(backend);
      const Trials trials(backend, batch, p.slice(row, rows), std::span(draws).subspan(std::size_t(i), batch.size()),
                          std::vector<std::uint32_t>(batch.size(), kPosition), staging,
                          raw ? raw.slice(row, rows) : Distributions());
      verifier->verify(backend, trials, verdicts.rows(i, count));
      add_tokens(backend, trials.tokens(), tokens);
      row += rows;
    }
    return read(backend, std::move(tokens), verdicts);
  }

 private:
  static constexpr std::uint32_t kPosition = 17;

  int choose(int ways, int tree, int node, int what) const {
    return int(mixed(c_.seed * 1000003 + std::uint64_t(tree) * 4099 + std::uint64_t(node) * 17 + std::uint64_t(what)) %
               std::uint64_t(ways));
  }
  // Quarters, so that many logits tie.
  float quarter(std::uint64_t i, std::uint64_t what) const {
    return float(mixed(c_.seed * 7919 + what + 4 * i) % 24) / 4 - 3;
  }
  Warp warp(int tree) const {
    constexpr float kTemperatures[] = {0, 1, 0.7f, 1.3f};
    return {kTemperatures[tree % 4], tree % 3 == 1 ? (c_.vocab + 1) / 2 : 0, tree % 5 == 2 ? 0.9f : 1,
            tree % 7 == 3 ? 0.05f : 0};
  }
  Draws draws_of(int tree) const { return {c_.seed, std::uint64_t(tree), kPosition, 0}; }

  // From a bare root to a full tree, up to eight levels deep. Where guesses are taken, some families begin with one.
  Shape shape(int tree, const std::vector<Drawn>& kinds) const {
    const bool guesses = std::ranges::find(kinds, Drawn::certain) != kinds.end();
    Shape s;
    const int nodes = 1 + choose(c_.most_nodes, tree, 0, 0);
    std::vector<int> depth{0};
    for (int parent = 0; parent < s.nodes() && s.nodes() < nodes; ++parent) {
      if (depth[std::size_t(parent)] == 8) continue;
      const Drawn kind = kinds[std::size_t(choose(int(kinds.size()), tree, parent, 1))];
      const int most = kind == Drawn::chain ? 1 : std::min(4, c_.vocab - 1);
      for (int left = parent + 1 == s.nodes() ? 1 + choose(most, tree, parent, 2) : choose(most + 1, tree, parent, 2);
           left > 0 && s.nodes() < nodes; --left) {
        const bool first = s.parents.back() != parent,
                   guess = guesses && first && left > 1 && choose(4, tree, parent, 4) == 0;
        s.parents.push_back(parent), s.drawn.push_back(guess ? Drawn::certain : kind);
        depth.push_back(depth[std::size_t(parent)] + 1);
      }
    }
    return s;
  }

  std::vector<DraftTree> drawn_trees(Backend& backend, const Distributions& q, bool race) const {
    std::vector<DraftTree::Root> roots;
    for (const Shape& s : shapes_) roots.push_back({0, s.nodes() - 1});
    std::vector<DraftTree> trees = DraftTree::rooted(backend, roots);
    std::vector<TokenDraw> draws;
    std::int32_t row = 0;
    for (int i = 0; i < c_.trees; ++i) {
      const Shape& s = shapes_[std::size_t(i)];
      DraftTree& tree = trees[std::size_t(i)];
      for (int parent = 0; parent < s.nodes(); ++parent) {
        if (!s.draws_below(parent)) continue;
        tree.q.distributions.resize(std::size_t(parent));
        tree.q.distributions.push_back(q.slice(row, 1));
        draw_children(i, parent, row++, race, draws);
      }
      for (int n = 1; n < s.nodes(); ++n)
        if (s.drawn[std::size_t(n)] == Drawn::certain)  // one of eight is absent
          tree.guess(s.parents[std::size_t(n)], choose(8, i, n, 5) == 0 ? -1 : Token(choose(c_.vocab, i, n, 3)));
        else
          tree.grow(s.parents[std::size_t(n)], s.drawn[std::size_t(n)]);
    }
    std::size_t next = 0;
    for (int i = 0; i < c_.trees; ++i)
      for (; next < draws.size() && draws[next].draws.stream == std::uint64_t(i); ++next)
        draws[next].to = trees[std::size_t(i)].tokens.row<Token>(draws[next].name.node);
    if (!draws.empty()) backend.draw(q, draws, {});
    return trees;
  }
  void draw_children(int tree, int parent, std::int32_t row, bool race, std::vector<TokenDraw>& draws) const {
    const Shape& s = shapes_[std::size_t(tree)];
    for (int n = parent + 1; n < s.nodes(); ++n) {
      if (s.parents[std::size_t(n)] != parent || s.drawn[std::size_t(n)] == Drawn::certain) continue;
      TokenDraw draw{draws_of(tree), {Role::draft, std::uint32_t(n), 0}, kPosition, race};
      draw.row = row;
      if (s.drawn[std::size_t(n)] == Drawn::without_replacement) {
        const auto later = std::span(s.parents).subspan(std::size_t(n) + 1);
        const auto siblings = std::ranges::find_if(later, [&](int other) { return other != parent; }) - later.begin();
        draw.siblings = std::uint8_t(1 + siblings), n += int(siblings);
      }
      draws.push_back(draw);
    }
  }

  static void add_tokens(Backend& backend, const Tensor& tokens, std::vector<Token>& all) {
    const Tensor copy = Tensor::host(tokens.shape(), DType::i32);
    backend.copy(tokens, copy);
    backend.synchronize();
    all.insert(all.end(), copy.data<Token>(), copy.data<Token>() + copy.elements());
  }
  Made read(Backend& backend, std::vector<Token> tokens, const Tensor& verdicts) const {
    Made made{.tokens = std::move(tokens), .verdicts = {}};
    const Tensor written = Tensor::host(verdicts.shape(), DType::u8);
    backend.copy(verdicts, written);
    backend.synchronize();
    for (int i = 0; i < c_.trees; ++i) {
      const auto& v = *reinterpret_cast<const Verdict*>(written.row<std::uint8_t>(i));
      made.verdicts.push_back(std::to_string(v.length) + " accepted, then " + std::to_string(v.next) + ": nodes " +
                              text_of({v.path, std::size_t(v.length)}) + ", tokens " +
                              text_of({v.tokens, std::size_t(v.length + 1)}));
      made.accepted += v.length, made.rejected += v.length == 0 && shapes_[std::size_t(i)].nodes() > 1;
    }
    return made;
  }

  DeviceTreesCase c_;
  std::vector<Shape> shapes_;
  std::vector<Warp> p_warps_, q_warps_;
  std::vector<int> q_of_;  // the row of p that each row of q resembles
  Tensor p_, q_;
};

Finding compare(const Subject& subject, const std::string& how, const DeviceTreesCase& c, const Forest::Made& a,
                const Forest::Made& b) {
  Finding f{.what = subject.configs.verifier.dump()};
  const std::string where =
      subject.configs.verifier.dump() + ", " + how + ", vocabulary " + std::to_string(c.vocab) + ": ";
  f.cases = c.trees, f.accepted = a.accepted, f.rejected = a.rejected;
  if (a.tokens != b.tokens) f.fail(where + "equal distributions give other draws");
  for (std::size_t i = 0; i < a.verdicts.size(); ++i)
    if (a.verdicts[i] != b.verdicts[i])
      f.fail(where + "the verdict of tree " + std::to_string(i) + " is [" + b.verdicts[i] + "] instead of [" +
             a.verdicts[i] + "]");
  return f;
}

}  // namespace

Finding same_tree_verdicts(const Subject& subject, const DeviceTreesCase& c, Backend& reference, Backend& other) {
  const Forest forest(c, soundness_of(subject.registries, subject.configs.verifier).takes);
  return compare(subject, other.description(), c, forest.judge(subject, reference), forest.judge(subject, other));
}

Finding same_verdicts_alone(const Subject& subject, const DeviceTreesCase& c) {
  ReferenceBackend backend;
  const Forest forest(c, soundness_of(subject.registries, subject.configs.verifier).takes);
  return compare(subject, "in a batch", c, forest.judge(subject, backend, true), forest.judge(subject, backend));
}

}  // namespace foretoken::conformance
