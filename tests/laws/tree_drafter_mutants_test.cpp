// Planted bugs in drafters of trees, each killed by the law that the test names, as `foretoken check` runs it. The same
// drafter without the bug holds.
#include <functional>

#include <gtest/gtest.h>

#include "experiments/conformance/law_table.h"
#include "tests/support/mutants.h"

namespace foretoken::test {

using namespace conformance;

namespace {

using nlohmann::json;

// What is done to the requests before, and to the trees after, each call of draft_tree.
struct Fault {
  std::function<void(std::vector<DraftRequest>&)> before{};
  std::function<void(Backend&, const DraftRequest&, DraftTree&)> after{};
  std::optional<Drawn> proposes{};  // declared instead of what draft_tree declares
  bool every_other_call = false;
};

class Faulty : public Drafter {
 public:
  Faulty(std::unique_ptr<Drafter> inner, Backend& backend, Fault fault)
      : inner_(std::move(inner)), backend_(backend), fault_(std::move(fault)) {}
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftRequest> changed(requests.begin(), requests.end());
    if (fault_.before) fault_.before(changed);
    std::vector<DraftTree> trees = inner_->draft(changed);
    if (fault_.every_other_call && ++calls_ % 2 == 0) return trees;
    for (std::size_t i = 0; fault_.after && i < trees.size(); ++i) fault_.after(backend_, requests[i], trees[i]);
    return trees;
  }

 private:
  std::unique_ptr<Drafter> inner_;
  Backend& backend_;
  Fault fault_;
  long calls_ = 0;
};

Drawn& drawn_of(DraftTree& t, int n) { return *reinterpret_cast<Drawn*>(t.q.drawn.row<std::uint8_t>(n)); }
Token& token_of(DraftTree& t, int n) { return *t.tokens.row<Token>(n); }
int parent_of(const DraftTree& t, int n) { return *t.parents.row<std::int32_t>(n); }

void call_all(DraftTree& t, Drawn as) {
  for (int n = 1; n < t.nodes; ++n)
    if (drawn_of(t, n) != Drawn::certain) drawn_of(t, n) = as;
}

// A draft_tree with this fault, under this verifier.
Candidate candidate_of(const std::string& draws, const std::string& verifier, const Fault& fault) {
  Registries registries = all_registries();
  Entry<Drafter> entry = registries.drafters.entries().at("draft_tree");
  entry.make = [make = entry.make, fault](const json& o, Host& host) {
    return std::make_unique<Faulty>(make(o, host), host.backend(), fault);
  };
  entry.traits = [traits = entry.traits, fault](const json& o, const ModelInfo& target) {
    Needs needs = traits(o, target);
    if (fault.proposes) needs.proposes = {Drawn::certain, *fault.proposes};
    return needs;
  };
  registries.drafters.add("tree", entry);
  const json drafter{{"name", "tree"}, {"model", "table:other"}, {"shape", {2, 2, 1}}, {"draws", draws}};
  return candidate({registries, {drafter, {{"name", "fixed"}, {"length", 4}}, {{"name", verifier}}}}, false);
}

// Why the first scenario of the law fails that does; empty if none does.
std::string broken(const std::string& law, const Candidate& candidate) {
  const auto at = std::ranges::find(kit_laws(), law, &KitLaw::name);
  EXPECT_EQ(at->inapplicable(candidate, {}), "");
  for (const LawCase& c : at->cases(candidate, {}))
    if (const Finding f = c.run(); !f.holds) return f.why;
  return "";
}

// The law fails, and for this reason.
void killed_by(const std::string& law, const std::string& reason, const std::string& draws, const std::string& verifier,
               const Fault& fault) {
  const std::string why = broken(law, candidate_of(draws, verifier, fault));
  EXPECT_NE(why.find(reason), std::string::npos) << law << ": " << why;
}
const std::string kOtherDistribution = "total variation";

TEST(TreeDrafters, WithoutAFaultHold) {
  for (const char* law : {"acceptance", "limits", "memory", "causal"}) {
    EXPECT_EQ(broken(law, candidate_of("independent", "speculative_sampling", {})), "") << law;
    EXPECT_EQ(broken(law, candidate_of("without_replacement", "without_replacement", {})), "") << law;
  }
}

TEST(TreeDrafterMutants, IndependentSiblingsCalledWithoutRepeatsAreKilledByExact) {
  killed_by("exact", "which were drawn 'without_replacement'", "independent", "without_replacement",
            {.after = [](Backend&, const DraftRequest&, DraftTree& t) { call_all(t, Drawn::without_replacement); },
             .proposes = Drawn::without_replacement});
}

TEST(TreeDrafterMutants, SiblingsWithoutRepeatsCalledIndependentAreKilledByExact) {
  killed_by("exact", kOtherDistribution, "without_replacement", "speculative_sampling",
            {.after = [](Backend&, const DraftRequest&, DraftTree& t) { call_all(t, Drawn::independent); },
             .proposes = Drawn::independent});
}

TEST(TreeDrafterMutants, SiblingsThatAreSortedByTheirOwnQAreKilledByExact) {
  killed_by("exact", kOtherDistribution, "without_replacement", "without_replacement",
            {.after = [](Backend&, const DraftRequest&, DraftTree& t) {
              if (t.nodes < 3 || parent_of(t, 2) != 0 || drawn_of(t, 1) == Drawn::certain) return;
              const Distribution q = t.q.distributions[0][0];
              if (t.nodes == 3 && q(token_of(t, 1)) < q(token_of(t, 2))) std::swap(token_of(t, 1), token_of(t, 2));
            }});
}

TEST(TreeDrafterMutants, EqualSiblingsOfWhichOneIsRemovedAreKilledByExact) {
  killed_by("exact", kOtherDistribution, "independent", "speculative_sampling",
            {.after = [](Backend&, const DraftRequest&, DraftTree& t) {
              for (int n = 2; n < t.nodes; ++n)
                if (parent_of(t, n) == parent_of(t, n - 1) && token_of(t, n) == token_of(t, n - 1))
                  token_of(t, n - 1) = -1;
            }});
}

const Fault kRemovesImprobable{.after = [](Backend&, const DraftRequest&, DraftTree& t) {
  for (int n = 1; n < t.nodes; ++n)
    if (drawn_of(t, n) != Drawn::certain && t.q.distributions[std::size_t(parent_of(t, n))][0](token_of(t, n)) < 0.3)
      token_of(t, n) = -1;
}};
TEST(TreeDrafterMutants, ImprobableNodesThatAreMadeAbsentAreKilledByExactAndCausal) {
  killed_by("exact", kOtherDistribution, "independent", "speculative_sampling", kRemovesImprobable);
  killed_by("causal", "depends on its own token", "independent", "speculative_sampling", kRemovesImprobable);
}

// What is reported is what was drawn from, so the output stays exact; but the drafts are bad.
TEST(TreeDrafterMutants, ASecondBranchThatIsDraftedAsTheFirstIsKilledByLimits) {
  killed_by("limits", "from another distribution than the target's", "independent", "speculative_sampling",
            {.after = [](Backend& backend, const DraftRequest& r, DraftTree& t) {
              auto& q = t.q.distributions;
              if (q.size() < 3 || !q[1] || !q[2]) return;
              q[2] = q[1];
              for (int n = 3, sibling = 0; n < t.nodes; ++n) {
                if (parent_of(t, n) != 2) continue;
                const TokenDraw draw = r.draw(n, 2, sibling++);
                backend.draw(q[2], {&draw, 1}, t.tokens.rows(n, 1));
              }
            }});
}

TEST(TreeDrafterMutants, AReportedTemperatureThatWasNotUsedIsKilledByExact) {
  killed_by("exact", kOtherDistribution, "independent", "speculative_sampling",
            {.after = [](Backend& backend, const DraftRequest&, DraftTree& t) {
              const Warp warp{.temperature = 0.5f};
              for (Distributions& q : t.q.distributions)
                if (q) q = backend.distributions(q.logits, {&warp, 1});
            }});
}

TEST(TreeDrafterMutants, NamesWithoutTheRoundAreKilledByExact) {
  killed_by("exact", kOtherDistribution, "independent", "speculative_sampling",
            {.before = [](std::vector<DraftRequest>& requests) {
              for (DraftRequest& r : requests) r.draws.root = 1;
            }});
}

TEST(TreeDrafterMutants, TreesThatDependOnTheNumberOfCallsAreKilledByMemory) {
  killed_by("memory", " at length ", "independent", "speculative_sampling",
            {.after = [](Backend&, const DraftRequest&, DraftTree& t) { t.nodes = std::min(t.nodes, 2); },
             .every_other_call = true});
}

// Kinds: what a node is called, and what Needs::proposes declares, against how its token came about.
const Fault kCallsCertain{.after = [](Backend&, const DraftRequest&, DraftTree& t) { call_all(t, Drawn::certain); },
                          .proposes = Drawn::certain};
TEST(TreeDrafterMutants, DrawsThatAreCalledCertainAreKilledByCausal) {
  killed_by("causal", "called 'certain', holds the token of a draw", "independent", "speculative_sampling",
            kCallsCertain);
  killed_by("causal", "called 'certain', holds the token of a draw", "without_replacement", "without_replacement",
            kCallsCertain);
  killed_by("causal", "called 'certain', holds the token of a draw", "independent", "coupled", kCallsCertain);
}

TEST(TreeDrafterMutants, GuessesThatAreCalledDrawnAreKilledByCausal) {
  killed_by("causal", "called 'independent', holds the token of no draw", "independent", "speculative_sampling",
            {.after = [](Backend&, const DraftRequest&, DraftTree& t) {
              t.nodes = std::min(t.nodes, 3);  // what is deeper depends on what was drawn
              for (int n = 1; n < t.nodes; ++n)
                if (drawn_of(t, n) == Drawn::independent)
                  token_of(t, n) = t.q.distributions[std::size_t(parent_of(t, n))][0].row.greedy;
            }});
}

TEST(TreeDrafterMutants, SiblingsWithoutRepeatsCalledIndependentAreKilledByCausal) {
  killed_by("causal", "called 'independent', was drawn with the probability", "without_replacement",
            "speculative_sampling",
            {.after = [](Backend&, const DraftRequest&, DraftTree& t) { call_all(t, Drawn::independent); },
             .proposes = Drawn::independent});
}

TEST(TreeDrafterMutants, KindsThatAreNotDeclaredAreRefused) {
  killed_by("exact", "the drafter 'tree' returned the node 1, drawn 'independent', which its Needs::proposes does not",
            "independent", "speculative_sampling", {.proposes = Drawn::certain});
  killed_by("exact", "the drafter 'tree' returned the node 1, drawn 'independent', which its Needs::proposes does not",
            "independent", "speculative_sampling", {.proposes = Drawn::chain});
  killed_by("exact", "the drafter 'tree' returned the node 1, drawn 'chain', with siblings", "independent",
            "speculative_sampling",
            {.after = [](Backend&, const DraftRequest&, DraftTree& t) { call_all(t, Drawn::chain); },
             .proposes = Drawn::chain});
}

TEST(TreeDrafterMutants, NodesThatAreLeftOutByTheTokenOfAnEarlierOneAreNoBug) {
  EXPECT_EQ("", broken("causal", candidate_of("independent", "speculative_sampling",
                                              {.after = [](Backend&, const DraftRequest&, DraftTree& t) {
                                                if (t.nodes > 2 && token_of(t, 1) == 0) t.nodes = 2;
                                              }})));
}

}  // namespace
}  // namespace foretoken::test
