// A verifier decides how much of a draft tree stands, and what comes after it: pure, distributions and draws in, path
// out. It is a template over a Lane (kernels/lane.h), written once. This room must not know drafters, caches or models.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/decode/draft_tree.h"
#include "kernels/error.h"
#include "kernels/lane.h"
#include "kernels/staging.h"

namespace foretoken {

// The outcome of one round of one sequence: numbers without pointers, written on the device and read back once a step.
struct Verdict {
  std::int32_t length = 0;                 // accepted nodes
  std::int32_t path[kMaxPath];             // their node numbers, from below the root down
  Token tokens[kMaxPath + 1];              // what is emitted: the accepted tokens, then `next`
  Token next = -1;                         // the target's own token; -1: a distribution was not finite; or kOverflown
  float logprobs[kMaxPath + 1];            // of the emitted tokens, if asked for
  static constexpr Token kOverflown = -2;  // the rule refused more guesses than a lane remembers (kMostGuesses)

  Verdict() = default;
  // Copies what is in use: a plain copy of 784 bytes by each of the hundreds of threads that run a rule took several
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

// One sequence's tree and distributions as a verifier sees them. p(n): the target's distribution after node n; q(n):
// the distribution from which the children of n were drawn. Plain pointers: host or device.
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
  const DistributionRow* raw_rows = nullptr;  // absent unless Soundness::raw asks
  const float* const* q_logits = nullptr;     // [nodes] pointers; null where children are certain or there are none
  const DistributionRow* const* q_rows = nullptr;

  FORETOKEN_HD Distribution p(int node) const { return {p_logits + node * p_stride, usable(p_rows[node]), vocab}; }
  FORETOKEN_HD Distribution q(int node) const {
    return q_logits[node] ? Distribution{q_logits[node], usable(*q_rows[node]), vocab} : p(node);
  }
  // The target's distribution after `node` without its warp: temperature 1, nothing cut, but with penalties and biases.
  // For a rule that asks for it (Soundness::raw); else an Error (a fault on a device).
  FORETOKEN_HD Distribution raw(int node) const {
#if !defined(__CUDA_ARCH__)
    if (!raw_rows) throw Error("a verifier reads Trial::raw without asking for it; set Soundness::raw");
#endif
    return {p_logits + node * p_stride, usable(raw_rows[node]), vocab};
  }
  // Of a row that is not finite a rule is told that all mass is on one token: no rule meets a NaN, and all workers of a
  // lane come to the same verdict. What it says counts only if it did not visit that row's node: see Judge.
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
  // TokenCount once, before the trial is asked: its small arrays where the lane reads them fastest, its tokens' logits
  // on their way.
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
  // No distribution of this node holds a NaN or an infinite peak.
  FORETOKEN_HD bool finite(int node) const {
    return p_rows[node].greedy >= 0 && !(q_rows[node] && q_rows[node]->greedy < 0);
  }
};

// The trials of a batch, where the backend's lanes read them; keeps alive what they point to.
class Trials {
 public:
  // `p` holds the rows of all trees, one tree after another. `positions[i]` is the length of sequence i. `staging` is
  // the room for what the device must be told; it may be used again after the next synchronize(). `raw` are the same
  // rows without their warps, if a rule asks for them. A node that was drawn but whose parent has no distribution in
  // the proposal is an Error.
  Trials(Backend& backend, std::span<const DraftTree> trees, Distributions p, std::span<const Draws> draws,
         std::span<const std::uint32_t> positions, Staging& staging, Distributions raw = {});
  int count() const { return int(trees_.size()); }
  int vocab() const { return p_.vocab(); }
  std::span<const DraftTree> trees() const { return trees_; }
  const Distributions& p() const { return p_; }
  const Distributions& raw() const { return raw_; }
  std::span<const Draws> named() const { return named_; }  // what `draws` and `positions` were, on the host
  std::span<const std::uint32_t> positions() const { return positions_; }
  const Trial* trials() const { return trials_; }   // [count], in the backend's memory, as all that follows
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

// For a rule that the device's compiler has not seen: `verify` gets a backend of the host and copies of the trials
// there, and what it writes goes to `verdicts` on the device. Right, but slow: every distribution is copied, and the
// host waits once more.
class HostTrials {
 public:
  using Verify = std::function<void(Backend&, const Trials&, Tensor)>;
  void verify(Backend& device, const Trials& trials, Tensor verdicts, const Verify& verify);

 private:
  std::unique_ptr<Backend> host_;  // made when it is first needed, and kept: it has threads
};

// How often a child drawn from q stands where p is the target's distribution: what the acceptance law expects of a
// chain.
enum class Acceptance : std::uint8_t {
  overlap,  // sum_x min(p(x), q(x)), the most that a rule of one node can; of a race sum_x 1 / sum_y max(p(y) / p(x),
            // q(y) / q(x))
  product,  // sum_x p(x) q(x): the target's token is drawn without a look at the draft
  other     // no formula is stated
};

// What a verifier needs of a proposal, and what it promises.
struct Soundness {
  std::vector<Drawn> takes;       // kinds of nodes for which the promise holds
  std::string promise = "exact";  // "exact", "exact, path-identical", "lossy: <the induced distribution>"
  bool race = false;              // draws by exponential races with noise named by position, and so must the drafter
  Acceptance acceptance = Acceptance::overlap;
  bool raw = false;  // the rule reads Trial::raw
};

class Verifier {
 public:
  using Traits = Soundness;
  virtual ~Verifier() = default;
  // To be overridden only where Entry::traits is empty.
  virtual Soundness soundness() const;
  Traits traits() const { return declared_ ? *declared_ : soundness(); }
  // Writes one Verdict per trial to `verdicts`: u8 [count, sizeof(Verdict)] on the backend's device. Where it throws it
  // is asked again, about each trial alone: only those sequences fail for which it throws again.
  virtual void verify(Backend& backend, const Trials& trials, Tensor verdicts) = 0;

 protected:
  template <class T> friend class Registry;
  std::optional<Soundness> declared_;  // by Entry::traits
};

// What a lane does with trial i: asks the rule. Where a distribution is not finite of a node that the verdict visits,
// the root or one of the path, the verdict says so (-1). Nodes below a refused guess do not count: without speculation
// nobody would have computed them.
template <class Rule> struct Judge {
  Rule rule;
  const Trial* trials;
  Verdict* verdicts;
  template <class Lane> FORETOKEN_HD void operator()(Lane& lane, int i) const {
    const Trial t = trials[i].near(lane);
    Verdict& to = verdicts[i];
    const Verdict v = rule(lane, t);  // every worker holds it; what nobody wrote is not copied
    const bool finite = lane.every(v.length + 1, [&](int k) {
      const int node = k > 0 ? v.path[k - 1] : 0;
      return node < 0 || node >= t.nodes || t.finite(node);  // expect_verdict refuses what is no node
    });
    if (!finite) return lane.each(1, [&](int) { to.length = 0, to.next = to.tokens[0] = -1; });
    if (lane.overflown())
      return lane.each(1, [&](int) { to.length = 0, to.next = to.tokens[0] = Verdict::kOverflown; });
    lane.each(v.length + 1, [&](int k) {
      if (k == 0) to.length = v.length, to.next = v.next;
      if (k < v.length) to.path[k] = v.path[k];
      to.tokens[k] = v.tokens[k];
    });
  }
};

// A verifier from a rule: a template `Verdict operator()(Lane&, const Trial&) const`, host and device, plain data.
template <class Rule> class RuleVerifier final : public Verifier {
 public:
  explicit RuleVerifier(Rule rule = {}) : rule_(rule) {}
  // Without Entry::traits.
  explicit RuleVerifier(Soundness soundness, Rule rule = {}) : rule_(rule) { declared_ = std::move(soundness); }
  void verify(Backend& backend, const Trials& trials, Tensor verdicts) override {
#if !defined(__CUDACC__)
    if (backend.device().kind != Device::Kind::cpu)
      return on_host_.verify(backend, trials, verdicts,
                             [this](Backend& host, const Trials& copies, Tensor to) { judge(host, copies, to); });
#endif
    judge(backend, trials, verdicts);
  }

 private:
  void judge(Backend& backend, const Trials& trials, const Tensor& verdicts) const {
    launch(backend, trials.count(), trials.draws(), trials.vocab(),
           Judge<Rule>{rule_, trials.trials(), verdicts.data<Verdict>()});
  }

  Rule rule_;
  HostTrials on_host_;
};

// Throws Error unless every node that was drawn has a distribution of its parent, and each distribution `vocab` tokens.
void expect_distributions(const DraftTree& tree, int vocab);

// Throws Error, which begins with `who`, unless a verifier may say this of a tree whose tokens the host has read: a
// path from the root down, its nodes' tokens, and a last token of the vocabulary. Where `next` is -1, which says that a
// distribution was not finite, nothing else counts.
void expect_verdict(const Verdict& v, const DraftTree& tree, int vocab, const std::string& who);

// Fills logprobs of every verdict from the target's distributions: raw, or warped ([count], u8, in the backend's
// memory). `raw` has the distributions of the model's own logits where those of the trials are bent; else it is absent.
void log_probabilities(Backend& backend, const Trials& trials, Tensor verdicts, const Tensor& warped,
                       const Distributions& raw);

}  // namespace foretoken
