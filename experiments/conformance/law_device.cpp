// device: what a backend computes of equal logits and draws is what the reference computes, bit for bit.
#include <algorithm>
#include <cmath>
#include <span>

#include "experiments/conformance/laws.h"
#include "framework/components/pairing.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken::conformance {
namespace {

constexpr std::uint32_t kPosition = 17;

Tensor host_of(Backend& backend, const Tensor& t) {
  Tensor copy = Tensor::host(t.shape(), t.dtype());
  backend.copy(t, copy);
  backend.synchronize();
  return copy;
}

std::string dense_bytes(const Tensor& dense) {
  return {static_cast<const char*>(dense.raw()), std::size_t(dense.bytes())};
}

Warp warp_of(int sequence, int top_k) {
  constexpr float kTemperatures[] = {0, 1, 0.7f, 1.3f};
  return {kTemperatures[sequence % 4], sequence % 3 == 1 ? top_k : 0, sequence % 5 == 2 ? 0.9f : 1,
          sequence % 7 == 3 ? 0.05f : 0};
}

// A subject's verifier on a device, and what a law compares of it.
class Judge {
 public:
  Judge(const Subject& subject, Backend& backend, int vocab)
      : backend_(backend),
        models_(table_models({.vocab = vocab})),
        bare_(backend, models_, subject.registries),
        verifier_(subject.registries.verifiers.make(subject.configs.verifier, bare_.host)),
        soundness_(subject.registries.verifiers.traits(subject.configs.verifier, bare_.host.target())) {}

  const Soundness& soundness() const { return soundness_; }

  // The raw distributions, where the rule reads them.
  Distributions raw(const Distributions& p) const {
    return soundness_.raw ? backend_.distributions(p.logits, std::vector<Warp>(std::size_t(p.count()), Warp{1}))
                          : Distributions();
  }
  // Of trees that are judged in one batch. `tokens` gets those of all nodes.
  std::vector<Verdict> judge(std::span<const DraftTree> trees, const Distributions& p, const Distributions& raw,
                             std::span<const Draws> draws, std::vector<Token>& tokens) const {
    Staging staging(backend_);
    const std::vector<std::uint32_t> positions(draws.size(), kPosition);
    const Trials trials(backend_, trees, p, draws, positions, staging, raw);
    const Tensor verdicts = backend_.allocate({std::int64_t(trees.size()), std::int64_t(sizeof(Verdict))}, DType::u8);
    verifier_->verify(backend_, trials, verdicts);
    const Tensor all = host_of(backend_, trials.tokens()), written = host_of(backend_, verdicts);
    tokens.insert(tokens.end(), all.data<Token>(), all.data<Token>() + all.elements());
    return {written.data<Verdict>(), written.data<Verdict>() + trees.size()};
  }

 private:
  Backend& backend_;
  Models models_;
  BareHost bare_;
  std::unique_ptr<Verifier> verifier_;
  Soundness soundness_;
};

// What a device makes of it: bytes of distributions, tokens, and a sentence for each verdict.
struct Made {
  std::string target_distributions, draft_distributions;
  std::vector<Token> tokens;
  std::vector<std::string> verdicts;
  long accepted = 0, rejected = 0;
};

// `verdict`: "the verdict of tree ".
void compare(const Made& a, const Made& b, const std::string& where, const std::string& verdict, Finding& f) {
  f.accepted = a.accepted, f.rejected = a.rejected;
  if (a.target_distributions != b.target_distributions || a.draft_distributions != b.draft_distributions)
    f.fail(where + "equal logits give other distributions");
  if (a.tokens != b.tokens) f.fail(where + "equal distributions give other draws");
  for (std::size_t i = 0; i < a.verdicts.size(); ++i)
    if (a.verdicts[i] != b.verdicts[i])
      f.fail(where + verdict + std::to_string(i) + " is [" + b.verdicts[i] + "] instead of [" + a.verdicts[i] + "]");
}

// Logits and warps of some chains, the same for every device.
class Chains {
 public:
  explicit Chains(const DeviceCase& c)
      : c_(c),
        p_(Tensor::host({c.sequences * (c.nodes + 1), c.vocab}, DType::f32)),
        q_(Tensor::host({c.sequences * c.nodes, c.vocab}, DType::f32)) {
    const Draws draws{c.seed, 0, 0, 0};
    for (Tensor* t : {&p_, &q_})
      for (std::int64_t i = 0; i < t->dim(0) * c.vocab; ++i) {
        const DrawName name{t == &p_ ? Role::draft : Role::accept, std::uint32_t(i & 4095), std::uint32_t(i >> 12)};
        t->data<float>()[i] = std::floor(float(24 * draws.uniform(name))) / 4 - 3;  // quarters, so that many logits tie
      }
    // Drafts resemble the target, so that some are accepted.
    for (int i = 0; i < c.sequences; ++i)
      for (int n = 0; n < c.nodes; ++n)
        for (int x = 0; x < c.vocab; ++x)
          q_.row<float>(i * c.nodes + n)[x] =
              0.25f * q_.row<float>(i * c.nodes + n)[x] + p_.row<float>(i * (c.nodes + 1) + n)[x];
  }

  Made judge(const Subject& subject, Backend& backend) const {
    const Judge rule(subject, backend, c_.vocab);
    const Distributions p = backend.distributions(backend.upload(p_), warps(c_.nodes + 1)),
                        q = backend.distributions(backend.upload(q_), warps(c_.nodes)), raw = rule.raw(p);
    const Tensor tokens = drawn(backend, q, rule.soundness().race);
    Made made{.target_distributions = dense_bytes(host_of(backend, p.rows)),
              .draft_distributions = dense_bytes(host_of(backend, q.rows)),
              .tokens = {tokens.data<Token>(), tokens.data<Token>() + tokens.elements()},
              .verdicts = {}};
    std::vector<Draws> draws;
    for (int i = 0; i < c_.sequences; ++i) draws.push_back(draws_of(i));
    for (const Drawn kind : rule.soundness().takes) {
      std::vector<Token> known;
      for (const Verdict& v : rule.judge(trees(backend, q, tokens, kind), p, raw, draws, known)) {
        made.verdicts.push_back(std::string("nodes drawn ") + name_of(kind) + ", " + std::to_string(v.length) +
                                " accepted, then " + std::to_string(v.next) + ": " +
                                text_of({v.tokens, std::size_t(v.length + 1)}));
        made.accepted += v.length;
        made.rejected += v.length < c_.nodes;
      }
    }
    return made;
  }

 private:
  Draws draws_of(int sequence) const { return {c_.seed, std::uint64_t(sequence), kPosition, 0}; }
  std::vector<Warp> warps(int rows_each) const {
    std::vector<Warp> all;
    for (int i = 0; i < c_.sequences; ++i) all.insert(all.end(), std::size_t(rows_each), warp_of(i, c_.vocab / 2));
    return all;
  }
  Tensor drawn(Backend& backend, const Distributions& q, bool race) const {
    std::vector<TokenDraw> draws;
    for (int i = 0; i < c_.sequences; ++i)
      for (int n = 1; n <= c_.nodes; ++n)
        draws.push_back({draws_of(i), {Role::draft, std::uint32_t(n), 0}, kPosition + std::uint32_t(n) - 1, race});
    const Tensor tokens = backend.allocate({std::int64_t(draws.size())}, DType::i32);
    backend.draw(q, draws, tokens);
    return host_of(backend, tokens);
  }
  std::vector<DraftTree> trees(Backend& backend, const Distributions& q, const Tensor& tokens, Drawn kind) const {
    std::vector<DraftTree> all;
    for (int i = 0; i < c_.sequences; ++i) {
      DraftTree& tree = all.emplace_back(DraftTree::rooted(backend, 0, c_.nodes));
      for (int n = 1; n <= c_.nodes; ++n) {
        const int row = i * c_.nodes + n - 1;
        if (kind == Drawn::certain) {
          tree.guess(n - 1, tokens.data<Token>()[row]);
          continue;
        }
        backend.copy(tokens.rows(row, 1), tree.tokens.rows(n, 1));
        tree.grow(n - 1, kind);
        tree.q.distributions.push_back(q.slice(row, 1));
      }
    }
    return all;
  }

  DeviceCase c_;
  Tensor p_, q_;  // [sequences * (nodes + 1), vocab], [sequences * nodes, vocab]
};

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

  // Trees are judged in one batch, or each alone.
  Made judge(const Subject& subject, Backend& backend, bool alone = false) const {
    const Judge rule(subject, backend, c_.vocab);
    const Distributions p = backend.distributions(backend.upload(p_), p_warps_),
                        q = backend.distributions(backend.upload(q_), q_warps_), raw = rule.raw(p);
    const std::vector<DraftTree> trees = drawn_trees(backend, q, rule.soundness().race);
    std::vector<Draws> draws;
    for (int i = 0; i < c_.trees; ++i) draws.push_back(draws_of(i));
    Made made;
    int row = 0;
    for (int i = 0, count = alone ? 1 : c_.trees; i < c_.trees; i += count) {
      const auto batch = std::span(trees).subspan(std::size_t(i), std::size_t(count));
      int rows = 0;
      for (const DraftTree& t : batch) rows += t.nodes;
      for (const Verdict& v : rule.judge(batch, p.slice(row, rows), raw ? raw.slice(row, rows) : raw,
                                         std::span(draws).subspan(std::size_t(i), batch.size()), made.tokens))
        add(v, made);
      row += rows;
    }
    return made;
  }

 private:
  int choose(int ways, int tree, int node, int what) const {
    return int(mixed(c_.seed * 1000003 + std::uint64_t(tree) * 4099 + std::uint64_t(node) * 17 + std::uint64_t(what)) %
               std::uint64_t(ways));
  }
  // Quarters, so that many logits tie.
  float quarter(std::uint64_t i, std::uint64_t what) const {
    return float(mixed(c_.seed * 7919 + what + 4 * i) % 24) / 4 - 3;
  }
  Warp warp(int tree) const { return warp_of(tree, (c_.vocab + 1) / 2); }
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

  void add(const Verdict& v, Made& made) const {
    const Shape& shape = shapes_[made.verdicts.size()];
    made.verdicts.push_back(std::to_string(v.length) + " accepted, then " + std::to_string(v.next) + ": nodes " +
                            text_of({v.path, std::size_t(v.length)}) + ", tokens " +
                            text_of({v.tokens, std::size_t(v.length + 1)}));
    made.accepted += v.length;
    made.rejected += v.length == 0 && shape.nodes() > 1;
  }

  DeviceTreesCase c_;
  std::vector<Shape> shapes_;
  std::vector<Warp> p_warps_, q_warps_;
  std::vector<int> q_of_;  // the row of p that each row of q resembles
  Tensor p_, q_;
};

}  // namespace

Finding same_verdicts(const Subject& subject, const DeviceCase& c, Backend& reference, Backend& other) {
  Finding f{.what = subject.text()};
  const Chains chains(c);
  const Made a = chains.judge(subject, reference), b = chains.judge(subject, other);
  // distributions, draws, verdicts
  f.cases = c.sequences * (2 * c.nodes + 1) + c.sequences * c.nodes + long(a.verdicts.size());
  compare(a, b, other.description() + ", vocabulary " + std::to_string(c.vocab) + ": ", "verdict ", f);
  return f;
}

namespace {

Finding compare_trees(const Subject& subject, const std::string& how, const DeviceTreesCase& c, const Made& a,
                      const Made& b) {
  Finding f{.what = subject.configs.verifier.dump(), .cases = c.trees};
  compare(a, b, f.what + ", " + how + ", vocabulary " + std::to_string(c.vocab) + ": ", "the verdict of tree ", f);
  return f;
}

// Of the drafter's models: a table has the same logits on every device, and what multiplies weights has them on devices
// that add in the reference's order.
bool equal_logits(Engine& engine, const Backend& device) {
  const auto is_table = [](const auto& c) { return dynamic_cast<const TableModel*>(c->model().get()) != nullptr; };
  return dynamic_cast<const ReferenceBackend*>(&device) || std::ranges::all_of(engine.host().caches(), is_table);
}

}  // namespace

Finding same_tree_verdicts(const Subject& subject, const DeviceTreesCase& c, Backend& reference, Backend& other) {
  const Forest forest(c, soundness_of(subject.registries, subject.configs.verifier).takes);
  return compare_trees(subject, other.description(), c, forest.judge(subject, reference), forest.judge(subject, other));
}

Finding same_verdicts_alone(const Subject& subject, const DeviceTreesCase& c) {
  ReferenceBackend backend;
  const Forest forest(c, soundness_of(subject.registries, subject.configs.verifier).takes);
  return compare_trees(subject, "in a batch", c, forest.judge(subject, backend, true), forest.judge(subject, backend));
}

Finding same_on_devices(const Run& run, Backend& other) {
  Finding f{.what = run.subject.text()};
  bool equal = true;
  const auto look = [&](Engine& engine, const StepReport&, std::span<const Sequence* const>) {
    equal = equal && equal_logits(engine, other);
  };
  const RunOutcome a = run_scenario(run),
                   b = run_scenario({run.subject, run.scenario, other, run.models, run.requests}, look);
  f.add(a);
  for (std::size_t i = 0; i < run.requests.size(); ++i) {
    const bool greedy = run.requests[i].sampling.value_or(run.scenario.sampling).temperature == 0;
    if (!equal && !greedy) continue;  // other drafts may lead to another output of the same law
    ++f.cases;
    if (a.outputs[i] != b.outputs[i])
      f.fail(other.description() + ": output " + std::to_string(i) + " is [" + text_of(b.outputs[i]) +
             "] instead of [" + text_of(a.outputs[i]) + "]");
  }
  if (!equal) return f;
  if (a.drafted != b.drafted || a.accepted != b.accepted)
    f.fail(other.description() + ": " + std::to_string(b.accepted) + " of " + std::to_string(b.drafted) +
           " drafts accepted, instead of " + std::to_string(a.accepted) + " of " + std::to_string(a.drafted));
  if (f.holds && a.draft_rows != b.draft_rows)
    f.fail(other.description() + ": models of the drafter are fed " + std::to_string(b.draft_rows) +
           " rows instead of " + std::to_string(a.draft_rows) + " for the same outputs");
  return f;
}

}  // namespace foretoken::conformance
