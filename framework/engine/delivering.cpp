#include "framework/engine/delivering.h"

#include <algorithm>

#include "framework/engine/tree_report.h"

namespace foretoken {
namespace {

// One verified sequence: its verdict, or the reason of its failure.
struct Judgement {
  const Verdict* verdict = nullptr;
  std::string failure;
};

std::string not_finite(const Sequence& q, const ModelInfo& target) {
  return "the logits at position " + std::to_string(q.length()) + " hold a NaN or an infinity: the checkpoint of " +
         target.name + " or of the draft model is damaged, or its numbers overflow; try \"dtype\": \"f32\"";
}

// The message of the Error for an invalid verdict; empty for a valid one.
std::string fault_of(const Verdict& verdict, const DraftTree& tree, const Delivery& d) {
  try {
    expect_verdict(verdict, tree, d.target.vocab, d.verifier);
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

// The message of the Error for the drawn tokens of a tree, and for the sums of its q; empty for valid ones.
std::string fault_of(const DraftTree& tree, std::span<const float> sums, const Sequence& q, const Delivery& d) {
  try {
    expect_tokens(tree, d.target.vocab, d.drafter);
    expect_normalized(sums, d.drafter);
    return {};
  } catch (const Error& e) {
    return for_sequence(q.id, e.what());
  }
}

// Reads everything before any sequence changes: fills the trees' known tokens, and fails the sequences whose tokens, q
// or verdict are invalid.
std::vector<Judgement> read_judgements(const Delivery& d) {
  std::vector<Judgement> judgements;
  judgements.reserve(d.plan.scheduled.size());
  int node = 0;
  for (std::size_t i = 0; i < d.plan.scheduled.size(); ++i) {
    if (!d.plan.scheduled[i].root) continue;
    const DraftTree& tree = d.trees[i];
    const std::size_t row = judgements.size();
    std::copy_n(d.read.tokens.row<Token>(node), tree.nodes, tree.known.data<Token>());
    const auto sums = d.read.sums ? d.read.sums.rows(node, tree.nodes).values<float>() : std::span<float>();
    node += tree.nodes;
    Judgement& j = judgements.emplace_back();
    j.verdict = reinterpret_cast<const Verdict*>(d.read.verdicts.row<std::uint8_t>(std::int64_t(row)));
    j.failure = fault_of(tree, sums, d.plan.scheduled[i].active->sequence, d);
    if (j.failure.empty() && !d.read.failures.empty()) j.failure = d.read.failures[row];
    if (j.failure.empty() && j.verdict->next == -1)
      j.failure = not_finite(d.plan.scheduled[i].active->sequence, d.target);
    if (j.failure.empty()) j.failure = fault_of(*j.verdict, tree, d);
  }
  return judgements;
}

// Returns the number of emitted tokens that were kept. A sequence whose stop rule throws, or whose constraint does not
// hold, fails with the tokens that it had before.
int append(Sequence& q, const Verdict& v) {
  const std::size_t before = q.tokens.size();
  int kept = 0;
  try {
    kept = q.append({v.tokens, std::size_t(v.length + 1)});
  } catch (...) {
    q.fail(failure_of("its stop rule"));
  }
  if (q.finish != Finish::failed) return kept;
  q.tokens.resize(before);
  return 0;
}

void take(const Verdict& v, const DraftTree& tree, Active& a, SequenceReport& r, std::vector<int>& depth) {
  Sequence& q = a.sequence;
  const int kept = append(q, v);
  if (q.finish == Finish::failed) return;
  const std::size_t nodes = std::size_t(tree.nodes);
  r.judged = true;
  report_tree(r, {tree.parents.data<std::int32_t>(), nodes}, {tree.known.data<Token>(), nodes},
              {v.path, std::size_t(v.length)}, kept, depth);
  r.emitted.assign(v.tokens, v.tokens + kept);
  if (q.sampling.logprobs)
    q.logprobs.insert(q.logprobs.end(), v.logprobs, v.logprobs + kept), q.logprobs.resize(std::size_t(q.generated()));
  ++a.rounds, a.drafted = r.drafted, a.accepted = r.accepted;
  a.tested_in_all += r.tested(), a.accepted_in_all += r.accepted;
}

void call_on_tokens(Active& a, const SequenceReport& r) {
  if (!a.on_tokens || r.emitted.empty()) return;
  try {
    a.on_tokens(a.sequence, r.emitted);
  } catch (...) {
    a.sequence.fail(failure_of("its on_tokens"));
  }
}

}  // namespace

std::vector<Outcome> deliver(const Delivery& d, Queues& queues, StepReport& report) {
  const std::vector<Judgement> judgements = read_judgements(d);
  std::vector<Outcome> outcomes;
  std::vector<int> depth;
  outcomes.reserve(judgements.size()), report.sequences.reserve(report.sequences.size() + d.plan.scheduled.size());
  auto next = judgements.begin();
  int node = 0;
  for (std::size_t i = 0; i < d.plan.scheduled.size(); ++i) {
    const Scheduled& s = d.plan.scheduled[i];
    Active& a = *s.active;
    SequenceReport& r = report.sequences.emplace_back();
    r.id = a.sequence.id, r.prompt_rows = s.chain, r.no_draft = s.no_draft;
    if (s.root) {
      const Judgement& j = *next++;
      const Tensor ranks = d.read.ranks ? d.read.ranks.rows(node, d.trees[i].nodes) : Tensor();
      node += d.trees[i].nodes;
      if (j.failure.empty())
        take(*j.verdict, d.trees[i], a, r, depth);
      else
        a.sequence.fail(j.failure);
      if (r.judged) outcomes.push_back({&a.sequence, &d.trees[i], j.verdict, ranks});
      queues.release_followers(a);
      call_on_tokens(a, r);
    }
    r.finish = a.sequence.finish;
  }
  return outcomes;
}

}  // namespace foretoken
