// Every pair of {stop string, length limit, stop token, log-probabilities raw and warped, samples, penalties,
// preemption, prefix hit} in one batch, each request against the oracle.
#include <set>

#include "experiments/session/request.h"
#include "tests/oracle/scene.h"

namespace foretoken::oracle {
namespace {

using conformance::table_models;
using conformance::TableModel;

// What is asked for by a request; preemption and prefix hits happen to it.
enum Feature { stop_string, length_limit, stop_token, raw, warped_ones, samples, penalties, kFeatures };
const char* const kNames[] = {"stop string", "length limit", "stop token", "raw",       "warped",
                              "samples",     "penalties",    "preempted",  "prefix hit"};
constexpr int kPreempted = kFeatures, kPrefixHit = kFeatures + 1;

struct Asked {
  Request request;
  Ends ends;
  std::set<int> features;
};

// Deterministic, and different for each request.
Asked asked(const std::set<int>& features, int number, float temperature) {
  Asked a{.request = {}, .ends = {.max_new_tokens = 22, .text_of = byte_of}, .features = features};
  const auto has = [&](Feature f) { return features.contains(f); };
  const auto byte = [number](int k) { return std::string(1, char((number + k) % 5)); };
  if (has(stop_string)) a.ends.stops = {byte(0) + byte(2) + (number % 2 ? byte(number / 5) : ""), byte(1) + byte(1)};
  if (has(length_limit)) a.ends.max_new_tokens = 3 + number % 13;
  if (has(stop_token)) a.ends.stop_tokens = {number % 5, 77};
  Request& r = a.request;
  r.prompt = {1, 2, 3, 4, 0, number % 3};  // the first pages are shared
  r.limits = {a.ends.max_new_tokens, a.ends.stop_tokens, stop_at(bytes(), a.ends.stops)};
  r.sampling.temperature = temperature;
  r.sampling.logprobs = has(raw) || has(warped_ones), r.sampling.warped_logprobs = has(warped_ones);
  if (has(penalties)) {
    r.sampling.repetition_penalty = number % 2 ? 1.5f : .75f, r.sampling.frequency_penalty = .25f;
    r.sampling.presence_penalty = number % 4 ? .5f : 0, r.sampling.logit_bias = {{number % 5, 1.f}, {4, -.5f}};
  } else if (temperature > 0 && number % 2) {
    r.sampling.top_k = 4, r.sampling.top_p = .95f, r.sampling.min_p = .02f;
  }
  r.stream = std::uint64_t(number);
  return a;
}

// Every pair of features, and every feature alone, five times with other numbers.
std::vector<Asked> all_asked(float temperature) {
  std::vector<Asked> all;
  for (int round = 0; round < 5; ++round)
    for (int a = 0; a < kFeatures; ++a)
      for (int b = a; b < kFeatures; ++b)
        if (a != raw || b != warped_ones)  // one or the other; both are in the batch
          all.push_back(asked({a, b}, int(all.size()), temperature));
  return all;
}

struct Pairs : ::testing::TestWithParam<const char*> {
  TableModel::Options options{.vocab = 5, .seed = 8, .impossible = .05, .positions = 64};
  std::shared_ptr<const TableModel> model = std::make_shared<TableModel>(options);
  std::map<SequenceId, const Asked*> asked_as;
  std::map<SequenceId, int> judged;         // rounds so far
  std::map<std::pair<int, int>, int> seen;  // pairs of what requests were and what happened to them
  std::map<std::string, int> reasons;

  Scene scene() const {
    const auto models = table_models(options);
    Scene s(models.target);
    s.load = models.load;
    s.configs.drafter = json::parse(GetParam());
    s.configs.policy = {
        {"name", "fixed"}, {"length", 3}, {"nodes", s.configs.drafter["name"] == "draft_model" ? 4 : 7}};
    s.options = {.batch = 6, .step_rows = 48, .page_rows = 2, .pages = 26, .check = true};
    return s;
  }
  void submit(Engine& engine, const Asked& a) {
    const SequenceId first = engine.submit(a.request);
    asked_as[first] = &a;
    for (std::uint64_t k = 1; k < 3 && a.features.contains(samples); ++k) {
      Request more = a.request;
      more.sample_of = first, more.stream = k << 32 | a.request.stream;
      asked_as[engine.submit(std::move(more))] = &a;
    }
  }
  void happened(SequenceId id, int what) {
    for (const int f : asked_as.at(id)->features) ++seen[{f, what}];
  }
  // A sequence whose tokens are read again, after it was verified, was preempted. One that reads less than its prompt
  // got the rest from another's pages.
  void watch(const StepReport& report) {
    for (const SequenceReport& r : report.sequences) {
      const bool again = judged[r.id] > 0 && r.prompt_rows > 0, fresh = judged[r.id] == 0 && r.judged;
      if (again) happened(r.id, kPreempted);
      if (fresh && r.prompt_rows < 5) happened(r.id, kPrefixHit);
      if (again && r.judged && r.prompt_rows < 4) ++seen[{kPreempted, kPrefixHit}];
      judged[r.id] += r.judged;
    }
  }
  void expect_all(const std::map<SequenceId, Sequence>& done, float temperature) {
    ASSERT_EQ(done.size(), asked_as.size());
    std::map<const Asked*, std::set<Tokens>> outputs;
    for (const auto& [id, s] : done) {
      const Asked& a = *asked_as.at(id);
      std::string what;
      for (const int f : a.features) what += std::string(kNames[f]) + ", ";
      SCOPED_TRACE(what + "request " + std::to_string(id));
      expect_served(s, logits_of(model), a.ends);
      ++reasons[name_of(s.finish)];
      if (a.features.contains(samples)) outputs[&a].insert(output_of(s));
    }
    std::size_t different = 0;
    for (const auto& [a, texts] : outputs) different += texts.size();
    if (temperature == 0) {
      EXPECT_EQ(different, outputs.size()) << "greedy samples are one text";
    } else {
      EXPECT_GT(different, 2 * outputs.size()) << "samples have draws of their own";
    }
  }
};

TEST_P(Pairs, are_what_the_oracle_says) {
  for (const float temperature : {0.f, 1.f}) {
    asked_as.clear(), judged.clear(), reasons.clear();
    const std::vector<Asked> all = all_asked(temperature);
    const Scene parts = scene();
    const auto engine = parts.engine();
    for (const Asked& a : all) submit(*engine, a);
    expect_all(serve(*engine, [&](const StepReport& report) { watch(report); }), temperature);
    for (const char* reason : {"stop_rule", "stop_token", "length"}) EXPECT_GT(reasons[reason], 3) << reason;
  }
  for (int f = 0; f < kFeatures; ++f)
    for (const int what : {kPreempted, kPrefixHit})
      EXPECT_GT((seen[{f, what}]), 0) << "no request with " << kNames[f] << " was " << kNames[what];
  EXPECT_GT((seen[{kPreempted, kPrefixHit}]), 0) << "a preempted sequence found no prefix";
}

INSTANTIATE_TEST_SUITE_P(
    Drafters, Pairs,
    ::testing::Values(R"({"name": "none"})", R"({"name": "ngram", "shortest": 1})",
                      R"({"name": "draft_model", "model": "table:other"})",
                      R"({"name": "draft_tree", "model": "table:other", "shape": [3, 1]})",
                      R"({"name": "draft_dynamic", "model": "table:other", "width": 3, "expand": 2})"),
    [](const auto& p) { return json::parse(p.param)["name"].template get<std::string>(); });

// Sequences without penalties stand between sequences with different ones, and draft and target are adjusted alike, so
// that a greedy draft of the target itself is always accepted.
TEST(Penalties, of_each_sequence_are_its_own) {
  const TableModel::Options options{.vocab = 6, .order = 2, .seed = 5, .impossible = 0, .positions = 64};
  const auto models = table_models(options);
  const LogitsAfter model = logits_of(std::make_shared<TableModel>(options));
  Scene scene(models.target);
  scene.load = models.load;
  scene.configs.drafter = {{"name", "draft_model"}, {"model", "table:same"}};
  scene.options.batch = 9;
  const auto engine = scene.engine();
  std::vector<Sampling> kinds(9);
  kinds[1].repetition_penalty = 3, kinds[2].repetition_penalty = .25f, kinds[3].frequency_penalty = 1.5f;
  kinds[4].presence_penalty = 4, kinds[5].logit_bias = {{2, 3.f}, {0, -100}}, kinds[6].frequency_penalty = -1;
  kinds[8] = {.repetition_penalty = 1.5f, .frequency_penalty = .5f, .presence_penalty = 1, .logit_bias = {{1, 2.f}}};
  std::set<Tokens> outputs;
  for (Sampling& s : kinds) {
    Request r;
    r.prompt = {1, 2, 2, 3};
    s.logprobs = s.warped_logprobs = true, s.temperature = &s == &kinds[7] ? 1.f : 0.f;
    r.sampling = s, r.limits.max_new_tokens = 24;
    engine->submit(std::move(r));
  }
  for (const auto& [id, s] : serve(*engine, [](const StepReport& report) {
         for (const SequenceReport& r : report.sequences) EXPECT_EQ(r.accepted, r.depth) << "sequence " << r.id;
       })) {
    SCOPED_TRACE("sequence " + std::to_string(id));
    expect_served(s, model, {.max_new_tokens = 24});
    outputs.insert(output_of(s));
  }
  EXPECT_GT(outputs.size(), 6u) << "the options do not matter to these outputs";
}

// A prompt's tokens count for the repetition penalty alone.
TEST(Penalties, of_frequency_and_presence_count_the_output_alone) {
  const auto model = std::make_shared<HandModel>(std::vector<Numbers>(4, Numbers{1, .75, .5, .25}));
  const auto output = [&](const Sampling& s) {
    const Scene scene(model);
    const auto engine = scene.engine();
    Request r;
    r.prompt = {0, 0, 1}, r.sampling = s, r.limits.max_new_tokens = 4;
    engine->submit(std::move(r));
    return output_of(serve(*engine).begin()->second);
  };
  EXPECT_EQ(output({.frequency_penalty = .375f}), (Tokens{0, 1, 0, 2}));
  EXPECT_EQ(output({.presence_penalty = 2}), (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(output({.repetition_penalty = 8}), (Tokens{2, 3, 0, 0}));
}

}  // namespace
}  // namespace foretoken::oracle
