// Scenarios of the laws of distributions: exact, sampled, acceptance, options, causal, limits.
#include <algorithm>
#include <optional>

#include "experiments/conformance/components.h"
#include "experiments/conformance/devices.h"
#include "experiments/conformance/law_table.h"
#include "experiments/conformance/laws.h"

namespace foretoken::conformance {

LawCase on_tables(const std::string& scenario, const std::function<Finding(const Run&)>& law, const Subject& subject,
                  const Scenario& how, const TableModel::Options& target, std::vector<TestRequest> requests,
                  const std::string& concerns) {
  return {scenario,
          [=, requests = std::move(requests)] {
            ReferenceBackend b;
            return law({subject, how, b, table_models(target), requests});
          },
          concerns};
}

std::string at_temperature(float temperature, std::size_t characters) {
  return "temperature " + std::to_string(temperature).substr(0, characters);
}

Subject under_length(const Candidate& c, int length, int nodes) {
  Subject s = c.subject;
  if (c.own_policy) return s;
  s.configs.policy = {{"name", "fixed"}, {"length", length}};
  if (nodes > 0) s.configs.policy["nodes"] = nodes;
  return s;
}

// The same, where drafts end as soon as the draft is unsure: often, of the distributions of this kit.
static std::optional<Subject> where_sure(const Candidate& c, int length, int nodes = 0) {
  if (c.own_policy || !c.needs.confidence) return std::nullopt;
  Subject s = under_length(c, length, nodes);
  s.configs.policy["confidence"] = 0.5;
  return s;
}

Cases exact_cases(const Candidate& c, const Environment& e) {
  const std::vector<Tokens> prompts = {{0}, {1, 0, 1, 0}, {1, 1, 0, 1, 1, 0, 0}};
  constexpr int kAtOnce = 16;  // in an engine where the outcomes are many, and after all but the first prompt: else one
  Cases all;
  // A chosen policy may draft long: then the length limit lies near, so that drafts end with what is looked at.
  const auto add = [&](const std::string& scenario, int length, ExactCase pattern, const std::vector<Tokens>& where) {
    pattern.most_ways = e.most_ways;
    pattern.least = pattern.target.vocab == 2 ? 3 : 2;  // a second round after a draft is looked at where that is cheap
    if (c.own_policy && pattern.max_new_tokens == 0) pattern.max_new_tokens = pattern.tokens + 1;
    for (const Tokens& prompt : where) {
      pattern.prompts = {prompt};
      if (&prompt != &where.front()) pattern.at_once = kAtOnce;
      all.push_back({scenario + ", after [" + text_of(prompt) + "]",
                     [s = under_length(c, length), pattern] { return exact(s, pattern); }});
    }
  };
  add("2 tokens, 4 deep", 3, {.target = {.vocab = 2, .seed = 3, .impossible = 0.1}, .tokens = 4}, prompts);
  add("3 tokens, 4 deep", 2, {.target = {.vocab = 3, .seed = 5}, .tokens = 4, .at_once = kAtOnce}, {{1, 0, 1, 0}});
  add("4 tokens, 3 deep", 2, {.target = {.vocab = 4, .order = 2, .seed = 7, .impossible = 0.2}, .tokens = 3},
      {{3, 1, 0, 3, 1}});
  add("5 tokens, whole context", 2, {.target = {.vocab = 5, .order = 0, .seed = 9, .impossible = 0.25}, .tokens = 2},
      {{0}, {2, 4, 2, 4}});
  add("2 tokens, 5 deep, several rounds", 2,
      {.target = {.vocab = 2, .seed = 4, .impossible = 0.1}, .tokens = 5, .at_once = kAtOnce}, prompts);
  add("a stop token inside a draft", 3,
      {.target = {.vocab = 3, .seed = 13, .impossible = 0.2}, .tokens = 3, .scenario = {.stop_tokens = {2}}},
      {{0, 1, 0, 1}});
  add("the length limit inside a draft", 3, {.target = {.vocab = 3, .seed = 15}, .tokens = 3, .max_new_tokens = 3},
      {{1, 0, 1, 0}});
  ExactCase two{.target = {.vocab = 2, .seed = 23, .impossible = 0.1}, .prompts = {{0, 1}, {0, 1}}, .tokens = 2};
  if (c.own_policy) two.max_new_tokens = 3;
  all.push_back({"two sequences at once", [s = under_length(c, 2), two] { return exact(s, two); }});
  if (const auto sure = where_sure(c, 3)) {
    const ExactCase ends{.target = {.vocab = 3, .order = 2, .seed = 17}, .prompts = {{1, 0, 1, 0}}, .tokens = 3};
    all.push_back({"drafts that end where the draft is unsure", [s = *sure, ends] { return exact(s, ends); }});
  }
  return all;
}

Cases sampled_cases(const Candidate& c, const Environment& e) {
  const SampledCase scenario{.target = {.vocab = 3, .seed = 61, .impossible = 0.1},
                             .prompt = {0, 1, 0, 1},
                             .tokens = 3,
                             .level = e.level / e.sampled_tests};
  return {{"3 tokens, 3 deep, batch 64", [s = under_length(c, 2), scenario] {
             ReferenceBackend b;
             return sampled(s, scenario, b);
           }}};
}

Cases acceptance_cases(const Candidate& c, const Environment&) {
  Cases all;
  for (const float temperature : {1.0f, 0.6f})
    all.push_back(on_tables("4 tokens, 400 requests, " + at_temperature(temperature, 3), acceptance,
                            under_length(c, 4, 12),
                            {.sampling = {.temperature = temperature},
                             .engine = {.batch = 16, .step_rows = 1024, .page_rows = 4, .pages = 1024}},
                            {.vocab = 4, .order = 3, .seed = 73}, random_requests(400, 4, 12, 40, 4)));
  return all;
}

Cases options_cases(const Candidate& c, const Environment& e) {
  Cases all;
  for (const SamplingOption& option : sampling_options())
    all.push_back({option.text, [s = under_length(c, 2), option, most_ways = e.most_ways / 4]() -> Finding {
                     OptionFinding f = exact_or_refused(s, option, most_ways);
                     if (!f.refusal.empty()) f.what += ": " + f.refusal;
                     return f;
                   }});
  return all;
}

namespace {

// A prompt of several hundred tokens.
std::vector<TestRequest> one_long_request(int vocab, int max_new_tokens) {
  TestRequest one{.prompt = {}, .max_new_tokens = max_new_tokens};
  for (const TestRequest& r : random_requests(60, vocab, 10, 1, 12))
    one.prompt.insert(one.prompt.end(), r.prompt.begin(), r.prompt.end());
  return {one};
}

// Draws against nodes, in a batch of so many sequences, one of which has a long prompt.
LawCase whole_run(const Candidate& c, const std::string& scenario, int batch) {
  auto requests = random_requests(batch, 5, 12, 24, 13);
  requests.back().prompt = one_long_request(5, 0).front().prompt;
  for (TestRequest& r : requests) r.sampling = Sampling{.temperature = 1, .seed = 3 + r.stream % 5};
  return on_tables(scenario, drawn_as_called, under_all_budgets(c),
                   {.engine = {.batch = batch, .step_rows = 4096, .page_rows = 16, .pages = 1024}},
                   {.vocab = 5, .order = 2, .seed = 93}, std::move(requests), drafter_of(c));
}

}  // namespace

Cases causal_cases(const Candidate& c, const Environment&) {
  Cases all;
  const auto add = [&](const std::string& scenario, const Subject& s, int vocab, std::vector<TestRequest> requests) {
    all.push_back(on_tables(scenario, causal, s,
                            {.engine = {.batch = 3, .step_rows = 256, .page_rows = 3, .pages = 256, .check = true}},
                            {.vocab = vocab, .order = 2, .seed = 91}, std::move(requests), drafter_of(c)));
  };
  for (const int vocab : {3, 4})
    add(std::to_string(vocab) + " tokens", under_length(c, 4, 9), vocab, random_requests(5, vocab, 10, 16, 11));
  all.insert(all.begin() + 1, whole_run(c, "budgets of all sizes", 12));
  // The law `exact` enumerates the first levels alone.
  add("12 levels", under_length(c, 12, 24), 3, random_requests(2, 3, 10, 16, 11));
  add("a long prompt", under_length(c, 2, 5), 4, one_long_request(4, 8));
  if (const auto sure = where_sure(c, 4, 16))
    add("drafts that end where the draft is unsure", *sure, 3, random_requests(3, 3, 10, 12, 11));
  for (const OtherCandidate& other : with_other_options(c)) {
    if (c.own_policy) continue;
    all.push_back(whole_run(other.candidate, other.options + ", budgets of all sizes", 4));
    add(other.options, under_length(other.candidate, 3, 20), 3, random_requests(1, 3, 10, 8, 11));
  }
  return all;
}

namespace {

// The drafter's models are the target, at its temperature.
Subject twin_of(Subject s, const Candidate& c) {
  for (const std::string& option : c.model_options) s.configs.drafter[option] = "table:same";
  if (s.configs.drafter.contains("temperature")) s.configs.drafter.erase("temperature");
  return s;
}

LawCase twin_case(const std::string& scenario, const Subject& twin, const Sampling& sampling, int requests,
                  const std::string& concerns) {
  return on_tables("the target as its own draft, " + at_temperature(sampling.temperature) +
                       (sampling.penalties().counts() ? ", penalties" : "") + scenario,
                   twin_accepts_all, twin,
                   {.sampling = sampling, .engine = {.step_rows = 1024, .page_rows = 2, .pages = 1024, .check = true}},
                   {.vocab = 5, .seed = 71}, random_requests(requests, 5, 12, 30, 1), concerns);
}

// A drafter that draws from its model draws what the target would, where that is the target itself. A certain guess may
// come from elsewhere (a datastore that the model ranks), and marginals do not see the tokens before them, so nothing
// is expected of these.
void twins(Cases& all, const Candidate& c) {
  const bool draws =
      std::ranges::any_of(c.needs.proposes, [](Drawn d) { return d != Drawn::certain && d != Drawn::marginals; });
  if (c.model_options.empty() || !draws) return;
  const auto sizes = [](const Candidate& of) { return twin_of(under_all_budgets(of), of); };
  for (const Sampling& sampling : {Sampling{.temperature = 0}, Sampling{.temperature = 1}, talkative(1)}) {
    if (c.soundness.acceptance == Acceptance::other ||
        (sampling.temperature > 0 && c.soundness.acceptance == Acceptance::product))
      continue;  // it may refuse the target's own guess
    all.push_back(twin_case("", twin_of(under_length(c, 4, 12), c), sampling, 10, ""));
    if (sampling.penalties().counts()) continue;
    all.push_back(twin_case(", budgets of all sizes", sizes(c), sampling, 4, drafter_of(c)));
    for (const OtherCandidate& other : with_other_options(c))
      if (!c.own_policy && sizes(other.candidate).configs.drafter != sizes(c).configs.drafter)
        all.push_back(twin_case(", " + other.options + ", budgets of all sizes", sizes(other.candidate), sampling, 4,
                                drafter_of(c)));
  }
}

void random_drafts(Cases& all, const Candidate& c) {
  const auto takes = [&](Drawn d) { return std::ranges::find(c.soundness.takes, d) != c.soundness.takes.end(); };
  Candidate of_random_trees = c;  // which do not serve Budget::confidence
  of_random_trees.own_policy = c.own_policy && c.most.confidence == 0;
  Subject random = under_length(of_random_trees, 3);
  random.registries = with_scripted(random.registries);
  const auto draft = [&](const std::string& kinds, ExactCase scenario) {
    if (c.own_policy) scenario.max_new_tokens = scenario.tokens + 1;
    for (int seed = 1; seed <= 2; ++seed) {
      random.configs.drafter = random_tree(seed, kinds);
      all.push_back({"random drafts of shape " + std::to_string(seed) + ", " + kinds,
                     [random, scenario] { return exact(random, scenario); }, c.own_policy ? "" : verifier_of(c)});
    }
  };
  const ExactCase two{.target = {.vocab = 2, .seed = 19, .impossible = 0.1}, .prompts = {{1, 1}}, .tokens = 3};
  const bool certain = takes(Drawn::certain), independent = takes(Drawn::independent);
  if (certain || independent) draft(!independent ? "certain" : certain ? "mixed" : "independent", two);
  for (const Drawn d : {Drawn::chain, Drawn::marginals})
    if (takes(d)) draft(foretoken::name_of(d), two);
  // Of few tokens the last siblings are what the first are not: that shows little.
  if (takes(Drawn::without_replacement))
    draft(foretoken::name_of(Drawn::without_replacement),
          {.target = {.vocab = 4, .order = 2, .seed = 19, .impossible = 0.1}, .prompts = {{1, 1}}, .tokens = 2});
}

}  // namespace

Cases limits_cases(const Candidate& c, const Environment&) {
  Cases all;
  for (const float temperature : {0.0f, 1.0f})
    all.push_back(on_tables("no budget, " + at_temperature(temperature), no_budget_is_plain, c.subject,
                            {.sampling = {.temperature = temperature}}, {.vocab = 5, .seed = 72},
                            random_requests(10, 5, 12, 30, 3)));
  twins(all, c);
  if (c.own_verifier) random_drafts(all, c);
  return all;
}

namespace {

std::string brief(const Sampling& s) {
  std::string text = at_temperature(s.temperature, 3);
  if (s.top_p < 1) text += ", top_p " + std::to_string(s.top_p).substr(0, 3);
  if (s.penalties().counts()) text += ", penalties";
  if (s.top_k > 0) text += ", top_k " + std::to_string(s.top_k);
  return text;
}

// The subject's output against plain decoding's, on table models and, if available, on trained models.
Cases text_cases(const Candidate& c, const Environment& e, const std::vector<Sampling>& samplings) {
  Cases all;
  for (const Sampling& sampling : samplings)
    all.push_back(on_tables("tables, " + brief(sampling), same_text, under_length(c, 5, 12), {.sampling = sampling},
                            {.vocab = 5, .order = 2, .seed = 31}, random_requests(12, 5, 12, 40, 1)));
  for (const Environment::Device& device : e.devices) {
    const bool first = &device == &e.devices.front(), host = device.name.rfind("cpu", 0) == 0;
    if (!e.trained || (host && !first)) continue;  // trained models run with one instruction set of the host
    all.push_back({"trained models on " + device.name + ", " + brief(samplings.front()),
                   [s = under_length(c, 4), sampling = samplings.front(), make = device.make, trained = e.trained] {
                     const auto b = make();
                     const Models models = trained(*b);
                     const auto requests = random_requests(6, std::min(500, models.target->info().vocab), 24, 40, 2);
                     const Scenario scenario{
                         .sampling = sampling,
                         .engine = {.batch = 3, .step_rows = 40, .page_rows = 8, .pages = 512, .check = true}};
                     return same_text({s, scenario, *b, models, requests});
                   }});
  }
  return all;
}

// Prompts with common beginnings, so that prefixes are hit while other requests still run.
std::vector<TestRequest> with_common_beginnings(int count, int vocab, int tokens, std::uint64_t seed) {
  auto requests = random_requests(count, vocab, 12, tokens, seed);
  for (std::size_t i = 0; i < requests.size(); i += 2) {
    Tokens prompt;
    for (int k = 0; k < 9; ++k) prompt.push_back(k % 2);
    prompt.insert(prompt.end(), requests[i].prompt.begin(), requests[i].prompt.end());
    requests[i].prompt = prompt;
  }
  return requests;
}

Finding in_batches(const Subject& s, const Sampling& sampling, bool whole) {
  const EngineOptions engines[] = {
      {.batch = 8, .step_rows = 512, .page_rows = 3, .pages = 512, .check = true},
      {.batch = 5, .step_rows = 9, .page_rows = 1, .pages = 512, .check = true},
      {.batch = 6, .step_rows = 40, .page_rows = 2, .pages = 40, .check = true},
      {.batch = 7, .step_rows = 64, .page_rows = 2, .pages = 48, .reuse_prefixes = false, .check = true}};
  BatchCase c{{}, whole};
  for (const EngineOptions& e : engines) c.batches.push_back({.sampling = sampling, .engine = e});
  ReferenceBackend b;
  const Scenario alone{.sampling = sampling,
                       .engine = {.batch = 1, .step_rows = 512, .page_rows = 4, .pages = 512, .check = true}};
  Finding f =
      batch({s, alone, b, table_models({.vocab = 4, .order = 3, .seed = 51}), with_common_beginnings(14, 4, 24, 1)}, c);
  if (f.holds && f.seen["preemptions"] == 0) f.fail("no sequence was preempted, so nothing was shown");
  if (f.holds && f.seen["prefix rows"] == 0) f.fail("no prefix was hit, so nothing was shown");
  return f;
}

// The verdicts of the verifier alone.
void add_verdicts(const Candidate& c, const Environment::Device& device, Cases& all) {
  for (const int vocab : {2, 61, 257, 1009})
    all.push_back({device.name + ", verdicts, vocabulary " + std::to_string(vocab),
                   [s = c.subject, device, vocab] {
                     ReferenceBackend reference;
                     const auto other = device.make();
                     return same_verdicts(s, {.vocab = vocab}, reference, *other);
                   },
                   verifier_of(c)});
  for (const int vocab : {3, 61, 257})
    all.push_back({device.name + ", trees, vocabulary " + std::to_string(vocab),
                   [s = c.subject, device, vocab] {
                     ReferenceBackend reference;
                     const auto other = device.make();
                     return same_tree_verdicts(s, {.vocab = vocab, .trees = 200}, reference, *other);
                   },
                   verifier_of(c)});
}

}  // namespace

Cases greedy_cases(const Candidate& c, const Environment& e) {
  return text_cases(c, e, {{.temperature = 0}, talkative(0)});
}

Cases coupled_cases(const Candidate& c, const Environment& e) {
  return text_cases(
      c, e, {{.temperature = 1}, {.temperature = 0.5f, .top_p = 0.9f}, {.temperature = 2, .top_k = 3}, talkative(1)});
}

Cases batch_cases(const Candidate& c, const Environment&) {
  const bool same = c.soundness.path_identical(), exact = c.soundness.exact();
  const Subject s = under_length(c, 4, 9);
  Cases all;
  if (!c.needs.learns || same || exact)
    all.push_back({"four batches, greedy", [s, exact] { return in_batches(s, {.temperature = 0}, exact); }});
  all.push_back({same ? "four batches, temperature 1: outputs" : "four batches, temperature 1: verdicts of equal trees",
                 [s, same] { return in_batches(s, {.temperature = 1}, same); }});
  return all;
}

Cases device_cases(const Candidate& c, const Environment& e) {
  const auto texts = [&](const Environment::Device& device, int vocab, const Sampling& sampling) {
    return LawCase{device.name + ", texts, vocabulary " + std::to_string(vocab) + ", " + brief(sampling),
                   [s = under_length(c, 4, 9), device, vocab, sampling] {
                     ReferenceBackend reference;
                     const auto other = device.make();
                     return same_on_devices({s,
                                             {.sampling = sampling},
                                             reference,
                                             table_models({.vocab = vocab, .order = 1, .seed = 95}),
                                             random_requests(8, vocab, 10, 24, 12)},
                                            *other);
                   }};
  };
  Cases all;
  for (const Environment::Device& device : e.devices) {
    if (c.own_verifier) add_verdicts(c, device, all);
    for (const Sampling& sampling : {Sampling{.temperature = 1}, talkative(0.9f)})
      for (const int vocab : {5, 261}) all.push_back(texts(device, vocab, sampling));
  }
  const Environment::Device apart{"separate memory", [] { return std::make_unique<SimulatedDevice>(); }};
  for (const float temperature : {0.0f, 1.0f}) all.push_back(texts(apart, 5, {.temperature = temperature}));
  return all;
}

}  // namespace foretoken::conformance
