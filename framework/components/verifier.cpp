#include "framework/components/verifier.h"

#include <algorithm>

#include "kernels/error.h"

namespace foretoken {

void expect_distributions(const DraftTree& t, int vocab, const std::string& who) {
  for (int n = 1; n < t.nodes; ++n) {
    const std::size_t parent = std::size_t(*t.parents.row<std::int32_t>(n));
    if (t.random(n) && (parent >= t.q.distributions.size() || !t.q.distributions[parent]))
      throw Error(who + " proposed node " + std::to_string(n) +
                  " as drawn but gave no distribution q for its parent; fill Proposal::distributions, or propose it as "
                  "certain");
  }
  for (std::size_t n = 0; n < t.q.distributions.size(); ++n)  // verifiers read q at every token of p
    if (const Distributions& q = t.q.distributions[n];
        q && (q.vocab() != vocab || !q.rows || q.rows.dim(1) != std::int64_t(sizeof(DistributionRow))))
      throw Error(who + " proposed after node " + std::to_string(n) + " a distribution q of " +
                  std::to_string(q.vocab()) + " tokens, the target's have " + std::to_string(vocab) +
                  "; take q from NodeDistributions or Backend::distributions, of a model of the target's vocabulary");
}

void expect_normalized(std::span<const float> sums, const std::string& who) {
  // Backend::distributions divides by the sum that is computed here, in double; a q of other origin may be rounded to
  // float, as the sums are.
  constexpr double kRounding = 1e-6;
  for (std::size_t n = 0; n < sums.size(); ++n)
    if (const double sum = double(sums[n]); !(sum > 1 - kRounding && sum < 1 + kRounding))
      throw Error(who + " proposed after node " + std::to_string(n) + " a distribution q that adds up to " +
                  std::to_string(sum) +
                  ", not to 1; take q from NodeDistributions or Backend::distributions, and do "
                  "not change its logits afterwards");
}

namespace {

// The nodes of all trees as arrays for the device, one tree after another.
struct NodeArrays {
  static constexpr std::int64_t kBytes = 48;  // an upper bound for one node
  Staging::Array parents, first, next, known, drawn, at, q_logits, q_rows;

  NodeArrays(Staging& staging, std::int64_t nodes)
      : parents(staging.array({nodes}, DType::i32)),
        first(staging.array({nodes}, DType::i32)),
        next(staging.array({nodes}, DType::i32)),
        known(staging.array({nodes}, DType::i32)),
        drawn(staging.array({nodes}, DType::u8)),
        at(staging.array({nodes}, DType::u64)),
        q_logits(staging.array({nodes}, DType::u64)),
        q_rows(staging.array({nodes}, DType::u64)) {}

  // Fills the rows of a tree whose root has row `row`.
  void fill(std::int64_t row, const DraftTree& t) const {
    for (int k = 0; k < t.nodes; ++k) fill(row + k, t, k);
    link(t, first.host.row<std::int32_t>(row), next.host.row<std::int32_t>(row));
  }

  // The trial of a tree whose root has row `row` in these arrays, in `p` and in `raw`.
  Trial trial(std::int64_t row, const Distributions& p, const Distributions& raw) const {
    Trial t;
    t.vocab = p.vocab();
    t.parents = parents.device.row<std::int32_t>(row), t.drawn = drawn.device.row<std::uint8_t>(row);
    t.first = first.device.row<std::int32_t>(row), t.next = next.device.row<std::int32_t>(row);
    t.p_logits = p.logits.row<float>(row), t.p_stride = p.logits.row_stride();
    t.p_rows = reinterpret_cast<const DistributionRow*>(p.rows.row<std::uint8_t>(row));
    if (raw) t.raw_rows = reinterpret_cast<const DistributionRow*>(raw.rows.row<std::uint8_t>(row));
    t.q_logits = reinterpret_cast<const float* const*>(q_logits.device.row<std::uint64_t>(row));
    t.q_rows = reinterpret_cast<const DistributionRow* const*>(q_rows.device.row<std::uint64_t>(row));
    return t;
  }

 private:
  // Fills row `row` from node k of a tree.
  void fill(std::int64_t row, const DraftTree& t, int k) const {
    const Distributions* const given =
        std::size_t(k) < t.q.distributions.size() ? &t.q.distributions[std::size_t(k)] : nullptr;
    const bool q = given && *given;
    *parents.host.row<std::int32_t>(row) = *t.parents.row<std::int32_t>(k);
    const bool aside = k > 0 && t.aside(k);  // to rules an absent guess
    *known.host.row<Token>(row) = aside ? -1 : *t.known.row<Token>(k);
    *drawn.host.row<std::uint8_t>(row) = aside ? std::uint8_t(Drawn::certain) : *t.q.drawn.row<std::uint8_t>(k);
    *at.host.row<const Token*>(row) = aside ? nullptr : t.drawn_at(k);
    *q_logits.host.row<const void*>(row) = q ? given->logits.row<float>(0) : nullptr;
    *q_rows.host.row<const void*>(row) = q ? given->rows.row<std::uint8_t>(0) : nullptr;
  }

  // Links the children of every node in ascending order, so that rules need not search: see Trial::first.
  static void link(const DraftTree& t, std::int32_t* first, std::int32_t* next) {
    std::fill_n(first, t.nodes, -1);
    next[0] = -1;
    for (int n = t.nodes - 1; n > 0; --n) {
      std::int32_t& head = first[*t.parents.row<std::int32_t>(n)];
      next[n] = head, head = n;
    }
  }
};

}  // namespace

Trials::Trials(Backend& backend, std::span<const DraftTree> trees, Distributions p, std::span<const Draws> draws,
               std::span<const std::uint32_t> positions, Staging& staging, Distributions raw)
    : trees_(trees),
      p_(std::move(p)),
      raw_(std::move(raw)),
      named_(draws.begin(), draws.end()),
      positions_(positions.begin(), positions.end()) {
  const std::int64_t n = std::int64_t(trees.size());
  std::int64_t nodes = 0;
  for (const DraftTree& t : trees) expect_distributions(t, p_.vocab(), "the drafter"), nodes += t.nodes;
  staging.begin(n * std::int64_t(sizeof(Trial) + sizeof(Draws)) + nodes * NodeArrays::kBytes +
                10 * Staging::kAlignment);
  const auto trial = staging.array({n, std::int64_t(sizeof(Trial))}, DType::u8),
             draw = staging.array({n, std::int64_t(sizeof(Draws))}, DType::u8);
  const NodeArrays arrays(staging, nodes);
  tokens_ = backend.allocate({nodes}, DType::i32);
  std::int64_t row = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    Trial one = arrays.trial(row, p_, raw_);
    one.nodes = trees[std::size_t(i)].nodes, one.position = positions[std::size_t(i)];
    one.tokens = tokens_.row<Token>(row);
    new (trial.host.row<std::byte>(i)) Trial(one);
    new (draw.host.row<std::byte>(i)) Draws(draws[std::size_t(i)]);
    arrays.fill(row, trees[std::size_t(i)]);
    row += one.nodes;
  }
  staging.push();
  backend.pick(arrays.known.device, arrays.at.device, tokens_, p_.vocab());
  trials_ = reinterpret_cast<const Trial*>(trial.device.raw());
  draws_ = reinterpret_cast<const Draws*>(draw.device.raw());
}

void expect_verdict(const Verdict& v, const DraftTree& tree, int vocab, const std::string& who) {
  if (v.next == -1) return;
  if (v.next == Verdict::kOverflown)
    throw Error(who + " rejected more than " + std::to_string(kMostGuesses) +
                " guesses of one tree; let it reject each node at most once");
  if (v.next == Verdict::kUnfinished)
    throw Error(who +
                " ended a round without a token of the target's own; let every path of the rule end with "
                "Verdict::finish of a drawn token (a draw of weights that are all 0 gives none)");
  if (v.length < 0 || v.length >= tree.nodes || v.length > kMaxPath)
    throw Error(who + " accepted " + std::to_string(v.length) + " nodes of a tree that has " +
                std::to_string(tree.nodes - 1) + " below its root; let it follow each node once, with Verdict::follow");
  for (int k = 0; k <= v.length; ++k)
    if (v.tokens[k] < 0 || v.tokens[k] >= vocab)
      throw Error(who + " emitted the token " + std::to_string(v.tokens[k]) + ", outside the target's vocabulary of " +
                  std::to_string(vocab) + "; emit tokens of the tree, and end with Verdict::finish of a drawn one");
  for (int k = 0, above = 0; k < v.length; above = v.path[k++]) {
    const int node = v.path[k];
    if (node <= 0 || node >= tree.nodes || *tree.parents.row<std::int32_t>(node) != above)
      throw Error(who + " accepted the node " + std::to_string(node) + ", which is no child of the node " +
                  std::to_string(above) + " before it; follow the children that Trial::child names");
    if (const Token held = *tree.known.row<Token>(node); v.tokens[k] != held)
      throw Error(who + " accepted the node " + std::to_string(node) + ", which holds the token " +
                  std::to_string(held) + ", but emitted the token " + std::to_string(v.tokens[k]) +
                  " for it; follow a node with its own token, Trial::tokens");
  }
  if (v.tokens[v.length] != v.next)
    throw Error(who + " emitted the token " + std::to_string(v.tokens[v.length]) + " last, but its Verdict::next is " +
                std::to_string(v.next) + "; end with Verdict::finish, which sets both");
}

}  // namespace foretoken
