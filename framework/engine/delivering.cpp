#include "framework/engine/delivering.h"

#include <algorithm>
#include <tuple>

#include "kernels/error.h"

namespace foretoken {
namespace {

// How many nodes below the root were drafted, and how many levels of them. What is absent was not, nor were its
// descendants. `depth` is room for the depths: -1 where a node is absent.
std::pair<int, int> drafted(const DraftTree& tree, std::vector<int>& depth) {
  depth.assign(std::size_t(tree.nodes), 0);
  int nodes = 0, levels = 0;
  for (std::size_t n = 1; n < depth.size(); ++n) {
    const int parent = depth[std::size_t(tree.parents.data<std::int32_t>()[n])];
    depth[n] = parent < 0 || tree.known.data<Token>()[n] < 0 ? -1 : parent + 1;
    nodes += depth[n] > 0, levels = std::max(levels, depth[n]);
  }
  return {nodes, levels};
}

// Whether some child of a node is there, by the depths of all.
bool has_children(const DraftTree& tree, int node, const std::vector<int>& depth) {
  for (std::size_t n = std::size_t(node) + 1; n < depth.size(); ++n)
    if (*tree.parents.row<std::int32_t>(std::int64_t(n)) == node && depth[n] > 0) return true;
  return false;
}

}  // namespace

std::vector<Outcome> deliver(const Delivery& d, Queues& queues, StepReport& report) {
  std::vector<Outcome> outcomes;
  std::vector<int> depth;
  outcomes.reserve(d.plan.scheduled.size()), report.sequences.reserve(d.plan.scheduled.size());
  int row = 0, node = 0;
  for (std::size_t i = 0; i < d.plan.scheduled.size(); ++i) {
    const Scheduled& s = d.plan.scheduled[i];
    Active& a = *s.active;
    Sequence& q = a.sequence;
    SequenceReport& r = report.sequences.emplace_back();
    r.id = q.id, r.prompt_rows = s.chain;
    if (s.root) {
      const auto& v = *reinterpret_cast<const Verdict*>(d.read.verdicts.row<std::uint8_t>(row++));
      std::copy_n(d.read.tokens.row<Token>(node), d.trees[i].nodes, d.trees[i].known.data<Token>());
      const Tensor ranks = d.read.ranks ? d.read.ranks.rows(node, d.trees[i].nodes) : Tensor();
      node += d.trees[i].nodes;
      if (v.next == -1)
        throw Error("the logits at position " + std::to_string(q.length()) +
                    " hold a NaN or an infinity: the checkpoint of " + d.target.name +
                    " or of the draft model is damaged, or its numbers overflow; try \"dtype\": \"f32\"");
      expect_verdict(v, d.trees[i], d.target.vocab, d.verifier);
      r.judged = true, r.accepted = v.length;
      std::tie(r.drafted, r.depth) = drafted(d.trees[i], depth);
      r.refused = has_children(d.trees[i], v.length > 0 ? v.path[v.length - 1] : 0, depth);
      const int kept = q.append({v.tokens, std::size_t(v.length + 1)});
      r.emitted.assign(v.tokens, v.tokens + kept);
      if (q.sampling.logprobs)
        q.logprobs.insert(q.logprobs.end(), v.logprobs, v.logprobs + kept),
            q.logprobs.resize(std::size_t(q.generated()));
      ++a.rounds, a.drafted = r.drafted, a.accepted = r.accepted;
      a.tested_in_all += r.tested(), a.accepted_in_all += r.accepted;
      outcomes.push_back({&q, &d.trees[i], &v, ranks});
      queues.followers_may_begin(a);
      if (a.on_tokens && kept > 0) a.on_tokens(q, r.emitted);
    }
    r.finish = q.finish;
  }
  return outcomes;
}

}  // namespace foretoken
