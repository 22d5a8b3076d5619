// cascade: a chain of the middle model, whoever drafts for it.
#include <gtest/gtest.h>

#include "tests/drafters/parts_by_hand.h"
#include "tests/drafters/recorded_trees.h"

namespace foretoken::test {
namespace {

json cascade(const json& inner, const json& more = json::object(),
             const std::string& verifier = "speculative_sampling") {
  json config{{"name", "cascade"}, {"model", "table:other"}, {"inner", inner}, {"verifier", {{"name", verifier}}}};
  config.update(more);
  return config;
}
json model(const std::string& of) { return {{"name", "draft_model"}, {"model", of}}; }
const json kLookup{{"name", "ngram"}, {"longest", 2}, {"shortest", 1}};
json tree(const std::string& draws) {
  return {{"name", "draft_tree"}, {"model", "table:far"}, {"shape", {2, 1}}, {"cut", true}, {"draws", draws}};
}
json below(const json& middle, const json& inner, const json& more = json::object(),
           const std::string& verifier = "speculative_sampling") {
  json config = cascade(inner, more, verifier);
  config.erase("model"), config["middle"] = middle;
  return config;
}
const json kFewPages{{"name", "window"}, {"sinks", 1}, {"window", 2}}, kSelectedPages{{"name", "quest"}, {"budget", 4}};
// Models of the target's own: all that a drafter offers.
const std::vector<json> kParts{
    kFewPages,
    kSelectedPages,
    {{"name", "snapkv"}, {"budget", 6}, {"sinks", 2}, {"window", 2}, {"observe", 3}, {"every", 2}},
    {{"name", "h2o"}, {"budget", 6}, {"window", 2}, {"observe", 3}, {"every", 3}},
    {{"name", "layer_skip"}, {"attention", {0}}}};
json skip() { return {{"name", "layer_skip"}, {"attention", {0}}}; }

// Every node is below the one before, and its q is the middle model's, to the last bit.
void expect_chain(const TreeScenario& s, const TableModel& middle, const Proposed& p) {
  for (int n = 1; n < p.tree.nodes; ++n) {
    ASSERT_TRUE(p.parent(n) == n - 1 && p.drawn(n) == Drawn::chain);
    const Distributions& q = p.tree.q.distributions.at(std::size_t(n) - 1);
    ASSERT_EQ(q.count(), 1);
    const std::vector<double> expected = middle.distribution(p.context(n - 1), s.sampling.warp());
    for (Token x = 0; x < 6; ++x) ASSERT_EQ(q[0](x), expected[std::size_t(x)]) << "node " << n;
    ASSERT_GT(expected[std::size_t(p.tokens[std::size_t(n)])], 0);
  }
}

TEST(Cascade, ItsChainIsAsLongAsTheBudgetAndOfTheMiddleModel) {
  const auto backend = make_reference_backend();
  TreeScenario s;
  s.budget = {8, 7};
  const TableModel middle = s.draft_of("table:other");
  for (const auto& [inner, verifier] : std::vector<std::pair<json, std::string>>{
           {kLookup, "target_match"},
           {{{"name", "none"}}, "speculative_sampling"},
           {model("table:far"), "block_verification"},
           {model("table:same"), "speculative_sampling"},
           {tree("independent"), "k_seq"},
           {tree("without_replacement"), "traversal_verification"},
           {{{"name", "draft_dynamic"}, {"model", "table:same"}, {"width", 2}, {"expand", 2}}, "speculative_sampling"},
           {skip(), "speculative_sampling"},
           {{{"name", "window"}, {"sinks", 1}, {"window", 2}}, "speculative_sampling"},
           {{{"name", "first_hit"}, {"drafters", {kLookup, model("table:far")}}}, "speculative_sampling"}}) {
    SCOPED_TRACE(inner.dump());
    int full = 0, other = 0;
    for (const Proposed& p :
         proposals(s, cascade(inner, {{"nodes", 6}}, verifier), *backend, random_requests(6, 6, 10, 40, 1))) {
      expect_chain(s, middle, p);
      (p.tree.nodes - 1 == p.request.budget.chain() ? full : other) += p.request.budget.drafts();
    }
    EXPECT_GT(full, 30);
    EXPECT_EQ(other, 0) << "no chain is shorter than its budget";
  }
}

// At temperature 0, and where all draws are races, the chain is that of the middle model alone, token by token.
TEST(Cascade, IsTheChainOfTheMiddleModelWhereNoChanceIsLeft) {
  const auto backend = make_reference_backend();
  for (const bool races : {false, true}) {
    TreeScenario s;
    s.budget = {7, 6};
    if (races)
      s.verifier = "coupled";
    else
      s.sampling.temperature = 0;
    const auto requests = random_requests(5, 6, 10, 30, 1);
    const std::vector<Proposed> alone = proposals(s, model("table:other"), *backend, requests);
    for (const json& inner : {kLookup, model("table:far"), tree("independent"), skip()}) {
      SCOPED_TRACE(inner.dump());
      const std::vector<Proposed> found =
          proposals(s, cascade(inner, {{"length", 3}}, races ? "coupled" : "speculative_sampling"), *backend, requests);
      ASSERT_EQ(found.size(), alone.size());
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].tokens, alone[i].tokens) << i;
    }
  }
}

// So it is where the middle model is a part of the target, whatever pages it reads. Where it selects them, all rows of
// an inner round read those of its root, so only rounds of one token are those of the drafter that owns the model.
TEST(Cascade, IsTheChainOfThePartOfTheTargetWhereNoChanceIsLeft) {
  const auto backend = make_reference_backend();
  for (const bool races : {false, true}) {
    TreeScenario s;
    s.budget = {7, 6};
    s.target.order = 8;  // so that pages that are left out make another distribution
    if (races)
      s.verifier = "coupled";
    else
      s.sampling.temperature = 0;
    const auto requests = random_requests(5, 6, 20, 30, 1);
    std::vector<Tokens> of_parts;
    for (const json& middle : kParts) {
      const std::vector<Proposed> alone = proposals(s, middle, *backend, requests);
      Tokens all;
      for (const Proposed& p : alone) all.insert(all.end(), p.tokens.begin(), p.tokens.end());
      of_parts.push_back(all);
      const json none{{"name", "none"}};
      for (const json& inner : {none, kLookup, model("table:far"), tree("independent")}) {
        if (middle == kSelectedPages && inner != none) continue;
        SCOPED_TRACE(middle.dump() + inner.dump());
        const std::vector<Proposed> found = proposals(
            s, below(middle, inner, {{"length", 3}}, races ? "coupled" : "speculative_sampling"), *backend, requests);
        ASSERT_EQ(found.size(), alone.size());
        for (std::size_t i = 0; i < found.size(); ++i)
          ASSERT_EQ(found[i].tokens, alone[i].tokens) << i << " at " << found[i].sequence.length();
      }
    }
    for (std::size_t i = 0; i < of_parts.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) EXPECT_NE(of_parts[i], of_parts[j]) << "they read other pages";
  }
}

// An inner draft of which the middle model accepts everything: each inner round has its tokens and one more.
TEST(Cascade, ARoundHasAsManyInnerRoundsAsAreAllowed) {
  const auto backend = make_reference_backend();
  TreeScenario s;
  s.budget = {33, 32};
  for (const auto& [rounds, length, levels] : {std::tuple{1, 3, 4}, {2, 3, 8}, {3, 1, 6}, {1, 1, 2}}) {
    int seen = 0;
    for (const Proposed& p : proposals(s, cascade(model("table:other"), {{"rounds", rounds}, {"length", length}}),
                                       *backend, random_requests(3, 6, 10, 60, 1))) {
      if (p.request.budget.depth < 16) continue;  // near the end of the output
      EXPECT_EQ(p.tree.nodes - 1, levels) << rounds << " rounds of " << length;
      ++seen;
    }
    EXPECT_GT(seen, 5);
  }
  // One that finds nothing: the middle model's own token.
  for (const Proposed& p :
       proposals(s, cascade({{"name", "none"}}, {{"rounds", 3}}), *backend, random_requests(3, 6, 10, 9, 1)))
    EXPECT_LE(p.tree.nodes - 1, 3);
}

TEST(Cascade, EndsWhereTheMiddleModelIsUnsure) {
  const auto backend = make_reference_backend();
  TreeScenario s;
  s.budget = {4, 3, 0.6f};
  const TableModel middle = s.draft_of("table:other");
  int whole = 0, ended = 0;
  for (const Proposed& p :
       proposals(s, cascade(model("table:far"), {{"length", 2}}), *backend, random_requests(6, 6, 10, 40, 1))) {
    if (!p.request.budget.drafts()) continue;
    expect_chain(s, middle, p);
    for (int n = 0; n < p.tree.nodes; ++n) {
      const bool last = n + 1 == p.tree.nodes;
      if (last && n == p.request.budget.chain()) continue;
      EXPECT_EQ(std::ranges::max(middle.distribution(p.context(n), Warp{1})) < 0.6, last) << n;
    }
    ++(p.tree.nodes - 1 == p.request.budget.chain() ? whole : ended);
  }
  EXPECT_GT(whole, 0);
  EXPECT_GT(ended, 20);
}

// What the inner drafter is asked for, by hand: scripted inner drafters, and a middle model.
class ByHand {
 public:
  explicit ByHand(const json& config) : drafter_(registries_.drafters.make(config, host_)) {}
  DraftTree draft(const std::vector<Token>& tokens, const Budget& budget, float temperature) {
    sequence_.id = 1, sequence_.tokens = tokens, sequence_.prompt_length = 2;
    sequence_.sampling.temperature = temperature;
    DraftRequest r;
    r.sequence = &sequence_, r.budget = budget, r.rows = 64, r.draws = {1, 1, std::uint32_t(tokens.size()), 0};
    return std::move(drafter_->draft({&r, 1}).front());
  }
  Token best_after(std::vector<Token> context, const std::vector<Token>& more) const {
    context.insert(context.end(), more.begin(), more.end());
    const auto logits = middle_->logits(context);
    return Token(std::ranges::max_element(logits) - logits.begin());
  }
  ArmLog& log() { return logs_[0]; }
  Drafter& drafter() { return *drafter_; }
  const Sequence& sequence() const { return sequence_; }
  int pages() const { return pool_.in_use(); }

 private:
  ArmLogs logs_;
  Registries registries_ = with_arms(logs_);
  std::unique_ptr<Backend> backend_ = make_reference_backend();
  PagePool pool_{*backend_, 64, 64};
  TableModel::Options options_{.vocab = 10, .order = 3, .seed = 5};
  std::shared_ptr<TableModel> middle_ = std::make_shared<TableModel>(options_);
  Host host_{*backend_,       pool_,
             middle_->info(), [this](const ModelChoice&) { return middle_; },
             false,           Host::Offers{.registries = &registries_}};
  std::unique_ptr<Drafter> drafter_;
  Sequence sequence_;
};

TEST(Cascade, AsksForTheRestOfItsChainUnderDrawsOfEachRoundsOwn) {
  ByHand c(cascade(arm(0, json::array()), {{"model", "middle"}, {"length", 2}}));  // which finds nothing
  const DraftTree chain = c.draft({1, 2}, {13, 12}, 1);
  EXPECT_EQ(chain.nodes, 13);
  ASSERT_EQ(c.log().budgets.size(), 11u) << "the last token is the model's own";
  for (std::uint32_t depth = 0; depth < 11; ++depth) {
    const Budget expected = depth < 10 ? Budget{3, 2} : Budget{2, 1};
    EXPECT_EQ(c.log().budgets[depth], expected) << depth;
    const Draws& d = c.log().draws[depth];
    EXPECT_EQ(d.scope, (Draws{1, 1, 2, 0}.within(depth / 8).within(depth % 8).scope));
    EXPECT_EQ(d.root, 2u) << "the root of the round, not a position";
  }
}

// A guess is accepted as far as it is what the model holds most probable; then comes the model's own token.
TEST(Cascade, TheModelJudgesWhatTheInnerDrafterFinds) {
  const std::vector<Token> text{1, 2};
  const ByHand oracle(cascade(arm(0, json::array()), {{"model", "middle"}}));
  std::vector<Token> best;
  for (int i = 0; i < 5; ++i) best.push_back(oracle.best_after(text, best));
  const Token wrong = best[1] == 0 ? 1 : 0;
  for (const auto& [guess, rounds, found] : {std::tuple{std::vector<Token>{best[0], best[1]}, 1, 3},
                                             {std::vector<Token>{best[0], wrong}, 1, 2},
                                             {std::vector<Token>{best[0], wrong}, 2, 3}}) {
    ByHand c(cascade(arm(0, {guess}), {{"model", "middle"}, {"length", 2}, {"rounds", rounds}}));
    const DraftTree chain = c.draft(text, {6, 5}, 0);
    if (best[2] != guess[0] || rounds == 1) {
      EXPECT_EQ(chain.nodes - 1, found);
    }
    for (int n = 1; n < chain.nodes; ++n) EXPECT_EQ(*chain.known.row<Token>(n), best[std::size_t(n) - 1]);
  }
}

TEST(Cascade, HoldsNothingOfASequenceThatItForgot) {
  ByHand c(cascade(arm(0, {{1, 2}}), {{"model", "middle"}}));
  (void)c.draft({1, 2}, {6, 5}, 1);
  EXPECT_GT(c.pages(), 0);
  EXPECT_TRUE(c.log().observed.empty()) << "nobody hears of inner trees";
  c.drafter().forget(c.sequence());
  EXPECT_EQ(c.pages(), 0);
  EXPECT_EQ(c.log().forgotten, 1);
}

class CascadeRefusals : public ::testing::Test {
 protected:
  std::string refusal(const json& drafter, const std::string& verifier = "speculative_sampling") {
    return sentence_of([&] {
      const json fixed{{"name", "fixed"}, {"length", 4}};
      const ComponentConfigs configs{registries_.drafters.complete(drafter), registries_.policies.complete(fixed),
                                     registries_.verifiers.complete({{"name", verifier}})};
      const ModelInfo target = TableModel({.vocab = 6}).info();
      (void)fitting_traits(registries_, configs, target);
      const auto backend = make_reference_backend();
      PagePool pool(*backend, 64, 8);
      Host host(
          *backend, pool, target,
          [](const ModelChoice&) { return std::make_shared<TableModel>(TableModel::Options{.vocab = 6}); }, false,
          Host::Offers{.registries = &registries_});
      (void)registries_.drafters.make(configs.drafter, host);
    });
  }
  Registries registries_ = all_registries();
};

TEST_F(CascadeRefusals, ComeInOneSentence) {
  EXPECT_EQ(refusal(cascade(kLookup)), "");
  EXPECT_TRUE(says(refusal(cascade({{"name", "recycling"}})),
                   "inner drafter \"recycling\", which cannot draft below tokens that the target has not verified"));
  EXPECT_TRUE(says(refusal(cascade({{"name", "suffix"}})), "cannot draft below tokens"));
  EXPECT_TRUE(
      says(refusal(cascade({{"name", "eagle"}, {"head", {{"random", "small"}}}})), "cannot draft below tokens"));
  EXPECT_TRUE(says(refusal(cascade({{"name", "longest"}, {"drafters", {kLookup, {{"name", "recycling"}}}}})),
                   "inner drafter \"longest\", which cannot draft below tokens"));
  EXPECT_TRUE(says(refusal(cascade(cascade(kLookup))), "is inside another one of its name"));
  EXPECT_TRUE(
      says(refusal(cascade(kLookup, json::object(), "typical_acceptance")), "promises \"lossy", "choose an exact one"));
  EXPECT_TRUE(
      says(refusal(cascade(tree("without_replacement"))), "'draft_tree', whose nodes are drawn 'without_replacement'"));
  EXPECT_TRUE(says(refusal(cascade(kLookup, {{"length", 4}, {"nodes", 4}})), "raise 'nodes' above 'length'"));
  json whole = tree("independent");
  whole["cut"] = false;
  EXPECT_TRUE(says(refusal(cascade(whole, {{"length", 1}})), "a shape of 5 nodes", "gives it 2 and 1"));
}

TEST_F(CascadeRefusals, OfAMiddleModelThatIsNone) {
  EXPECT_TRUE(says(refusal(below(kLookup, kLookup)), "option 'middle'", "'ngram' offers no model",
                   "h2o, layer_skip, quest, snapkv, window"));
  json both = below(kFewPages, kLookup);
  both["model"] = "table:other";
  EXPECT_TRUE(says(refusal(both), "'model' and 'middle'", "leave one of them out"));
  both.erase("model"), both.erase("middle");
  EXPECT_TRUE(says(refusal(both), "needs the option 'model' or 'middle' in its place"));
  EXPECT_TRUE(says(refusal(below(kFewPages, kLookup, {{"dtype", "bf16"}})), "'dtype'", "is of its 'model'",
                   "'middle' takes", "leave it out"));
  json grown = kSelectedPages;
  grown["growth"] = "tree";
  EXPECT_TRUE(
      says(refusal(below(grown, kLookup)), "'growth' says how the drafter 'quest' draws trees", "leave it out"));
  grown = kSelectedPages, grown["temperature"] = 0.5;
  EXPECT_TRUE(says(refusal(below(grown, kLookup)), "'temperature' says how"));
  EXPECT_TRUE(says(refusal(below(kFewPages, skip())), "inner drafter \"layer_skip\"", "middle model of \"window\"",
                   "both draft in the target's cache"));
}

// Where noise is named by position alone, a second round of the other kind would meet what the first one has looked at.
TEST_F(CascadeRefusals, VerifiersOfTwoWaysToDraw) {
  EXPECT_EQ(refusal(cascade(kLookup, json::object(), "coupled"), "coupled"), "");
  EXPECT_TRUE(
      says(refusal(cascade(kLookup, json::object(), "coupled")), "draws races by position, unlike the verifier"));
  EXPECT_TRUE(
      says(refusal(cascade(kLookup), "coupled"), "draws no races by position, while the verifier 'coupled' does"));
}

}  // namespace
}  // namespace foretoken::test
