// The engine that its tests begin with: a table of distributions as the target, another as the draft, three guesses a
// round, few small pages, every cache checked after every step. Tests change what they are about.
#pragma once
#include <gtest/gtest.h>

#include "drafters/drafters.h"
#include "experiments/conformance/scene.h"
#include "tests/support/sentence.h"
#include "verifiers/verifiers.h"

namespace foretoken::testing {

using test::says;

struct EngineScene : ::testing::Test {
  using Text = conformance::Text;

  std::unique_ptr<Backend> backend = make_reference_backend();
  Registries registries = conformance::all_registries();
  conformance::Cast cast = conformance::table_cast({.vocab = 5, .positions = 64});
  EngineOptions options{.batch = 4, .step_rows = 64, .page_rows = 2, .pages = 64, .check = true};
  Engine::Chairs chairs{{{"name", "draft_model"}, {"model", "table:other"}},
                        {{"name", "fixed"}, {"length", 3}},
                        {{"name", "speculative_sampling"}}};

  std::unique_ptr<Engine> engine() {
    return std::make_unique<Engine>(*backend, cast.target, registries, chairs, options, cast.load);
  }
  static Request request(Text prompt, int max_new_tokens = 8, float temperature = 1) {
    Request r;
    r.prompt = std::move(prompt);
    r.limits.max_new_tokens = max_new_tokens;
    r.sampling.temperature = temperature;
    return r;
  }
  template <class F> static std::string sentence(const F& f) {
    const std::string said = test::sentence_of(f);
    return said.empty() ? "(no error)" : said;
  }
};

}  // namespace foretoken::testing
