// Planted bugs in drafters beyond the first levels of a draft or the first tokens of a text, each killed by the law
// `causal` as `foretoken check` runs it. The same drafter without the bug holds.
#include <gtest/gtest.h>

#include "experiments/conformance/law_table.h"
#include "tests/support/mutants.h"

namespace foretoken::test {

using namespace conformance;

namespace {

using nlohmann::json;

enum class DeepFault {
  none,
  names_of_five_levels,
  warmer_from_level_six,
  cut_by_its_own_token_from_level_six,
  cut_by_its_own_token_in_long_texts
};

// A chain that is drawn from the same distribution at every level.
class DeepChain : public Drafter {
 public:
  DeepChain(Host& host, DeepFault fault) : backend_(host.backend()), vocab_(host.target().vocab), fault_(fault) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i)
      for (int level = 1; level <= requests[i].budget.chain(); ++level)
        if (!add(requests[i], level, trees[i])) break;
    return trees;
  }

 private:
  // False where the chain ends before the level.
  bool add(const DraftRequest& r, int level, DraftTree& tree) {
    const Tensor logits = backend_.allocate({1, vocab_}, DType::f32);
    for (Token x = 0; x < vocab_; ++x) logits.row<float>(0)[x] = 0.4f * float(x);
    const Warp warp = r.sequence->sampling.warp(),
               warmer{.temperature = fault_ == DeepFault::warmer_from_level_six && level >= 6 ? 1.01f * warp.temperature
                                                                                              : warp.temperature};
    const Distributions from = backend_.distributions(logits, {&warp, 1});
    TokenDraw draw = r.draw(fault_ == DeepFault::names_of_five_levels ? 1 + (level - 1) % 5 : level, level);
    draw.to = tree.tokens.row<Token>(level);
    backend_.draw(from, {&draw, 1}, {});
    if (fault_ == DeepFault::cut_by_its_own_token_from_level_six && level >= 6 && *draw.to == 0) return false;
    if (fault_ == DeepFault::cut_by_its_own_token_in_long_texts && r.sequence->length() > 200 &&
        *draw.to == r.sequence->last())
      *draw.to = -1;
    tree.grow(level - 1, Drawn::chain);
    tree.q.distributions.push_back(backend_.distributions(logits, {&warmer, 1}));
    return true;
  }

  Backend& backend_;
  int vocab_;
  DeepFault fault_;
};

// Why the first scenario of the law `causal` fails that does; empty if none does.
std::string broken(DeepFault fault) {
  Registries registries = all_registries();
  registries.drafters.add("deep", {"",
                                   "",
                                   {},
                                   [=](const json&, Host& h) { return std::make_unique<DeepChain>(h, fault); },
                                   [](const json&, const ModelInfo&) { return Needs{.proposes = {Drawn::chain}}; }});
  const Candidate c = candidate(
      {registries, {{{"name", "deep"}}, {{"name", "fixed"}, {"length", 4}}, {{"name", "speculative_sampling"}}}},
      false);
  for (const LawCase& law_case : std::ranges::find(kit_laws(), "causal", &KitLaw::name)->cases(c, {}))
    if (const Finding f = law_case.run(); !f.holds) return law_case.scenario + ": " + f.why;
  return "";
}

TEST(DeepDraftMutants, ADrafterWithoutAFaultHolds) { EXPECT_EQ(broken(DeepFault::none), ""); }

TEST(DeepDraftMutants, NamesThatComeAgainAfterFiveLevelsAreKilledByCausal) {
  const std::string why = broken(DeepFault::names_of_five_levels);
  EXPECT_NE(why.find("two draws of one "), std::string::npos) << why;
}

TEST(DeepDraftMutants, AWarmerQFromTheSixthLevelOnIsKilledByCausal) {
  const std::string why = broken(DeepFault::warmer_from_level_six);
  EXPECT_NE(why.find("gave it from the distribution that its kind and the proposal state"), std::string::npos) << why;
}

TEST(DeepDraftMutants, CuttingANodeByItsOwnTokenFromTheSixthLevelOnIsKilledByCausal) {
  const std::string why = broken(DeepFault::cut_by_its_own_token_from_level_six);
  EXPECT_NE(why.find("depends on its own token"), std::string::npos) << why;
}

TEST(DeepDraftMutants, CuttingANodeByItsOwnTokenInLongTextsIsKilledByCausal) {
  const std::string why = broken(DeepFault::cut_by_its_own_token_in_long_texts);
  EXPECT_NE(why.find("depends on its own token"), std::string::npos) << why;
}

}  // namespace
}  // namespace foretoken::test
