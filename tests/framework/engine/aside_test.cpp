// Nodes aside are fed, and their ranks come with the outcome; whoever verifies sees none of them.
#include "experiments/conformance/devices.h"
#include "tests/framework/engine/offers_scenario.h"

namespace foretoken::test {
namespace {

// Every token of the vocabulary below the root, aside, so that one of them is what the target says; below each of these
// a second one. If `guesses`, then guesses of all tokens too, with a node aside below each.
class Aside : public Drafter {
 public:
  using See = std::function<void(const Outcome&, const std::vector<Token>& fed)>;
  Aside(Host& host, bool guesses, See see)
      : backend_(host.backend()), vocab_(host.target().vocab), guesses_(guesses), see_(std::move(see)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      DraftTree& tree = trees[i];
      if (requests[i].budget.nodes < 1 + 4 * vocab_ || requests[i].budget.depth < 2) continue;
      for (const Drawn how : {Drawn::aside, Drawn::certain})
        for (Token x = 0; x < vocab_ && (guesses_ || how == Drawn::aside); ++x)
          tree.guess(tree.guess(0, x, how), (x + 1) % vocab_, Drawn::aside);
      fed_.assign(tree.known.data<Token>(), tree.known.data<Token>() + tree.nodes);
    }
    return trees;
  }
  void observe(std::span<const Outcome> outcomes) override {
    for (const Outcome& o : outcomes)
      if (o.tree->nodes > 1) see_(o, fed_);
  }

 private:
  Backend& backend_;
  int vocab_;
  bool guesses_;
  See see_;
  std::vector<Token> fed_;  // of the last tree: the tests have one sequence
};

struct AsideNodes : Offers {
  int accepted = 0, drafted = 0, nothing = 0, ranked = 0;

  void draft(bool guesses) {
    registries.drafters.replace(
        "mine", {"",
                 "",
                 {},
                 [this, guesses](const json&, Host& h) {
                   return std::make_unique<Aside>(h, guesses, [this](const auto& o, const auto& fed) { see(o, fed); });
                 },
                 [](const json&, const ModelInfo&) { return Needs{.proposes = {Drawn::certain}, .ranks = 1}; }});
    configs.drafter = {{"name", "mine"}}, configs.policy = {{"name", "fixed"}, {"length", 4}, {"nodes", 64}};
  }
  void see(const Outcome& o, const std::vector<Token>& fed) {
    for (int n = 1; n < o.tree->nodes; ++n)
      EXPECT_EQ(*o.tree->known.row<Token>(n), o.tree->aside(n) ? -1 : fed[std::size_t(n)]);
    for (int k = 0; k < o.verdict->length; ++k) EXPECT_FALSE(o.tree->aside(o.verdict->path[k]));
    if (!o.sequence->running()) return;  // its last tokens may have been cut off
    Tokens before = o.sequence->tokens;
    before.resize(before.size() - std::size_t(o.verdict->length + 1));
    for (int n = 0; n < o.tree->nodes; ++n, ++ranked) {
      Tokens path;
      for (int m = n; m > 0; m = *o.tree->parents.row<std::int32_t>(m)) path.insert(path.begin(), fed[std::size_t(m)]);
      path.insert(path.begin(), before.begin(), before.end());
      const auto logits = dynamic_cast<const conformance::TableModel&>(*models.target).logits(path);
      EXPECT_EQ(o.ranks.row<Token>(n)[0], Token(std::ranges::max_element(logits) - logits.begin())) << "node " << n;
    }
  }
  Tokens served(float temperature) {
    accepted = drafted = nothing = 0;
    const auto e = engine();
    e->submit(request({1, 2, 3}, 12, temperature));
    Tokens tokens;
    while (!e->idle()) {
      const StepReport report = without_failures(e->step());
      for (const SequenceReport& r : report.sequences)
        accepted += r.accepted, drafted += r.drafted, nothing += r.no_draft == NoDraft::nothing;
      for (const Sequence& s : report.finished) tokens = s.tokens;
    }
    return tokens;
  }
};

TEST_F(AsideNodes, NoVerifierSeesThem) {
  for (const std::string& verifier : registries.verifiers.names()) {
    SCOPED_TRACE(verifier);
    configs = {{{"name", "none"}}, {{"name", "fixed"}, {"length", 0}}, {{"name", verifier}}};
    const Tokens plain = served(0);
    draft(false);
    EXPECT_EQ(served(0), plain);
    EXPECT_EQ(accepted, 0) << "though one of them holds the target's token";
    EXPECT_EQ(drafted, 0);
    EXPECT_GT(nothing, 8) << "what is only fed is no draft";
    served(1);
    EXPECT_EQ(accepted, 0);
  }
  EXPECT_GT(ranked, 1000);
}

TEST_F(AsideNodes, StandBesideGuesses) {
  configs.verifier = {{"name", "target_match"}};
  draft(true);
  const Tokens tokens = served(0);
  EXPECT_GT(accepted, 3);
  EXPECT_EQ(drafted % models.target->info().vocab, 0) << "the guesses alone";
  backend = std::make_unique<conformance::SimulatedDevice>();
  EXPECT_EQ(served(0), tokens) << "on a device with memory of its own";
  EXPECT_GT(accepted, 3);
}

}  // namespace
}  // namespace foretoken::test
