// Which tree is kept must not follow from its own draws: a drafter whose drawn tokens decide how long its tree becomes
// is exact among others as long as it says that it reads them (Needs::waits), and is found out if it does not.
#include <gtest/gtest.h>

#include "experiments/conformance/law_table.h"
#include "framework/components/round_model.h"
#include "tests/support/states.h"

namespace foretoken::test {

using namespace conformance;

namespace {

using nlohmann::json;

// The last token again, so many times.
class Again : public Drafter {
 public:
  Again(Backend& backend, int times) : backend_(backend), times_(times) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i)
      for (int n = 0; n < std::min(times_, requests[i].budget.chain()); ++n)
        trees[i].guess(n, requests[i].sequence->last());
    return trees;
  }

 private:
  Backend& backend_;
  int times_;
};

// A draw, and below it a guess where the token that was drawn is one of the first two.
class Peeking : public Drafter {
 public:
  Peeking(Host& host, std::shared_ptr<Model> model) : backend_(host.backend()), model_(host, std::move(model)) {}
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
    for (std::size_t k = 0; k < active.size(); ++k) {
      const DraftRequest& r = requests[std::size_t(active[k])];
      DraftTree& tree = trees[std::size_t(active[k])];
      TokenDraw draw = r.draw(1, 1);
      draw.to = tree.tokens.row<Token>(1);
      backend_.draw(q.slice(int(k), 1), {&draw, 1}, {});
      tree.grow(0, Drawn::chain);
      tree.q.distributions.push_back(q.slice(int(k), 1));
      if (*draw.to < 2 && model_.budget(r).chain() > 1) tree.guess(1, 0);
    }
    return trees;
  }

 private:
  Backend& backend_;
  RoundModel model_;
};

// Why the first scenario of one of these laws fails that does; empty if none does.
std::string broken(const char* combination, bool says_that_it_waits) {
  Registries r = all_registries();
  r.drafters.add("again",
                 {"",
                  "",
                  {{"times", "integer", 1, ""}},
                  [](const json& o, Host& h) { return std::make_unique<Again>(h.backend(), o.at("times").get<int>()); },
                  states(Needs{.proposes = {Drawn::certain}})});
  r.drafters.add("peeking", {"", "", with_model({}),
                             [](const json& o, Host& h) {
                               return std::make_unique<Peeking>(h, h.load(ModelChoice::read(o.at("model"))));
                             },
                             states(Needs{.proposes = {Drawn::certain, Drawn::chain}, .waits = says_that_it_waits})});
  json drafter{{"name", combination},
               {"drafters", {{{"name", "peeking"}, {"model", "table:other"}}, {{"name", "again"}}}}};
  if (combination == std::string("first_hit"))
    drafter["least"] = drafter["drafters"][1]["times"] = 2;
  else
    std::swap(drafter["drafters"][0], drafter["drafters"][1]);
  const Candidate c = candidate(
      {r, {r.drafters.complete(drafter), {{"name", "fixed"}, {"length", 4}}, {{"name", "speculative_sampling"}}}},
      false, false);
  for (const char* law : {"exact", "limits", "causal"}) {
    const auto at = std::ranges::find(kit_laws(), law, &KitLaw::name);
    if (!at->inapplicable(c, {}).empty()) continue;
    for (const LawCase& law_case : at->cases(c, {}))
      if (const Finding f = law_case.run(); !f.holds) return std::string(law) + ", " + law_case.scenario + ": " + f.why;
  }
  return "";
}

TEST(CombinationsLaws, ATreeIsNotKeptByItsOwnDraws) {
  for (const char* combination : {"longest", "first_hit"}) {
    EXPECT_EQ(broken(combination, true), "") << combination;
    EXPECT_NE(broken(combination, false), "") << combination;
  }
}

}  // namespace
}  // namespace foretoken::test
