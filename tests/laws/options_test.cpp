// options: options that adjust distributions by earlier tokens are exact at every position, on chains and trees, over
// every outcome of the draws, with the engine's own draws, and in outputs; planted bugs are detected. Samples of one
// prompt.
#include <gtest/gtest.h>

#include "experiments/conformance/components.h"
#include "experiments/conformance/laws.h"
#include "experiments/conformance/statistics.h"
#include "tests/laws/subjects.h"
#include "tests/support/in_turn.h"
#include "tests/support/source.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {

using namespace conformance;

namespace {

const nlohmann::json kOtherModel{{"name", "draft_model"}, {"model", "table:other"}};

std::vector<Subject> with_trees(int length) {
  const Registries registries = with_scripted(all_registries());
  auto drafters = configurations(registries.drafters);
  for (const char* kinds : {"mixed", "independent", "certain"}) drafters.push_back(random_tree(3, kinds));
  return subjects(registries, length, drafters);
}

bool path_identical(const Subject& s) {
  return soundness_of(s.registries, s.configs.verifier).promise.find("path-identical") != std::string::npos;
}
bool exactly(const Subject& s) { return soundness_of(s.registries, s.configs.verifier).promise.rfind("exact", 0) == 0; }

void expect_exact(const std::vector<Subject>& all, const ExactCase& c) {
  std::vector<Subject> exact_ones;
  for (const Subject& s : all)
    if (exactly(s)) exact_ones.push_back(s);
  const std::vector<Subject> some = in_turn(exact_ones, 3);
  long accepted = 0, rejected = 0;
  for (const Subject& s : some) {
    const Finding f = exact(s, c);
    EXPECT_TRUE(f.holds) << f.what;
    accepted += f.accepted, rejected += f.rejected;
  }
  if (some.size() < exact_ones.size()) return;  // a few may accept nothing
  EXPECT_GT(accepted, 0);
  EXPECT_GT(rejected, 0);
}

TEST(Options, PenaltiesAreExactOnTreesOfEveryKind) {
  const Registries registries = with_scripted(all_registries());
  std::vector<nlohmann::json> drafters;
  for (const char* kinds : {"mixed", "independent", "certain"})
    for (int seed = 1; seed <= 2; ++seed) drafters.push_back(random_tree(seed, kinds));
  for (const Sampling& s : {talkative(1), Sampling{.temperature = 1, .repetition_penalty = 2},
                            Sampling{.temperature = 1, .frequency_penalty = 0.9f}})
    expect_exact(subjects(registries, 3, drafters), {.target = {.vocab = 3, .seed = 19, .impossible = 0.1},
                                                     .prompts = {{1, 1}},
                                                     .tokens = 3,
                                                     .scenario = {.sampling = s}});
}

TEST(Options, PenaltiesAreExactInLongDraftsThatRepeatThemselves) {
  Sampling sampling = talkative(0.8f);
  sampling.logit_bias = {{1, -0.5f}};
  for (const Tokens& prompt : {Tokens{0}, Tokens{1, 0, 1, 0}})
    expect_exact(subjects(all_registries(), 3), {.target = {.vocab = 2, .seed = 33, .impossible = 0.05},
                                                 .prompts = {prompt},
                                                 .tokens = 4,
                                                 .scenario = {.sampling = sampling}});
}

TEST(Options, PenaltiesAreExactOnTheCpuBackend) {
  expect_exact(with_trees(2), {.target = {.vocab = 3, .order = 2, .seed = 25},
                               .prompts = {{0, 2}},
                               .tokens = 3,
                               .scenario = {.sampling = talkative(1)},
                               .backend = [] { return cpu_backend(1); }});
}

TEST(Options, PenaltiesAreSampledExactly) {
  const auto b = cpu_backend(2);
  const std::vector<Subject> all =
      subjects(all_registries(), 3, {kOtherModel, {{"name", "ngram"}, {"longest", 2}, {"shortest", 1}}});
  const double level = 1e-3 / double(all.size());
  Scenario scenario{.sampling = talkative(1),
                    .engine = {.batch = 64, .step_rows = 1024, .page_rows = 4, .pages = 2048}};
  for (const Subject& s : in_turn(all, 2)) {
    const Finding f = sampled(s,
                              {.target = {.vocab = 3, .seed = 61, .impossible = 0.1},
                               .prompt = {0, 1, 0, 1},
                               .tokens = 3,
                               .found = 0.015,
                               .level = level,
                               .scenario = scenario},
                              *b);
    EXPECT_TRUE(f.holds) << f.what << ", p = " << f.measure;
    EXPECT_GT(f.accepted, 0);
    EXPECT_GT(f.rejected, 0);
  }
}

void expect_plain_text(Backend& backend, const Models& models, const std::vector<Subject>& all,
                       const Scenario& scenario, std::span<const TestRequest> requests) {
  for (const Subject& s : all) {
    if (scenario.sampling.temperature > 0 && !path_identical(s)) continue;
    const Finding f = same_text({s, scenario, backend, models, requests});
    EXPECT_TRUE(f.holds) << f.what << " on " << backend.name();
    EXPECT_EQ(f.cases, long(requests.size()));
  }
}

TEST(Options, TextsUnderPenaltiesArePlainDecodings) {
  std::vector<std::unique_ptr<HostBackend>> backends;
  backends.push_back(std::make_unique<ReferenceBackend>());
  backends.push_back(cpu_backend(2));
  for (const auto& b : backends) {
    const Models models = tiny_models(*b);
    for (const float temperature : {0.0f, 1.0f}) {
      expect_plain_text(*b, table_models({.vocab = 5, .order = 2, .seed = 31}), with_trees(5),
                        {.sampling = talkative(temperature)}, random_requests(12, 5, 12, 40, 1));
      expect_plain_text(*b, models, subjects(all_registries(), 4),
                        {.sampling = talkative(temperature),
                         .engine = {.batch = 3, .step_rows = 40, .page_rows = 4, .pages = 256, .check = true}},
                        random_requests(5, models.target->info().vocab, 24, 24, 2));
    }
  }
}

TEST(Options, DraftDistributionsAreAdjustedLikeTheTargets) {
  ReferenceBackend b;
  const nlohmann::json twin{{"name", "draft_model"}, {"model", "table:same"}};
  for (const Subject& s : subjects(all_registries(), 4, {twin})) {
    if (soundness_of(s.registries, s.configs.verifier).acceptance != Acceptance::overlap) continue;
    const Finding f =
        twin_accepts_all({s,
                          {.sampling = talkative(1), .engine = {.page_rows = 2, .pages = 512, .check = true}},
                          b,
                          table_models({.vocab = 5, .seed = 71}),
                          random_requests(10, 5, 12, 30, 1)});
    EXPECT_TRUE(f.holds) << f.what;
    EXPECT_GT(f.cases, 200);
  }
}

TEST(Options, AcceptanceUnderPenaltiesLiesWhereTheLawsSay) {
  ReferenceBackend b;
  const Scenario scenario{.sampling = talkative(1),
                          .engine = {.batch = 16, .step_rows = 1024, .page_rows = 4, .pages = 1024}};
  for (const Subject& s : subjects(all_registries(), 4, {kOtherModel})) {
    if (soundness_of(s.registries, s.configs.verifier).acceptance == Acceptance::other) continue;
    const Finding f = acceptance(
        {s, scenario, b, table_models({.vocab = 4, .order = 3, .seed = 73}), random_requests(400, 4, 12, 40, 4)});
    EXPECT_TRUE(f.holds) << f.what;
    EXPECT_GT(f.cases, 1000);
  }
}

// Penalties belong to the sequence: preemption, chunks and prefix hits do not change them.
TEST(Options, PenaltiesInABatch) {
  ReferenceBackend b;
  const Scenario alone{.sampling = talkative(0),
                       .engine = {.batch = 1, .step_rows = 512, .page_rows = 4, .pages = 512, .check = true}};
  BatchCase c{
      {{.sampling = talkative(0), .engine = {.batch = 6, .step_rows = 40, .page_rows = 2, .pages = 40, .check = true}}},
      true};
  const Subject s{all_registries(),
                  {kOtherModel, {{"name", "fixed"}, {"length", 4}}, {{"name", "speculative_sampling"}}}};
  const Finding f =
      batch({s, alone, b, table_models({.vocab = 4, .order = 3, .seed = 51}), random_requests(14, 4, 12, 24, 1)}, c);
  EXPECT_TRUE(f.holds) << f.what;
  EXPECT_GT(f.seen.at("preemptions"), 0);
}

TEST(Options, TheDocumentedTablesAreTrue) {
  const std::string page = read_source("framework/components/OPTIONS.md"), mark = "a test compares -->\n\n";
  const auto at = page.find(mark);
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(page.substr(at + mark.size()), option_tables(all_registries())) << "run: ./foretoken options";
}

// ---- planted bugs ----

const Subject kChain{all_registries(),
                     {kOtherModel, {{"name", "fixed"}, {"length", 2}}, {{"name", "speculative_sampling"}}}};

ExactCase planted(std::function<std::unique_ptr<HostBackend>()> backend) {
  return {.target = {.vocab = 3, .seed = 5},
          .prompts = {{1, 0}},
          .tokens = 3,
          .scenario = {.sampling = talkative(1)},
          .backend = std::move(backend)};
}

// Only the sequence's own counts: every node of a draft is adjusted like its root.
class BlindToPaths : public ReferenceBackend {
 public:
  void adjust(Tensor logits, std::span<const Adjustment> adjustments) override {
    std::vector<Adjustment> blind(adjustments.begin(), adjustments.end());
    for (Adjustment& a : blind) a.length = 0;
    ReferenceBackend::adjust(logits, blind);
  }
};

// The last token of a path is left out: off by one node.
class OneNodeLate : public ReferenceBackend {
 public:
  void adjust(Tensor logits, std::span<const Adjustment> adjustments) override {
    std::vector<Adjustment> late(adjustments.begin(), adjustments.end());
    for (Adjustment& a : late)
      if (a.length > 0) ++a.path, --a.length;
    ReferenceBackend::adjust(logits, late);
  }
};

// Silently ignored.
class Deaf : public ReferenceBackend {
 public:
  void adjust(Tensor, std::span<const Adjustment>) override {}
};

template <class Bug> void killed_by_exact() {
  EXPECT_TRUE(exact(kChain, planted([] { return std::make_unique<ReferenceBackend>(); })).holds);
  const Finding f = exact(kChain, planted([] { return std::make_unique<Bug>(); }));
  EXPECT_FALSE(f.holds);
  EXPECT_GT(f.measure, 1e-4) << f.what;
}

TEST(OptionMutants, PenaltiesThatDoNotSeeThePathAreKilledByExact) { killed_by_exact<BlindToPaths>(); }
TEST(OptionMutants, PenaltiesOneNodeLateAreKilledByExact) { killed_by_exact<OneNodeLate>(); }
TEST(OptionMutants, IgnoredPenaltiesAreKilledByExact) { killed_by_exact<Deaf>(); }

// ---- samples ----

TEST(Options, SamplesShareThePromptAndDrawForThemselves) {
  ReferenceBackend b;
  const Models models = table_models({.vocab = 5, .order = 3, .seed = 7});
  const Tokens prompt{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 1};  // five full pages of two
  std::vector<TestRequest> together, apart;
  for (int i = 0; i < 4; ++i) {
    together.push_back({prompt, std::uint64_t(i + 1), 16, i > 0 ? 0 : -1});
    apart.push_back({prompt, std::uint64_t(i + 1), 16});
  }
  for (const Subject& s : subjects(all_registries(), 3, {kOtherModel, {{"name", "none"}}})) {
    Scenario scenario{.sampling = {.temperature = 1},
                      .engine = {.batch = 8, .step_rows = 256, .page_rows = 2, .pages = 256, .check = true}};
    const RunOutcome shared = run_scenario({s, scenario, b, models, together}),
                     own = run_scenario({s, scenario, b, models, apart});
    EXPECT_EQ(shared.outputs, own.outputs) << "where pages come from changes no text: " << s.text();
    EXPECT_GE(shared.prefix_rows, 3u * 10) << s.text();
    EXPECT_EQ(own.prefix_rows, 0u) << "they all begin at once";
    EXPECT_NE(shared.outputs[0], shared.outputs[1]);
    scenario.engine.reuse_prefixes = false;
    EXPECT_EQ(run_scenario({s, scenario, b, models, together}).outputs, own.outputs)
        << "nothing is shared, and no request waits";
    EXPECT_EQ(shared.pages_left, 0);
  }
}

}  // namespace
}  // namespace foretoken::test
