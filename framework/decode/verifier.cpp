#include "framework/decode/verifier.h"

#include "kernels/error.h"

namespace foretoken {

Trials::Trials(std::span<const DraftTree> trees, Laws p, std::vector<Draws> draws, std::vector<std::uint32_t> positions)
    : trees_(trees), p_(std::move(p)), draws_(std::move(draws)) {
  int rows = 0;
  for (const auto& t : trees) rows += t.nodes;
  q_logits_.assign(std::size_t(rows), nullptr);
  q_rows_.assign(std::size_t(rows), nullptr);
  int first = 0;
  for (std::size_t i = 0; i < trees.size(); ++i) {
    const DraftTree& t = trees[i];
    for (std::size_t n = 0; n < t.q.laws.size() && int(n) < t.nodes; ++n)
      if (t.q.laws[n]) {
        q_logits_[std::size_t(first) + n] = t.q.laws[n].logits.row<float>(0);
        q_rows_[std::size_t(first) + n] = reinterpret_cast<const LawRow*>(t.q.laws[n].rows.row<std::uint8_t>(0));
      }
    trials_.push_back({.nodes = t.nodes,
                       .vocab = p_.vocab(),
                       .position = positions[i],
                       .parents = t.parents.data<std::int32_t>(),
                       .tokens = t.tokens.data<Token>(),
                       .drawn = t.q.drawn.data<std::uint8_t>(),
                       .p_logits = p_.logits.row<float>(first),
                       .p_stride = p_.logits.row_stride(),
                       .p_rows = reinterpret_cast<const LawRow*>(p_.rows.row<std::uint8_t>(first)),
                       .q_logits = q_logits_.data() + first,
                       .q_rows = q_rows_.data() + first});
    for (int n = 1; n < t.nodes; ++n)
      if (!trials_.back().certain(n) && !trials_.back().q_rows[trials_.back().parents[n]])
        throw Error("the drafter proposed node " + std::to_string(n) + " as drawn but gave no law q for its parent; fill Proposal::laws, or propose it as certain");
    first += t.nodes;
  }
}

void log_probabilities(Backend& backend, const Trials& trials, Tensor verdicts, std::span<const std::uint8_t> warped) {
  backend.for_each(trials.count(), [&](int i) {
    auto& v = *reinterpret_cast<Verdict*>(verdicts.row<std::uint8_t>(i));
    if (v.next < 0) return;
    int node = 0;
    for (int k = 0; k <= v.length; ++k) {
      const Law p = trials[i].p(node);
      v.logprobs[k] = float(warped[std::size_t(i)] ? log_exactly(p(v.tokens[k])) : p.raw_log_probability(v.tokens[k]));
      if (k < v.length) node = v.path[k];
    }
  });
}

}  // namespace foretoken
