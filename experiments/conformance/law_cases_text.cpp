// Scenarios of the laws of outputs: greedy, coupled, batch, device.
#include <algorithm>

#include "experiments/conformance/law_cases.h"
#include "experiments/conformance/options.h"
#include "experiments/conformance/simulated_device.h"

namespace foretoken::conformance {
namespace {

std::string brief(const Sampling& s) {
  std::string text = "temperature " + std::to_string(s.temperature).substr(0, 3);
  if (s.top_p < 1) text += ", top_p " + std::to_string(s.top_p).substr(0, 3);
  if (s.penalties().counts()) text += ", penalties";
  if (s.top_k > 0) text += ", top_k " + std::to_string(s.top_k);
  return text;
}

// The subject's output against plain decoding's, on table models and, if available, on trained models.
Cases text_cases(const Candidate& c, const Environment& e, const std::vector<Sampling>& samplings) {
  Cases all;
  for (const Sampling& sampling : samplings)
    all.push_back({"tables, " + brief(sampling), [s = under_length(c, 5, 12), sampling] {
                     ReferenceBackend b;
                     return same_text(s, {.sampling = sampling}, b, table_models({.vocab = 5, .order = 2, .seed = 31}),
                                      random_requests(12, 5, 12, 40, 1));
                   }});
  for (const Environment::Device& device : e.devices) {
    const bool first = &device == &e.devices.front(), host = device.name.rfind("cpu", 0) == 0;
    if (!e.trained || (host && !first)) continue;  // trained models run with one instruction set of the host
    all.push_back({"trained models on " + device.name + ", " + brief(samplings.front()),
                   [s = under_length(c, 4), sampling = samplings.front(), make = device.make, trained = e.trained] {
                     const auto b = make();
                     const Models models = trained(*b);
                     const auto requests = random_requests(6, std::min(500, models.target->info().vocab), 24, 40, 2);
                     return same_text(
                         s,
                         {.sampling = sampling,
                          .engine = {.batch = 3, .step_rows = 40, .page_rows = 8, .pages = 512, .check = true}},
                         *b, models, requests);
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
      batch(s, alone, c, b, table_models({.vocab = 4, .order = 3, .seed = 51}), with_common_beginnings(14, 4, 24, 1));
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
                     return same_on_devices(s, {.sampling = sampling}, reference, *other,
                                            table_models({.vocab = vocab, .order = 1, .seed = 95}),
                                            random_requests(8, vocab, 10, 24, 12));
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
