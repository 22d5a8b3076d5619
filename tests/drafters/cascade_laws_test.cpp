// cascade by enumeration: every outcome of every draw of inner and outer rounds, with chains that end by the budget, by
// a number of inner rounds and by confidence, under rules that judge token by token and whole paths; and that the
// enumeration sees draws that two rounds share.
#include <gtest/gtest.h>

#include "kernels/reference/reference_backend.h"
#include "tests/laws/mutant_scenario.h"
#include "tests/support/around.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

const json kFar{{"name", "draft_model"}, {"model", "table:far"}},
    kNgram{{"name", "ngram"}, {"longest", 2}, {"shortest", 1}},
    kSiblings{{"name", "draft_tree"}, {"model", "table:far"}, {"shape", {2}}, {"cut", true}};

json cascade_of(const json& inner, const std::string& verifier, const json& more) {
  json config{{"name", "cascade"}, {"model", "table:other"}, {"inner", inner}, {"verifier", {{"name", verifier}}}};
  config.update(more);
  return config;
}

Subject judged_by(const json& drafter, const std::string& verifier, int length, double confidence = 0) {
  Subject s = subject(all_registries(), drafter, {{"name", verifier}}, length);
  if (confidence > 0) s.configs.policy["confidence"] = confidence;
  return s;
}

// The number of tokens after which a second round of the outer verifier is looked at.
ExactCase of_tokens(int tokens) {
  return {.target = {.vocab = 2, .order = 2, .seed = 83, .impossible = 0}, .prompts = {{0, 1, 1}}, .tokens = tokens};
}

TEST(CascadeLaws, TheOutputsDistributionIsTheTargets) {
  const json once{{"length", 1}, {"rounds", 1}}, twice{{"length", 1}, {"rounds", 2}}, whole{{"length", 2}};
  for (const auto& [inner, verifier, more, outer, length] :
       std::vector<std::tuple<json, std::string, json, std::string, int>>{
           {kFar, "speculative_sampling", whole, "block_verification", 2},
           {kFar, "block_verification", {{"length", 2}, {"rounds", 1}}, "block_verification", 3},
           {kFar, "speculative_sampling", once, "traversal_verification", 3},
           {kFar, "target_match", twice, "speculative_sampling", 3},
           {kSiblings, "k_seq", {{"length", 1}, {"nodes", 3}, {"rounds", 1}}, "block_verification", 3},
           {kNgram, "speculative_sampling", whole, "block_verification", 3},
           {kNgram, "speculative_sampling", twice, "target_match", 3},
           {kFar, "coupled", once, "coupled", 2}}) {
    const Finding f = exact(judged_by(cascade_of(inner, verifier, more), outer, length), of_tokens(3));
    EXPECT_TRUE(f.holds) << f.what << ": " << f.why;
    EXPECT_GT(f.cases, 20) << f.what;
    EXPECT_GT(f.accepted, 0) << f.what;
  }
}

json within_of(const json& middle, const json& inner, const json& more, const std::string& verifier) {
  json config = cascade_of(inner, verifier, more);
  config.erase("model"), config["middle"] = middle;
  return config;
}

// Pages of one row: of the prompt's four that are before the root, the view has one or two.
ExactCase on_few_pages(int tokens) {
  return {.target = {.vocab = 2, .order = 3, .seed = 83, .impossible = 0},
          .prompts = {{1, 0, 0, 1, 1}},
          .tokens = tokens,
          .scenario = {.engine = {.batch = 4, .step_rows = 256, .page_rows = 1, .pages = 128, .check = true}}};
}
const json kThin{{"name", "window"}, {"sinks", 1}, {"window", 1}}, kSelected{{"name", "quest"}, {"budget", 1}},
    kHeavy{{"name", "h2o"}, {"budget", 2}, {"window", 1}, {"observe", 1}, {"every", 1}},
    kSnap{{"name", "snapkv"}, {"budget", 2}, {"sinks", 0}, {"window", 1}, {"observe", 1}, {"every", 1}};

TEST(CascadeLaws, SoItIsWhereTheMiddleModelReadsFewOfTheTargetsPages) {
  const json once{{"length", 1}, {"rounds", 1}}, whole{{"length", 2}};
  for (const auto& [middle, inner, verifier, more, outer, length] :
       std::vector<std::tuple<json, json, std::string, json, std::string, int>>{
           {kThin, kFar, "speculative_sampling", whole, "block_verification", 2},
           {kThin, kNgram, "speculative_sampling", once, "target_match", 3},
           {kSelected, kFar, "speculative_sampling", whole, "block_verification", 2},
           {kSelected, kFar, "block_verification", once, "speculative_sampling", 3},
           {kSelected, kSiblings, "k_seq", {{"length", 1}, {"nodes", 3}, {"rounds", 1}}, "block_verification", 2},
           {kSelected, kNgram, "speculative_sampling", whole, "speculative_sampling", 3},
           {kHeavy, kFar, "speculative_sampling", whole, "block_verification", 2},
           {kSnap, kFar, "speculative_sampling", whole, "block_verification", 2},
           {kSelected, kFar, "coupled", once, "coupled", 2}}) {
    const Finding f = exact(judged_by(within_of(middle, inner, more, verifier), outer, length), on_few_pages(3));
    EXPECT_TRUE(f.holds) << f.what << ": " << f.why;
    EXPECT_GT(f.cases, 20) << f.what;
    EXPECT_GT(f.accepted, 0) << f.what;
  }
}

// Lets all rows of a forward choose pages, so that drafted tokens choose what the model that judges them reads.
class AllRowsChoose final : public ReferenceBackend {
 public:
  Tensor select_pages(const Tensor& q, const KvLayer& kv, const Layout& layout) override {
    Layout all = layout;
    all.selection.choosing = {};
    return ReferenceBackend::select_pages(q, kv, all);
  }
};

TEST(CascadeLaws, PagesThatDraftedTokensChooseAreSeen) {
  const Subject s = judged_by(within_of(kSelected, kFar, {{"length", 1}, {"rounds", 1}}, "speculative_sampling"),
                              "block_verification", 2);
  ExactCase c = on_few_pages(3);
  EXPECT_FALSE(refuted(exact(s, c)));
  c.backend = [] { return std::make_unique<AllRowsChoose>(); };
  EXPECT_TRUE(refuted(exact(s, c)));
}

TEST(CascadeLaws, SoItIsWhereChainsEndByConfidence) {
  const Finding f = exact(
      judged_by(cascade_of(kFar, "speculative_sampling", {{"length", 1}}), "block_verification", 2, 0.6), of_tokens(3));
  EXPECT_TRUE(f.holds) << f.what << ": " << f.why;
}

// Draws the target's own token where its raw distribution gives the token 0 more, else follows a guess.
struct ByRaw {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    const Token next = lane.draw(t.p(0), {Role::bonus, 0, 0});
    const int child = t.raw(0)(0) > 0.4 ? -1 : t.match(0, next);
    if (child < 0) return v.finish(next), v;
    v.follow(child, next);
    v.finish(lane.draw(t.p(child), {Role::bonus, std::uint32_t(child), 0}));
    return v;
  }
};

TEST(CascadeLaws, TheInnerVerifierReadsRawDistributions) {
  Subject s = judged_by(cascade_of(kFar, "by_raw", {{"length", 1}}), "block_verification", 2);
  s.registries.verifiers.add(
      "by_raw",
      entry_that<Verifier>(
          states(Soundness{.takes = {Drawn::certain, Drawn::chain}, .acceptance = Acceptance::other, .raw = true}),
          [](const json&, Host&) { return std::make_unique<RuleVerifier<ByRaw>>(); }));
  const Finding f = exact(s, of_tokens(3));
  EXPECT_TRUE(f.holds) << f.what << ": " << f.why;
}

// Takes the last token of a chain back where it is a 0.
class TakesBack : public Around {
 public:
  using Around::Around;
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = Around::draft(requests);
    for (DraftTree& tree : trees) {
      if (tree.nodes == 1 || *tree.known.row<Token>(tree.nodes - 1) != 0) continue;
      tree.q.distributions.resize(std::size_t(--tree.nodes) - 1);
    }
    return trees;
  }
};

// The law `causal` cannot force a token that several draws make, so the enumeration alone shows it.
TEST(CascadeLaws, AChainThatEndsByItsOwnLastTokenIsSeen) {
  Registries r = all_registries();
  r.drafters.add("takes back",
                 {"",
                  "",
                  {{"of", "drafter", nullptr, ""}},
                  [](const json& o, Host& host) { return std::make_unique<TakesBack>(host.drafter(o.at("of"))); },
                  states(Needs{.proposes = {Drawn::chain}})});
  const json chain = cascade_of(kFar, "speculative_sampling", {{"length", 1}});
  const Subject s = subject(r, {{"name", "takes back"}, {"of", chain}}, {{"name", "speculative_sampling"}}, 2);
  EXPECT_TRUE(refuted(exact(s, of_tokens(3))));
}

// Each renames the draws of inner rounds, whose scope has two digits of base eight, 1 to 8 each.
TEST(CascadeLaws, DrawsThatTwoRoundsShareAreSeen) {
  const Subject s = judged_by(cascade_of(kFar, "speculative_sampling", {{"length", 1}}), "block_verification", 3);
  ExactCase c = of_tokens(3);
  const auto refuted_by = [&](const RenamingBackend::Rename& rename) {
    c.backend = RenamingBackend::make(rename);
    return refuted(exact(s, c));
  };
  EXPECT_TRUE(refuted_by([](Draws& d, DrawName&) {
    if (d.scope > 0) d.scope = 9;
  })) << "all inner rounds of a round";
  EXPECT_TRUE(refuted_by([](Draws& d, DrawName&) { d.scope = 0; })) << "inner and outer verifier";
  EXPECT_TRUE(refuted_by([](Draws& d, DrawName&) {
    if (d.scope > 0) d.root += (d.scope - 1) % 8, d.scope = 9;
  })) << "inner rounds named by their position alone";
  EXPECT_FALSE(refuted_by([](Draws&, DrawName&) {}));
}

}  // namespace
}  // namespace foretoken::test
