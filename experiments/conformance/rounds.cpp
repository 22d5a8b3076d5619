#include "experiments/conformance/rounds.h"

#include "experiments/conformance/enumerator.h"
#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

// The draws of sample i: they differ from all others in the stream, in its upper half, in the length of the sequence by
// a multiple of 64, or in the upper half of the seed. Where a rule leaves one of these out of its names, a quarter of
// the samples are one.
Draws fresh(const RoundCase& c, long i) {
  const std::uint64_t number = std::uint64_t(i) + 2;
  Draws d{.seed = c.seed, .stream = 1, .root = c.position};
  if (i % 4 == 0) d.stream = number;
  if (i % 4 == 1) d.stream += number << 32;
  if (i % 4 == 2) d.root += std::uint32_t(number) * 64;
  if (i % 4 == 3) d.seed += number << 32;
  return d;
}

// A verifier with a host to make it, and rounds of one case.
class Bench {
 public:
  Bench(const Registries& registries, const nlohmann::json& verifier, const RoundCase& c, HostBackend& backend)
      : c_(c),
        backend_(backend),
        models_(table_models({.vocab = c.vocab})),
        bare_(backend, models_, registries),
        verifier_(registries.verifiers.make(verifier, bare_.host)),
        soundness_(registries.verifiers.traits(verifier, bare_.host.target())),
        staging_(backend) {}

  // A tree of the case, drawn with these draws, and its distributions.
  void draw(const Draws& draws) {
    draws_ = draws;
    tree_ = DraftTree::rooted(backend_, 0, int(c_.nodes.size()));
    tree_.q.distributions.assign(c_.nodes.size() + 1, {});
    paths_.assign(1, {});
    for (std::size_t i = 0; i < c_.nodes.size();) i += family(i);
    p_ = after_nodes(c_.warp);
    if (soundness_.raw) raw_ = after_nodes(Warp{.temperature = 1});
  }

  // The tokens that the rule emits, with these draws.
  std::vector<Token> judge(const Draws& draws) {
    const Trials trials(backend_, {&tree_, 1}, p_, {&draws, 1}, std::vector<std::uint32_t>{draws.root}, staging_, raw_);
    const Tensor verdict = backend_.allocate({1, std::int64_t(sizeof(Verdict))}, DType::u8);
    verifier_->verify(backend_, trials, verdict);
    const Verdict& v = *reinterpret_cast<const Verdict*>(verdict.row<std::uint8_t>(0));
    expect_verdict(v, tree_, c_.vocab, "the verifier");
    if (v.next < 0) throw Error("the verifier met a distribution that is not finite");
    accepted_ = v.length;
    return {v.tokens, v.tokens + v.length + 1};
  }
  int accepted() const { return accepted_; }  // by the last verdict
  const Draws& draws() const { return draws_; }

  Round round() const {
    Round r;
    for (int n = 0; n < tree_.nodes; ++n) {
      const std::size_t i = std::size_t(n);
      r.parents.push_back(*tree_.parents.row<std::int32_t>(n));
      r.tokens.push_back(*tree_.tokens.row<Token>(n));
      r.drawn.push_back(Drawn(*tree_.q.drawn.row<std::uint8_t>(n)));
      r.p.push_back(probabilities(p_[n]));
      if (raw_) r.raw.push_back(probabilities(raw_[n]));
      r.q.push_back(tree_.q.distributions[i] ? probabilities(tree_.q.distributions[i][0]) : std::vector<double>());
    }
    return r;
  }
  std::vector<Token> tokens() const { return {tree_.tokens.row<Token>(0), tree_.tokens.row<Token>(0) + tree_.nodes}; }

 private:
  // Adds node i, or the siblings of one draw of which it is the first; returns how many.
  std::size_t family(std::size_t i) {
    const RoundNode& first = c_.nodes[i];
    const int node = tree_.nodes;
    std::vector<Token> path = paths_[std::size_t(first.parent)];
    std::size_t count = 1;
    if (first.drawn == Drawn::certain) {
      tree_.guess(first.parent, first.absent ? -1 : guess(i));
    } else {
      while (together(first, i + count)) ++count;
      TokenDraw one{
          draws_, {Role::draft, std::uint32_t(node), 0}, draws_.root + std::uint32_t(path.size()), soundness_.race};
      one.siblings = std::uint8_t(count), one.to = tree_.tokens.row<Token>(node);
      backend_.draw(draft_after(first), {&one, 1}, {});
      for (std::size_t k = 0; k < count; ++k) {
        if (c_.nodes[i + k].absent) *tree_.tokens.row<Token>(tree_.nodes) = -1;
        tree_.grow(first.parent, first.drawn);
      }
    }
    for (std::size_t k = 0; k < count; ++k) {
      paths_.push_back(path);
      paths_.back().push_back(*tree_.tokens.row<Token>(node + int(k)));
    }
    return count;
  }
  bool together(const RoundNode& first, std::size_t next) const {
    return (first.drawn == Drawn::without_replacement || soundness_.race) && next < c_.nodes.size() &&
           c_.nodes[next].parent == first.parent && c_.nodes[next].drawn == first.drawn;
  }
  // A guess that the draft would make: the seed alone draws it, no named draw of the round.
  Token guess(std::size_t i) {
    const Distributions q = distributions({c_.logits(paths_[std::size_t(c_.nodes[i].parent)], true)}, c_.warp);
    return invert_cdf(scalar_tiles(q[0]), c_.vocab, Draws{c_.seed}.uniform({Role::noise, std::uint32_t(i + 1), 0}));
  }
  // The distribution from which the children of a node are drawn. Marginals see how many tokens are before, not which.
  const Distributions& draft_after(const RoundNode& child) {
    Distributions& q = tree_.q.distributions[std::size_t(child.parent)];
    if (q) return q;
    std::vector<Token> path = paths_[std::size_t(child.parent)];
    if (child.drawn == Drawn::marginals) std::ranges::fill(path, 0);
    return q = distributions({c_.logits(path, true)}, c_.warp);
  }
  Distributions after_nodes(const Warp& warp) {
    std::vector<std::vector<float>> rows;
    for (const auto& path : paths_) {
      const bool absent = std::ranges::find(path, -1) != path.end();
      rows.push_back(c_.logits(absent ? std::vector<Token>{} : path, false));
    }
    return distributions(rows, warp);
  }
  Distributions distributions(const std::vector<std::vector<float>>& rows, const Warp& warp) {
    const Tensor logits = Tensor::host({std::int64_t(rows.size()), c_.vocab}, DType::f32);
    for (std::size_t r = 0; r < rows.size(); ++r) std::ranges::copy(rows[r], logits.row<float>(std::int64_t(r)));
    return backend_.distributions(logits, std::vector<Warp>(rows.size(), warp));
  }

  const RoundCase& c_;
  HostBackend& backend_;
  Models models_;
  BareHost bare_;
  std::unique_ptr<Verifier> verifier_;
  Soundness soundness_;
  Staging staging_;
  Draws draws_;
  DraftTree tree_;
  std::vector<std::vector<Token>> paths_;  // of all nodes, the root's is empty
  Distributions p_, raw_;
  int accepted_ = 0;
};

}  // namespace

RoundOutcomes enumerate_round(const Registries& registries, const nlohmann::json& verifier, const RoundCase& c,
                              HostBackend& backend) {
  Enumerator chance;
  Bench bench(registries, verifier, c, backend);
  const Asking asking(backend, chance);
  const Draws draws{.seed = 1, .stream = 1, .root = c.position};
  RoundOutcomes found;
  do {
    bench.draw(draws);
    const std::vector<Token> emitted = bench.judge(draws);
    RoundOutcomes::Tree& tree = found.trees[bench.tokens()];
    if (tree.weight == 0) tree.round = bench.round();
    tree.weight += chance.weight(), tree.emitted[emitted] += chance.weight();
    found.accepted += chance.weight() * bench.accepted();
  } while (chance.next());
  found.paths = chance.paths(), found.asked_twice = chance.asked_twice();
  return found;
}

RoundSamples sample_round(const Registries& registries, const nlohmann::json& verifier, const RoundCase& c,
                          HostBackend& backend, long samples) {
  Bench bench(registries, verifier, c, backend);
  bench.draw({.seed = c.seed, .stream = 1, .root = c.position});
  RoundSamples found{bench.round(), {}};
  for (long i = 0; i < samples; ++i) ++found.emitted[bench.judge(fresh(c, i))];
  return found;
}

void sample_rounds(const Registries& registries, const nlohmann::json& verifier, const RoundCase& c,
                   HostBackend& backend, long samples, const std::function<void(const std::vector<Token>&)>& each) {
  Bench bench(registries, verifier, c, backend);
  for (long i = 0; i < samples; ++i) {
    const Draws draws = fresh(c, i);
    bench.draw(draws);
    each(bench.judge(draws));
  }
}

std::vector<double> target_after(const RoundCase& c, std::span<const Token> path) {
  return warped(c.logits(path, false), c.warp);
}
std::vector<double> draft_after(const RoundCase& c, std::span<const Token> path) {
  return warped(c.logits(path, true), c.warp);
}

}  // namespace foretoken::conformance
