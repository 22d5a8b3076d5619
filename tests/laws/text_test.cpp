// greedy: at temperature 0 the output of every drafter is plain decoding's, bit for bit. coupled: at any temperature,
// if the verifier promises it.
#include <set>

#include <gtest/gtest.h>

#include "experiments/conformance/components.h"
#include "experiments/conformance/laws.h"
#include "tests/laws/subjects.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {

using namespace conformance;

namespace {

std::vector<std::unique_ptr<HostBackend>> backends() {
  std::vector<std::unique_ptr<HostBackend>> all;
  all.push_back(std::make_unique<ReferenceBackend>());
  all.push_back(cpu_backend(2));
  return all;
}

std::vector<Subject> everything(int length) {
  const Registries registries = with_scripted(all_registries());
  auto drafters = configurations(registries.drafters);
  for (const char* kinds : {"mixed", "independent", "certain"}) drafters.push_back(random_tree(3, kinds));
  return subjects(registries, length, drafters);
}

bool path_identical(const Subject& s) {
  return soundness_of(s.registries, s.configs.verifier).promise.find("path-identical") != std::string::npos;
}

// Same output as plain decoding for every subject for which `chosen` is true.
void expect_plain_text(const Scenario& scenario, Backend& backend, const Models& models,
                       std::span<const TestRequest> requests, const std::function<bool(const Subject&)>& chosen,
                       bool trees) {
  long accepted = 0, rejected = 0;
  for (const Subject& s : trees ? everything(5) : subjects(all_registries(), 4)) {
    if (!chosen(s)) continue;
    const Finding f = same_text({s, scenario, backend, models, requests});
    EXPECT_TRUE(f.holds) << f.what << " on " << backend.name();
    EXPECT_EQ(f.cases, long(requests.size()));
    accepted += f.accepted, rejected += f.rejected;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(rejected, 0);
}

TEST(Greedy, TablesOnEveryBackend) {
  const auto requests = random_requests(12, 5, 12, 40, 1);
  for (const auto& b : backends())
    expect_plain_text(
        {.sampling = {.temperature = 0}}, *b, table_models({.vocab = 5, .order = 2, .seed = 31}), requests,
        [](const Subject&) { return true; }, true);
}

TEST(Greedy, TransformersOnEveryBackend) {
  for (const auto& b : backends()) {
    const Models models = tiny_models(*b);
    const auto requests = random_requests(5, models.target->info().vocab, 24, 24, 2);
    expect_plain_text(
        {.sampling = {.temperature = 0},
         .engine = {.batch = 3, .step_rows = 40, .page_rows = 4, .pages = 256, .check = true}},
        *b, models, requests, [](const Subject&) { return true; }, false);
  }
}

// Drafters that read the target's layers or a part of its cache, beside latents (kv_heads of 1, values within keys).
TEST(Greedy, PartsOfATargetOfLatents) {
  const std::set<std::string> reads_target = {"quest", "snapkv", "h2o", "window", "layer_skip", "mtp"};
  for (const char* cache : {"f32", "int8"}) {
    const auto b = cpu_backend(2);
    const Models models = tiny_models(*b, {.target = "deepseek3", .kv_dtype = cache, .draft_kv_dtype = cache});
    std::set<std::string> met;
    expect_plain_text(
        {.sampling = {.temperature = 0},
         .engine = {.batch = 3, .step_rows = 40, .page_rows = 4, .pages = 256, .check = true}},
        *b, models, random_requests(4, models.target->info().vocab, 24, 24, 2),
        [&](const Subject& s) {
          const std::string name = s.configs.drafter.at("name");
          if (reads_target.contains(name)) met.insert(name);
          return reads_target.contains(name);
        },
        false);
    EXPECT_EQ(met, reads_target);
  }
}

TEST(Coupled, TablesAtAnyTemperature) {
  const auto requests = random_requests(12, 5, 12, 40, 3);
  for (const auto& b : backends())
    for (const Sampling& s : {Sampling{.temperature = 1}, Sampling{.temperature = 0.5f, .top_p = 0.9f},
                              Sampling{.temperature = 2, .top_k = 3}})
      expect_plain_text({.sampling = s}, *b, table_models({.vocab = 5, .order = 3, .seed = 32}), requests,
                        path_identical, true);
}

TEST(Coupled, TransformersOnEveryBackend) {
  for (const auto& b : backends()) {
    const Models models = tiny_models(*b);
    const auto requests = random_requests(5, models.target->info().vocab, 24, 24, 4);
    expect_plain_text({.sampling = {.temperature = 0.4f},
                       .engine = {.batch = 3, .step_rows = 40, .page_rows = 4, .pages = 256, .check = true}},
                      *b, models, requests, path_identical, false);
  }
}

}  // namespace
}  // namespace foretoken::test
