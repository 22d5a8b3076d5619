// A drafter whose guesses are the siblings of draws is judged by the laws that say what such families are: it holds,
// and a sibling that is left out by its own token is found.
#include <gtest/gtest.h>

#include "experiments/conformance/law_table.h"
#include "framework/components/round_model.h"

namespace foretoken::test {

using namespace conformance;

namespace {

using nlohmann::json;

// Below the root the most probable token, as a guess, and two draws from the distribution; at temperature 0 the guess.
class GuessAndDraws : public Drafter {
 public:
  GuessAndDraws(Host& host, std::shared_ptr<Model> model, bool absent_if_guessed)
      : backend_(host.backend()), model_(host, std::move(model)), absent_if_guessed_(absent_if_guessed) {}
  void forget(const Sequence& s) override { model_.forget(s); }
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    const auto [segments, active] = model_.begin(requests, trees, [](const DraftRequest&) { return 1; });
    if (segments.empty()) return trees;
    const Output out = model_.run(segments);
    std::vector<DistributionAfter> rows;
    for (const int i : active) {
      const Sequence* const s = requests[std::size_t(i)].sequence;
      rows.push_back({s, &trees[std::size_t(i)], 0, s->sampling.warp()});
    }
    if (rows.empty()) return trees;
    const Distributions q = model_.distributions(out, rows);
    for (std::size_t k = 0; k < active.size(); ++k)
      add(requests[std::size_t(active[k])], q.slice(int(k), 1), trees[std::size_t(active[k])]);
    return trees;
  }

 private:
  void add(const DraftRequest& r, const Distributions& q, DraftTree& tree) {
    const int most = model_.budget(r).nodes - 1;
    if (most < 1) return;
    const Token best = q[0].row.greedy;
    tree.guess(0, best);
    for (int n = 2; n <= std::min(3, most) && r.sequence->sampling.temperature > 0; ++n) {
      TokenDraw draw = r.draw(n, 1);
      draw.to = tree.tokens.row<Token>(n);
      backend_.draw(q, {&draw, 1}, {});
      if (absent_if_guessed_ && *draw.to == best) *draw.to = -1;
      tree.grow(0, Drawn::independent);
      if (n == 2) tree.q.distributions.push_back(q);
    }
  }

  Backend& backend_;
  RoundModel model_;
  bool absent_if_guessed_;
};

// Why the first scenario of one of these laws fails that does; empty if none does.
std::string broken(bool absent_if_guessed, const std::string& verifier, std::initializer_list<const char*> laws) {
  Registries registries = all_registries();
  registries.drafters.add(
      "mixed", {"", "", with_model({}),
                [=](const json& o, Host& h) {
                  return std::make_unique<GuessAndDraws>(h, h.load(ModelChoice::read(o.at("model"))),
                                                         absent_if_guessed);
                },
                [](const json&, const ModelInfo&) { return Needs{.proposes = {Drawn::certain, Drawn::independent}}; }});
  const json drafter{{"name", "mixed"}, {"model", "table:other"}}, policy{{"name", "fixed"}, {"length", 4}};
  const Candidate c = candidate({registries, {drafter, policy, {{"name", verifier}}}}, false, false);
  for (const char* law : laws) {
    const auto at = std::ranges::find(kit_laws(), law, &KitLaw::name);
    if (!at->inapplicable(c, {}).empty()) continue;
    for (const LawCase& law_case : at->cases(c, {}))
      if (const Finding f = law_case.run(); !f.holds) return std::string(law) + ", " + law_case.scenario + ": " + f.why;
  }
  return "";
}

TEST(MixedTrees, HoldUnderEveryFormula) {
  for (const char* verifier : {"speculative_sampling", "k_seq", "traversal_verification", "target_match"})
    EXPECT_EQ(broken(false, verifier, {"acceptance", "limits", "causal"}), "") << verifier;
}

TEST(MixedTrees, ADrawThatIsAbsentWhereItIsTheGuessIsKilled) {
  EXPECT_NE(broken(true, "speculative_sampling", {"causal"}).find("depends on its own token"), std::string::npos);
  EXPECT_NE(broken(true, "k_seq", {"acceptance"}), "") << "absent siblings are not counted";
}

}  // namespace
}  // namespace foretoken::test
