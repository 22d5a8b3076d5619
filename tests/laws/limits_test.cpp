// limits: draft = target accepts everything, a budget of 0 is plain decoding (that a random drafter stays exact is part
// of `exact`). acceptance: by position it is what the distributions p and q imply.
#include <gtest/gtest.h>

#include "experiments/conformance/law_table.h"
#include "tests/laws/subjects.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {

using namespace conformance;

namespace {

// Every drafter that draws from models, each of them the target itself. Nothing is expected of guesses at temperature
// above 0, nor of marginals, which do not see the tokens before them.
std::vector<Subject> twins(int length) {
  const Registries registries = all_registries();
  const auto drawn = [](Drawn d) { return d != Drawn::certain && d != Drawn::marginals; };
  std::vector<nlohmann::json> drafters;
  for (const auto& [name, entry] : registries.drafters.entries()) {
    nlohmann::json config{{"name", name}};
    for (const Option& o : entry.options)
      if (o.type == "model") config[o.name] = "table:same";
    if (config.size() > 1 && name == "cascade") config.update(entry.examples.front());  // it must be given a part
    if (config.size() > 1 && std::ranges::any_of(needs_of(registries, config).proposes, drawn))
      drafters.push_back(config);
  }
  return subjects(registries, length, drafters);
}

TEST(Limits, TheTargetAsItsOwnDrafterIsAlwaysAccepted) {
  ReferenceBackend reference;
  const auto cpu = cpu_backend(2);
  const auto requests = random_requests(20, 5, 12, 30, 1);
  const auto all = twins(4);
  EXPECT_GE(all.size(), 2u);
  for (const Subject& s : all)
    for (const Sampling& sampling : {Sampling{.temperature = 0}, Sampling{.temperature = 1},
                                     Sampling{.temperature = 0.7f, .top_k = 3, .top_p = 0.8f, .min_p = 0.05f}}) {
      if (sampling.temperature > 0 && soundness_of(s.registries, s.configs.verifier).acceptance == Acceptance::product)
        continue;  // it may reject the target's own guess
      for (HostBackend* b : {static_cast<HostBackend*>(&reference), cpu.get()}) {
        const Finding f =
            twin_accepts_all({s,
                              {.sampling = sampling, .engine = {.page_rows = 2, .pages = 512, .check = true}},
                              *b,
                              table_models({.vocab = 5, .seed = 71}),
                              requests});
        EXPECT_TRUE(f.holds) << f.what;
        EXPECT_GT(f.cases, 200);
      }
      const Models tiny = tiny_models(*cpu);
      const auto few = random_requests(3, tiny.target->info().vocab, 20, 16, 2);
      const Finding f = twin_accepts_all(
          {s, {.sampling = sampling, .engine = {.batch = 3, .page_rows = 4, .pages = 256}}, *cpu, tiny, few});
      EXPECT_TRUE(f.holds) << f.what;
    }
}

TEST(Limits, NoBudgetIsPlainDecoding) {
  ReferenceBackend b;
  const auto requests = random_requests(10, 5, 12, 30, 3);
  for (const Subject& s : subjects(all_registries(), 4))
    for (const float temperature : {0.0f, 1.0f}) {
      const Finding f = no_budget_is_plain(
          {s, {.sampling = {.temperature = temperature}}, b, table_models({.vocab = 5, .seed = 72}), requests});
      EXPECT_TRUE(f.holds) << f.what;
    }
}

TEST(Acceptance, LiesWhereTheLawsSay) {
  ReferenceBackend b;
  const auto requests = random_requests(400, 4, 12, 40, 4);
  const auto law = std::ranges::find(kit_laws(), "acceptance", &KitLaw::name);
  ASSERT_NE(law, kit_laws().end());
  long tested = 0;
  for (const Subject& s : subjects(all_registries(), 4)) {
    if (!law->inapplicable(candidate(s, false), {}).empty()) continue;
    const Scenario scenario{.engine = {.batch = 16, .step_rows = 1024, .page_rows = 4, .pages = 1024}};
    const Finding f = acceptance({s, scenario, b, table_models({.vocab = 4, .order = 3, .seed = 73}), requests});
    EXPECT_TRUE(f.holds) << f.what;
    tested += f.cases;
  }
  EXPECT_GT(tested, 10000);
}

}  // namespace
}  // namespace foretoken::test
