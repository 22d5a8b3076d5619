// The fixture of the engine's tests: a table of distributions as the target, another as the draft, three guesses per
// round, few small pages, every cache checked after every step. Tests change the parts that they test.
#pragma once
#include <gtest/gtest.h>

#include "drafters/drafters.h"
#include "experiments/conformance/scenario.h"
#include "tests/support/sentence.h"
#include "verifiers/verifiers.h"

namespace foretoken::test {

using test::says;

struct EngineScenario : ::testing::Test {
  using Tokens = conformance::Tokens;

  std::unique_ptr<Backend> backend = make_reference_backend();
  Registries registries = conformance::all_registries();
  conformance::Models models = conformance::table_models({.vocab = 5, .positions = 64});
  EngineOptions options{.batch = 4, .step_rows = 64, .page_rows = 2, .pages = 64, .check = true};
  ComponentConfigs configs{{{"name", "draft_model"}, {"model", "table:other"}},
                           {{"name", "fixed"}, {"length", 3}},
                           {{"name", "speculative_sampling"}}};

  std::unique_ptr<Engine> engine(std::shared_ptr<Kept> kept = {}) {
    return std::make_unique<Engine>(*backend, models.target, registries, configs, options, models.load,
                                    std::move(kept));
  }
  static Request request(Tokens prompt, int max_new_tokens = 8, float temperature = 1) {
    Request r;
    r.prompt = std::move(prompt);
    r.limits.max_new_tokens = max_new_tokens;
    r.sampling.temperature = temperature;
    return r;
  }
  template <class F> static std::string sentence(const F& f) {
    const std::string message = test::sentence_of(f);
    return message.empty() ? "(no error)" : message;
  }
};

}  // namespace foretoken::test
