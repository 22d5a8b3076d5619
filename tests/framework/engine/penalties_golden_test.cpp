// Greedy outputs under penalties and biases equal those of Transformers (tests/golden/penalties_golden.py), with and
// without speculation.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/reference/reference_backend.h"
#include "tests/support/source.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

Sampling sampling_of(const json& options) {
  Sampling s;
  s.repetition_penalty = options.value("repetition_penalty", 1.0f);
  s.frequency_penalty = options.value("frequency_penalty", 0.0f),
  s.presence_penalty = options.value("presence_penalty", 0.0f);
  const json biases = options.value("logit_bias", json::object());
  for (const auto& [token, bias] : biases.items()) s.logit_bias.push_back({std::stoi(token), bias.get<float>()});
  return s;
}

TEST(PenaltiesGolden, GreedyOutputsEqualThoseOfTransformers) {
  const json golden = json::parse(read_source("tests/data/golden/penalties.json"));
  ReferenceBackend backend;
  std::map<std::string, std::shared_ptr<Model>> by_name;
  int changed = 0;
  for (const json& g : golden) {
    std::shared_ptr<Model>& model = by_name[g["model"]];
    if (!model) model = tiny_model(backend, g["model"]);
    const Models models{model, [&](const ModelChoice&) { return model; }};
    const Tokens want = g["tokens"];
    const TestRequest request{g["prompt"], 1, int(want.size())};
    const Scenario scenario{.sampling = sampling_of(g["options"]),
                            .engine = {.batch = 1, .step_rows = 64, .page_rows = 4, .pages = 256}};
    for (const json& drafter : {json{{"name", "none"}}, json{{"name", "ngram"}, {"longest", 2}, {"shortest", 1}},
                                json{{"name", "draft_model"}, {"model", "itself"}}}) {
      const Subject subject{all_registries(),
                            {drafter, {{"name", "fixed"}, {"length", 3}}, {{"name", "speculative_sampling"}}}};
      EXPECT_EQ(run_scenario({subject, scenario, backend, models, {&request, 1}}).outputs[0], want)
          << g["model"] << " " << g["options"] << " " << subject.text();
    }
    Scenario plain = scenario;
    plain.sampling = {};
    const Subject none{all_registries(),
                       {{{"name", "none"}}, {{"name", "fixed"}, {"length", 0}}, {{"name", "speculative_sampling"}}}};
    changed += run_scenario({none, plain, backend, models, {&request, 1}}).outputs[0] != want;
    EXPECT_GT(g["least_margin"].get<double>(), 1e-3)
        << "rounding could decide a token, so the comparison would prove nothing";
  }
  EXPECT_GE(golden.size(), 60u);
  EXPECT_GT(changed, int(golden.size()) / 2) << "the options change too few outputs";
}

}  // namespace
}  // namespace foretoken::test
