// mutations: planted bugs, each detected by the law that the test names. The same case without the bug holds.
#include "experiments/conformance/components.h"
#include "tests/laws/mutant_scenario.h"
#include "tests/laws/tree_is_chain.h"

namespace foretoken::test {
namespace {

// The law fails with a bug of the rule, and holds without.
void killed_by_exact(Bug bug) {
  const Finding sane = exact(subject(with_rule(all_registries(), Bug::none), kDraftModel, kMutant), three_tokens());
  EXPECT_TRUE(sane.holds) << sane.what;
  EXPECT_GT(sane.accepted, 0);
  EXPECT_GT(sane.rejected, 0);
  EXPECT_TRUE(refuted(exact(subject(with_rule(all_registries(), bug), kDraftModel, kMutant), three_tokens())));
}

// Without the bug all of several tree shapes are exact, with it not all. `bug` turns the correct subject and case of a
// shape into the mutant's.
void killed_among_trees(ExactCase c, int nodes, const std::function<void(Subject&, ExactCase&, int seed)>& bug) {
  const Registries base = with_rule(with_scripted(all_registries()), Bug::none);
  int killed = 0;
  for (int seed = 1; seed <= 5; ++seed) {
    Subject s = subject(base, random_tree(seed, "independent"), kMutant, nodes);
    const Finding sane = exact(s, c);
    EXPECT_TRUE(sane.holds) << sane.what;
    ExactCase planted = c;
    bug(s, planted, seed);
    killed += refuted(exact(s, planted));
  }
  EXPECT_GT(killed, 0);
}

TEST(Mutants, NoResidualIsKilledByExact) { killed_by_exact(Bug::no_residual); }
TEST(Mutants, ResidualOfTheWrongRowIsKilledByExact) { killed_by_exact(Bug::residual_of_wrong_row); }
TEST(Mutants, QOneRowOffIsKilledByExact) { killed_by_exact(Bug::q_one_row_off); }
TEST(Mutants, BonusFromTheWrongRowIsKilledByExact) { killed_by_exact(Bug::bonus_from_wrong_row); }
TEST(Mutants, AcceptingFivePercentMoreIsKilledByExact) { killed_by_exact(Bug::accepts_too_often); }
TEST(Mutants, MissingRenormalizationIsKilledByExact) {
  killed_among_trees(three_tokens(), 3, [](Subject& s, ExactCase&, int) {
    s.registries = with_rule(s.registries, Bug::no_renormalization);
  });
}

TEST(Mutants, NoResidualIsKilledBySampled) {
  ReferenceBackend b;
  const SampledCase c{.target = {.vocab = 3, .order = 2, .seed = 81}, .found = 0.02};
  EXPECT_TRUE(sampled(subject(with_rule(all_registries(), Bug::none), kDraftModel, kMutant), c, b).holds);
  EXPECT_FALSE(sampled(subject(with_rule(all_registries(), Bug::no_residual), kDraftModel, kMutant), c, b).holds);
}

TEST(Mutants, DeafVerifierIsExactButKilledByAcceptanceAndLimits) {
  ReferenceBackend b;
  const TableModel::Options target{.vocab = 3, .order = 2, .seed = 81};
  const auto requests = random_requests(40, 3, 6, 20, 1);
  const Subject never_accepting = subject(with_rule(all_registries(), Bug::never_accepts), kDraftModel, kMutant);
  EXPECT_TRUE(exact(never_accepting, three_tokens()).holds);
  EXPECT_FALSE(acceptance({never_accepting, {}, b, table_models(target), requests}).holds);
  EXPECT_TRUE(acceptance({subject(with_rule(all_registries(), Bug::none), kDraftModel, kMutant),
                          {},
                          b,
                          table_models(target),
                          requests})
                  .holds);
  EXPECT_FALSE(twin_accepts_all({subject(with_rule(all_registries(), Bug::never_accepts),
                                         {{"name", "draft_model"}, {"model", "table:same"}}, kMutant),
                                 {},
                                 b,
                                 table_models(target),
                                 requests})
                   .holds);
}

TEST(Mutants, RandomnessByBatchSlotIsKilledByBatch) {
  ReferenceBackend b;
  const Models models = table_models({.vocab = 3, .order = 2, .seed = 81});
  const auto requests = random_requests(6, 3, 6, 12, 2);
  const BatchCase c{{{}}, false};
  EXPECT_TRUE(batch({subject(with_rule(all_registries(), Bug::none), kDraftModel, kMutant),
                     {.engine = {.batch = 1, .page_rows = 2, .pages = 64}},
                     b,
                     models,
                     requests},
                    c)
                  .holds);
  EXPECT_FALSE(batch({subject(with_slots(all_registries()), kDraftModel, kMutant),
                      {.engine = {.batch = 1, .page_rows = 2, .pages = 64}},
                      b,
                      models,
                      requests},
                     c)
                   .holds);
}

TEST(Mutants, StaleKeysAreKilledByExactCacheAndMemory) {
  const Subject s = subject(all_registries(), kDraftModel, kSampling);
  ExactCase c = three_tokens();
  EXPECT_TRUE(exact(s, c).holds);
  c.backend = [] { return std::make_unique<Stale>(); };
  EXPECT_TRUE(refuted(exact(s, c)));
  const auto requests = random_requests(4, 3, 6, 16, 3);
  Stale b, other;
  const Models models = table_models({.vocab = 3, .order = 2, .seed = 81, .strict = false});
  const Scenario scenario{.engine = {.page_rows = 2, .pages = 64, .reuse_prefixes = false}};
  EXPECT_FALSE(cache({s, scenario, b, models, requests}).holds);
  EXPECT_FALSE(memory({s, scenario, other, models, requests}).holds);
}

TEST(Mutants, SkippedCompactionIsKilledByExactAndCache) {
  killed_among_trees(three_tokens(), 3,
                     [](Subject&, ExactCase& c, int) { c.backend = [] { return std::make_unique<Unmoved>(); }; });
  Unmoved b;
  const Subject s = subject(with_scripted(all_registries()), random_tree(2, "independent"), kSampling, 4);
  EXPECT_FALSE(cache({s, {}, b, table_models(three_tokens().target), random_requests(4, 3, 6, 16, 4)}).holds);
}

TEST(Mutants, WrongAncestorMasksAreKilledByExactAndTreeIsChain) {
  ExactCase c = two_tokens();
  c.target.order = 0;
  ReferenceBackend b;
  const auto model = std::make_shared<TableModel>(TableModel::Options{.vocab = 5, .order = 0, .strict = false});
  EXPECT_TRUE(tree_is_chain(b, model, 30, 1).holds);
  for (const auto mask : {shortsighted, squinting}) {
    killed_among_trees(c, 4, [&](Subject&, ExactCase& planted, int) { planted.disguise = mask; });
    EXPECT_FALSE(tree_is_chain(b, mask(model), 30, 1).holds);
  }
}

TEST(Mutants, SiblingsWithoutRepeatsCalledIndependentAreKilledByExact) {
  killed_among_trees(three_tokens(), 3,
                     [](Subject& s, ExactCase&, int seed) { s.configs.drafter = random_tree(seed, "repeatless"); });
}

TEST(Mutants, TopPOfPAloneIsKilledByExact) {
  ExactCase c = three_tokens();
  c.scenario.sampling = {.temperature = 1, .top_p = 0.6f};
  EXPECT_TRUE(exact(subject(all_registries(), kDraftModel, kSampling), c).holds);
  EXPECT_TRUE(refuted(exact(subject(with_unwarped_q(all_registries()), kDraftModel, kSampling), c)));
}

TEST(Mutants, CuttingANodeByItsOwnTokenIsKilledByExact) {
  killed_among_trees(three_tokens(), 3, [](Subject& s, ExactCase&, int seed) {
    s.configs.drafter = random_tree(seed, "independent", true);
  });
}

TEST(Mutants, CuttingANodeByItsOwnTokenIsKilledByCausal) {
  ReferenceBackend b;
  const Models models = table_models({.vocab = 3, .order = 2, .seed = 81});
  const auto requests = random_requests(3, 3, 6, 12, 5);
  const Registries registries = with_scripted(all_registries());
  const Finding sane =
      causal({subject(registries, random_tree(1, "independent"), kSampling, 4), {}, b, models, requests});
  EXPECT_TRUE(sane.holds) << sane.what;
  EXPECT_GT(sane.cases, 100);
  EXPECT_FALSE(
      causal({subject(registries, random_tree(1, "independent", true), kSampling, 4), {}, b, models, requests}).holds);
}

TEST(Mutants, GreedyTieRuleIsKilledByGreedyAndDevice) {
  ReferenceBackend sane;
  LastOfEquals b;
  const Scenario scenario{.sampling = {.temperature = 0},
                          .engine = {.batch = 1, .step_rows = 64, .page_rows = 2, .pages = 64}};
  const Models models = table_models({.vocab = 4, .order = 2, .seed = 3, .uniform = true});
  const auto requests = random_requests(4, 4, 8, 16, 6);
  const Subject s = subject(all_registries(), {{"name", "ngram"}, {"shortest", 1}}, kSampling, 3);
  EXPECT_TRUE(same_text({s, scenario, sane, models, requests}).holds);
  EXPECT_FALSE(same_text({s, scenario, b, models, requests}).holds);
  ReferenceBackend other;
  EXPECT_TRUE(same_verdicts(s, {.vocab = 61}, sane, other).holds);
  EXPECT_FALSE(same_verdicts(s, {.vocab = 61}, sane, b).holds);
}

TEST(Mutants, LengthOvershootIsKilledByExactAndGreedy) {
  const Subject s = subject(all_registries(), kDraftModel, kSampling, 3);
  ExactCase c = three_tokens();
  c.max_new_tokens = 3;
  EXPECT_TRUE(exact(s, c).holds);
  c.scenario.limits = late_length;
  EXPECT_TRUE(refuted(exact(s, c)));
  ReferenceBackend b;
  const Scenario scenario{.sampling = {.temperature = 0}, .limits = late_length};
  const Subject twin = subject(all_registries(), {{"name", "draft_model"}, {"model", "table:same"}}, kSampling, 3);
  EXPECT_FALSE(same_text({twin, scenario, b, table_models({.vocab = 3, .order = 2, .seed = 81}),
                          random_requests(6, 3, 6, 15, 7)})
                   .holds);
}

TEST(Mutants, AStopTokenMissedInsideAnAcceptedPathIsKilledByExact) {
  const Subject s = subject(all_registries(), kDraftModel, kSampling, 3);
  ExactCase c = three_tokens();
  c.scenario.stop_tokens = {2};
  EXPECT_TRUE(exact(s, c).holds);
  c.scenario.limits = late_stop_token;
  EXPECT_TRUE(refuted(exact(s, c)));
}

TEST(Mutants, TreePageAliasingIsKilledByExactOfTwoSequencesAndCache) {
  const Subject s =
      subject(all_registries(), kDraftModel, kSampling, 1);  // root and draft are in the page that is shared by mistake
  ExactCase c = two_tokens();
  c.prompts = {{0, 1, 0}, {1, 1, 0}};
  c.tokens = 2;
  c.scenario.engine.reuse_prefixes = false;
  EXPECT_TRUE(exact(s, c).holds);
  c.disguise = aliased;
  const Finding planted = exact(s, c);
  EXPECT_FALSE(planted.holds);
  // A row that another sequence wrote over is read in place of its own. Where that changes from one run of equal
  // outcomes to the next, the proof ends there, before it has a distribution to compare.
  EXPECT_TRUE(refuted(planted) || planted.what.find("met other draws when it ran again") != std::string::npos)
      << planted.what;
  ReferenceBackend b;
  Models models = table_models({.vocab = 3, .order = 2, .seed = 81, .strict = false});
  const auto requests = random_requests(4, 3, 6, 16, 8);
  EXPECT_TRUE(cache({s, {}, b, models, requests}).holds);
  models.target = aliased(models.target);
  EXPECT_FALSE(cache({s, {}, b, models, requests}).holds);
}

}  // namespace
}  // namespace foretoken::test
