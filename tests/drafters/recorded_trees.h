// What a drafter proposes in an engine, round by round, beside the table model that it drafts with.
#pragma once
#include <map>

#include "experiments/conformance/scenario.h"
#include "tests/support/sentence.h"

namespace foretoken::test {

using namespace conformance;
using nlohmann::json;

// One proposal. The request's sequence is a copy, and so are the tokens, which the host may not have read yet.
struct Proposed {
  Sequence sequence;
  DraftRequest request;
  DraftTree tree;
  Tokens tokens;  // [nodes]

  int parent(int n) const { return *tree.parents.row<std::int32_t>(n); }
  Drawn drawn(int n) const { return Drawn(*tree.q.drawn.row<std::uint8_t>(n)); }
  int rank(int n) const {  // among the siblings
    int rank = 0;
    for (int m = 1; m < n; ++m) rank += parent(m) == parent(n);
    return rank;
  }
  int depth(int n) const { return n == 0 ? 0 : depth(parent(n)) + 1; }
  // The tokens of the sequence and of the path down to node n.
  Tokens context(int n) const {
    if (n == 0) return sequence.tokens;
    Tokens above = context(parent(n));
    above.push_back(tokens[std::size_t(n)]);
    return above;
  }
};

struct TreeScenario {
  TableModel::Options target{.vocab = 6, .order = 2, .seed = 31, .impossible = 0.1, .positions = 128};
  Sampling sampling{.temperature = 1};
  Budget budget{16, 4};
  EngineOptions engine{.batch = 4, .step_rows = 256, .page_rows = 2, .pages = 1024, .check = true};
  std::string verifier = "speculative_sampling";

  Subject subject(const json& drafter) const {
    json policy{{"name", "fixed"}, {"length", budget.depth}, {"nodes", budget.nodes}};
    if (budget.confidence > 0) policy["confidence"] = budget.confidence;
    return {all_registries(), {drafter, policy, {{"name", verifier}}}};
  }
  TableModel draft_of(const std::string& name) const { return TableModel(named_table(name, target)); }
};

inline std::vector<Proposed> proposals(const TreeScenario& s, const json& drafter, Backend& backend,
                                       std::span<const TestRequest> requests, const AfterStep& after = {}) {
  std::vector<Proposed> all;
  const auto record = [&](Host&, std::span<const DraftRequest> asked, std::span<const DraftTree> trees) {
    for (std::size_t i = 0; i < trees.size(); ++i) {
      Proposed& p = all.emplace_back(*asked[i].sequence, asked[i], trees[i]);
      for (int n = 0; n < p.tree.nodes; ++n)
        p.tokens.push_back(p.tree.drawn_at(n) ? *p.tree.drawn_at(n) : *p.tree.known.row<Token>(n));
    }
  };
  run_scenario({watched(s.subject(drafter), record),
                {.sampling = s.sampling, .engine = s.engine},
                backend,
                table_models(s.target),
                requests},
               after);
  return all;
}

}  // namespace foretoken::test
