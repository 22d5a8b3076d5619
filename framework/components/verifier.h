// A verifier decides which path of a draft tree is accepted and which token follows it. It is a pure function of
// distributions and named draws, written once as a template over a Lane (kernels/lane.h) for host and device. This
// module must not know drafters, caches or models. Leviathan et al. 2023 (arXiv 2211.17192), Chen et al. 2023
// (2302.01318).
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/components/round.h"
#include "framework/decode/draft_tree.h"
#include "kernels/error.h"
#include "kernels/lane.h"
#include "kernels/staging.h"

namespace foretoken {

// The result of one round of one sequence. It has no pointers: it is written on the device and read back once a step.
struct Verdict {
  std::int32_t length = 0;                  // accepted nodes
  std::int32_t path[kMaxPath];              // their node numbers, from below the root down
  Token tokens[kMaxPath + 1];               // what is emitted: the accepted tokens, then `next`
  Token next = -1;                          // the token after the path; -1: a distribution was not finite; or as below
  float logprobs[kMaxPath + 1];             // of the emitted tokens, if requested
  static constexpr Token kOverflown = -2;   // the rule rejected more certain guesses than a lane stores (kMostGuesses)
  static constexpr Token kUnfinished = -3;  // the rule returned without finish(), or finished with no token

  Verdict() = default;
  // Copies the used elements only: hundreds of threads run a rule, and plain copies of 784 bytes by each took several
  // times as long as the rule.
  FORETOKEN_HD Verdict(const Verdict& v) { *this = v; }
  FORETOKEN_HD Verdict& operator=(const Verdict& v) {
    length = v.length, next = v.next;
    for (int k = 0; k < length && k < kMaxPath; ++k) path[k] = v.path[k];
    for (int k = 0; k <= length && k <= kMaxPath; ++k) tokens[k] = v.tokens[k], logprobs[k] = v.logprobs[k];
    return *this;
  }

  FORETOKEN_HD void follow(int node, Token token) {
    path[length] = node, logprobs[length] = 0;
    tokens[length++] = token;
  }
  FORETOKEN_HD void finish(Token token) { tokens[length] = next = token, logprobs[length] = 0; }
};

// One sequence's tree and distributions, as a rule reads them. p(n): the target's distribution after node n; q(n): the
// distribution from which the children of n were drawn. Plain pointers, to the memory of the backend that runs the
// rule.
struct Trial {
  int nodes = 0, vocab = 0;
  std::uint32_t position = 0;  // absolute position of the first token below the root: the length of the sequence
  const std::int32_t* parents = nullptr;
  const std::int32_t* first = nullptr;  // [nodes]: the first child, -1 where there is none
  const std::int32_t* next = nullptr;   // [nodes]: the next child of the same parent, -1 behind the last
  const Token* tokens = nullptr;
  const std::uint8_t* drawn = nullptr;
  const float* p_logits = nullptr;  // [nodes, vocab], rows p_stride apart
  std::int64_t p_stride = 0;
  const DistributionRow* p_rows = nullptr;
  const DistributionRow* raw_rows = nullptr;  // null unless Soundness::raw is set
  const float* const* q_logits = nullptr;     // [nodes] pointers; null where children are certain or there are none
  const DistributionRow* const* q_rows = nullptr;

  FORETOKEN_HD Distribution p(int node) const { return {p_logits + node * p_stride, usable(p_rows[node]), vocab}; }
  FORETOKEN_HD Distribution q(int node) const {
    return q_logits[node] ? Distribution{q_logits[node], usable(*q_rows[node]), vocab} : p(node);
  }
  // The target's distribution after `node` before warping: temperature 1, no top-k, top-p or min-p, but with penalties
  // and biases. Requires Soundness::raw; without it an Error on the host and a memory fault on a device.
  FORETOKEN_HD Distribution raw(int node) const {
#if !defined(__CUDA_ARCH__)
    if (!raw_rows) throw Error("a verifier reads Trial::raw without requesting it; set Soundness::raw");
#endif
    return {p_logits + node * p_stride, usable(raw_rows[node]), vocab};
  }
  // A row that is not finite reads as one with all mass on one token, so that no rule meets a NaN and all workers of a
  // lane reach the same verdict. ApplyRule discards the verdict if it visits that row's node.
  FORETOKEN_HD static DistributionRow usable(DistributionRow row) {
    if (row.greedy < 0) row.greedy = 0, row.one_hot = 1;
    return row;
  }
  FORETOKEN_HD bool certain(int node) const { return Drawn(drawn[node]) == Drawn::certain; }
  // The next child of `node` after `after` (start with after = node), -1 where there is none. Skips absent tokens.
  FORETOKEN_HD int child(int node, int after) const {
    int c = after == node ? first[node] : next[after];
    while (c >= 0 && tokens[c] < 0) c = next[c];
    return c;
  }
  // The first child of `node` that holds `token`, -1 where none does.
  FORETOKEN_HD int match(int node, Token token) const {
    int c = child(node, node);
    while (c >= 0 && tokens[c] != token) c = child(node, c);
    return c;
  }
  // What the siblings after `child` were drawn from, where they are drawn without replacement: the mass of q(node)
  // without the children so drawn up to `child`. It is summed as for the draw: 1 minus the others' mass would be
  // nothing but rounding where they have nearly all of it.
  template <class Lane> FORETOKEN_HD double mass_after(Lane& lane, int node, int child) const {
    const Trial t = *this;
    const Distribution of = q(node);
    return lane.sum([t, of, node, child](Token x) {
      for (int c = t.child(node, node); c >= 0; c = c == child ? -1 : t.child(node, c))
        if (t.tokens[c] == x && Drawn(t.drawn[c]) == Drawn::without_replacement) return 0.0;
      return double(of(x));
    });
  }
  // Called once, before the rule runs: the trial with its small arrays in the lane's fastest memory, and the logits of
  // its tokens prefetched.
  template <class Lane> FORETOKEN_HD Trial near(Lane& lane) const {
    Trial t = *this;
    const auto keep = [&]<class T>(const T*& values) {
      if (const T* kept = lane.template near<T>(nodes, [&](int n) { return values[n]; })) values = kept;
    };
    keep(t.parents), keep(t.first), keep(t.next), keep(t.tokens), keep(t.drawn), keep(t.q_logits), keep(t.p_rows);
    if (const DistributionRow* rows = lane.template near<DistributionRow>(
            nodes, [&](int n) { return q_rows[n] ? *q_rows[n] : DistributionRow(); }))
      if (const auto* kept =
              lane.template near<const DistributionRow*>(nodes, [&](int n) { return q_rows[n] ? rows + n : nullptr; }))
        t.q_rows = kept;
    lane.settle();
    lane.each(nodes, [&](int n) {
      if (n == 0 || t.tokens[n] < 0) return;
      read_soon(t.p_logits + t.parents[n] * t.p_stride + t.tokens[n]);
      if (t.q_logits[t.parents[n]]) read_soon(t.q_logits[t.parents[n]] + t.tokens[n]);
    });
    return t;
  }
  // Whether no distribution of this node has a NaN or an infinite maximum.
  FORETOKEN_HD bool finite(int node) const {
    return p_rows[node].greedy >= 0 && !(q_rows[node] && q_rows[node]->greedy < 0);
  }
};

// The trials of a batch, in memory that the backend's lanes read. Keeps the distributions alive to which they point.
class Trials {
 public:
  // `p` has the rows of all trees, one tree after another. `positions[i]` is the length of sequence i. `staging` holds
  // the arrays that are copied to the device; it may be used again after the next synchronize(). `raw` has the same
  // rows before warping, where Soundness::raw requires them. A drawn node whose parent has no distribution in the
  // proposal is an Error, and so is a distribution q over another vocabulary.
  Trials(Backend& backend, std::span<const DraftTree> trees, Distributions p, std::span<const Draws> draws,
         std::span<const std::uint32_t> positions, Staging& staging, Distributions raw = {});
  int count() const { return int(trees_.size()); }
  int vocab() const { return p_.vocab(); }
  std::span<const DraftTree> trees() const { return trees_; }
  const Distributions& p() const { return p_; }
  const Distributions& raw() const { return raw_; }
  std::span<const Draws> named() const { return named_; }  // [count], on the host: the constructor's `draws`
  std::span<const std::uint32_t> positions() const { return positions_; }  // [count], on the host
  const Trial* trials() const { return trials_; }   // [count], in the backend's memory, as the following
  const Draws* draws() const { return draws_; }     // [count]
  const Tensor& tokens() const { return tokens_; }  // i32: the tokens of all nodes, one tree after another

 private:
  std::span<const DraftTree> trees_;
  Distributions p_, raw_;
  std::vector<Draws> named_;
  std::vector<std::uint32_t> positions_;
  Tensor tokens_;
  const Trial* trials_ = nullptr;
  const Draws* draws_ = nullptr;
};

// Runs a rule that was not compiled for the device on the host: `verify` gets a host backend and host copies of the
// trials, and its verdicts are copied to `verdicts` on the device. The results are the same, but every distribution is
// copied, and the host waits for the device once more.
class HostTrials {
 public:
  using Verify = std::function<void(Backend&, const Trials&, Tensor)>;
  void verify(Backend& device, const Trials& trials, Tensor verdicts, const Verify& verify);

 private:
  std::unique_ptr<Backend> host_;  // made at the first use and kept, since it starts threads
};

// The probability that a child of a node is accepted, by the target's p and the draft's q: what the acceptance law
// expects. Of guesses alone: the sum of p over their tokens, each once, but for `joint`. Mixed: guesses beside draws.
enum class Acceptance : std::uint8_t {
  overlap,  // One draw: sum_x min(p(x), q(x)), the maximum for a rule of one node (arXiv 2211.17192). Siblings x_i,
            // mixed or not, in turn (2305.09781): 1 - prod_i (1 - min(1, r_i(x_i) / q_i(x_i))), r_1 = p, r_{i+1} =
            // (r_i - q_i)+ over its sum, r_i where that is 0; q_i: one-hot for a guess, q for an i.i.d. draw, else q
            // without the earlier draws over its sum (2402.12374). With Soundness::race one draw: sum_x 1 / sum_y
            // max(p(y) / p(x), q(y) / q(x)) (Gumbel coupling: 2408.07978); no formula for siblings with a draw
  k_seq,    // One draw: as `overlap`. k i.i.d. draws: K(p) = 1 - (1 - beta)^k with beta = sum_x min(q(x), p(x) / rho),
            // rho the least for which (1 - (1 - beta)^k) / beta <= rho, to one part in 2^11 (2310.15141). Mixed, not in
            // the paper, guesses first: 1 - (1 - g) (1 - K(r)), g their sum of p, r = p without them over its sum
  product,  // The target's token is drawn independently of the draft (2305.09781). One draw: sum_x p(x) q(x); siblings,
            // mixed or not: the sum of p over their tokens
  joint,  // Whole paths: a chain is accepted up to x_1 ... x_i or further with probability w_i = min(1, w_{i-1} p(x_i)
          // / q(x_i)), w_0 = 1 (arXiv 2403.10444); at a guess q(x_i) is 1. Siblings have no formula
  other   // No formula is stated, and the law is not tested
};

// The traits of a verifier (Entry::traits): the nodes that it takes, and its promise for them.
struct Soundness {
  std::vector<Drawn> takes;       // kinds of nodes for which the promise holds
  std::string promise = "exact";  // "exact", "exact, path-identical", "lossy: <the induced distribution>"
  bool race = false;              // tokens are drawn by exponential races with noise named by position; the drafter's
                                  // must be too (DraftRequest::race)
  Acceptance acceptance = Acceptance::overlap;
  bool raw = false;             // the rule reads Trial::raw
  bool first_children = false;  // of a tree the rule judges the path of first children alone, others as if absent
  bool exact() const { return promise.starts_with("exact"); }
  bool path_identical() const { return promise == "exact, path-identical"; }
  // Of a lossy rule: the distribution of what a round emits, given its tree. The conformance kit holds the rule to it.
  std::function<EmittedLaw(const Round&)> induced = {};
};

class Verifier {
 public:
  using Traits = Soundness;
  virtual ~Verifier() = default;
  // Writes one Verdict per trial to `verdicts`: u8 [count, sizeof(Verdict)] on the backend's device. If it throws, it
  // is called again with each trial alone; only the sequences for which it throws again fail.
  virtual void verify(Backend& backend, const Trials& trials, Tensor verdicts) = 0;
};

// The task of a lane for trial i: applies the rule. If the distribution of a visited node is not finite (the root, or a
// node of the accepted path), the verdict's `next` is -1. Nodes below a rejected draft do not count: without
// speculation they would not exist.
template <class Rule> struct ApplyRule {
  Rule rule;
  const Trial* trials;
  Verdict* verdicts;
  template <class Lane> FORETOKEN_HD void operator()(Lane& lane, int i) const {
    const Trial t = trials[i].near(lane);
    Verdict& to = verdicts[i];
    const Verdict v = rule(lane, t);  // the same in every worker; only its used elements are stored
    const bool finite = lane.every(v.length + 1, [&](int k) {
      const int node = k > 0 ? v.path[k - 1] : 0;
      return node < 0 || node >= t.nodes || t.finite(node);  // expect_verdict throws for an invalid node
    });
    if (!finite) return lane.each(1, [&](int) { to.length = 0, to.next = to.tokens[0] = -1; });
    if (lane.overflown())
      return lane.each(1, [&](int) { to.length = 0, to.next = to.tokens[0] = Verdict::kOverflown; });
    lane.each(v.length + 1, [&](int k) {
      if (k == 0) to.length = v.length, to.next = v.next >= 0 ? v.next : Token(Verdict::kUnfinished);
      if (k < v.length) to.path[k] = v.path[k];
      to.tokens[k] = v.tokens[k];
    });
  }
};

// A verifier from a rule: a template `Verdict operator()(Lane&, const Trial&) const`, host and device, plain data.
template <class Rule> class RuleVerifier final : public Verifier {
 public:
  explicit RuleVerifier(Rule rule = {}) : rule_(rule) {}
  void verify(Backend& backend, const Trials& trials, Tensor verdicts) override {
#if !defined(__CUDACC__)
    if (backend.device().kind != Device::Kind::cpu)
      return on_host_.verify(backend, trials, verdicts,
                             [this](Backend& host, const Trials& copies, Tensor to) { run_rule(host, copies, to); });
#endif
    run_rule(backend, trials, verdicts);
  }

 private:
  void run_rule(Backend& backend, const Trials& trials, const Tensor& verdicts) const {
    launch(backend, trials.count(), trials.draws(), trials.vocab(),
           ApplyRule<Rule>{rule_, trials.trials(), verdicts.data<Verdict>()});
  }

  Rule rule_;
  HostTrials on_host_;
};

// Throws Error, whose message begins with `who`, unless every drawn node's parent has a distribution q, and every q is
// over `vocab` tokens.
void expect_distributions(const DraftTree& tree, int vocab, const std::string& who);
// Fills `sums`, f32 [nodes of all trees] on the backend's device, with what q of every node adds up to; 1 for a node
// without q, and where q is not finite. A pass over the vocabulary for each q: the engine calls it for its first trees,
// and for all with EngineOptions::check.
void proposal_sums(Backend& backend, const Trials& trials, Tensor sums);
// Throws Error, whose message begins with `who`, unless each of these sums of one tree, read by the host, is 1.
void expect_normalized(std::span<const float> sums, const std::string& who);

// Throws Error, whose message begins with `who`, unless the verdict is valid for the tree, whose tokens the host has
// read: a path from the root down, the tokens of its nodes, and a last token of the vocabulary that is `next`. Where
// `next` is -1 (a distribution was not finite) the rest is not checked.
void expect_verdict(const Verdict& v, const DraftTree& tree, int vocab, const std::string& who);

// Fills Verdict::logprobs from the target's distributions. `warped`: u8 [count], in the backend's memory; not 0: from
// the warped distribution, else from the model's own. `raw` has the distributions of the logits before adjustment where
// the trials' logits are adjusted; else it is absent.
void log_probabilities(Backend& backend, const Trials& trials, Tensor verdicts, const Tensor& warped,
                       const Distributions& raw);

}  // namespace foretoken
