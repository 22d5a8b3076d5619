// Scenarios of the laws of what is kept between steps: memory, cache.
#include <algorithm>

#include "experiments/conformance/law_table.h"
#include "experiments/conformance/laws.h"
#include "kernels/philox.h"

namespace foretoken::conformance {
namespace {

LawCase step_case(const Candidate& c, const std::string& scenario, float temperature, const EngineOptions& engine) {
  return on_tables(scenario + ", " + at_temperature(temperature), cache, under_length(c, 5, 12),
                   {.sampling = {.temperature = temperature}, .engine = engine}, {.vocab = 4, .order = 2, .seed = 41},
                   random_requests(10, 4, 12, 24, 5), drafter_of(c));
}

Tokens random_tokens(int count, int vocab, std::uint64_t seed) {
  Tokens tokens;
  for (int i = 0; i < count; ++i)
    tokens.push_back(Token(Draws{seed}.uniform({Role::draft, std::uint32_t(i), 0}) * vocab));
  return tokens;
}

// Prompts of hundreds of tokens, made of passages that others have too, with something else after them. A prompt ends
// at the end of a passage that it has already, or inside one that only others have: what they went on with is no
// drafter's business.
std::vector<TestRequest> self_similar_requests(int count, int vocab, int max_new_tokens) {
  constexpr int kPassages = 4, kLong = 72;
  std::vector<TestRequest> requests;
  for (int i = 0; i < count; ++i) {
    Tokens prompt;
    const auto own = [&](int n) {
      const Tokens t = random_tokens(n, vocab, 1000 + 10 * std::uint64_t(i) + std::uint64_t(n % 10));
      prompt.insert(prompt.end(), t.begin(), t.end());
    };
    const auto passage = [&](int which, int n) {
      const Tokens t = random_tokens(kLong, vocab, 1 + std::uint64_t(which % kPassages));
      prompt.insert(prompt.end(), t.begin(), t.begin() + n);
    };
    own(21), passage(i, kLong), own(13), passage(i + 1, kLong), own(9);
    if (i % 2 == 0)
      passage(i, kLong);
    else
      passage(i + 2, 14 + 4 * i);
    requests.push_back({prompt, std::uint64_t(i + 1), max_new_tokens});
  }
  return requests;
}

// A pool so small that sequences are preempted, with room for the longest of random_requests(n, 4, 12, 24, ...) alone
// and the widest tree behind it; and so many sequences that they do not fit.
EngineOptions short_of_pages(const Candidate& c, int sequences, int pages) {
  constexpr int kPageRows = 2, kLongest = 12 + 24;
  const int room = (kLongest + (c.own_policy ? c.most.nodes : 0)) / kPageRows + 1;
  return {.batch = std::max(sequences, room / 4),
          .step_rows = 256,
          .page_rows = kPageRows,
          .pages = std::max(pages, room),
          .check = true};
}

LawCase memory_case(const Candidate& c, const std::string& scenario, Interruption interruption, float temperature,
                    const EngineOptions& engine, int vocab, std::vector<TestRequest> requests) {
  return on_tables(
      scenario + ", " + at_temperature(temperature), [=](const Run& run) { return memory(run, interruption); },
      under_length(c, 5, 12), {.sampling = {.temperature = temperature}, .engine = engine},
      {.vocab = vocab, .order = 2, .seed = 41, .positions = 2048}, std::move(requests), drafter_of(c));
}

// Requests that end at different times and have unlike options, so that a mistaken place in the batch shows.
std::vector<TestRequest> unlike_requests() {
  std::vector<TestRequest> requests = random_requests(12, 4, 12, 24, 5);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].max_new_tokens = 5 + int(i * 7 % 17);
    requests[i].sampling =
        Sampling{.temperature = 0.5f + 0.25f * float(i % 4), .top_k = i % 3 == 0 ? 3 : 0, .seed = 1 + i % 5};
  }
  return requests;
}

// Of a policy: prompts of different lengths end at different times, so places in the batch change hands.
LawCase policy_case(const Candidate& c, float temperature) {
  const EngineOptions engine = short_of_pages(c, 6, 32);
  auto requests = random_requests(10 + engine.batch, 4, 12, 24, 6);
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].max_new_tokens = 6 + int(i * 7 % 20);
  return on_tables("budgets of the policy, preempted in a small pool, " + at_temperature(temperature), policy_memory,
                   c.subject, {.sampling = {.temperature = temperature}, .engine = engine},
                   {.vocab = 4, .order = 2, .seed = 41}, std::move(requests), drafter_of(c));
}

// More sequences at once, longer texts and more rounds than elsewhere: some have prompts of hundreds of tokens, some
// go on for more than 100.
std::vector<TestRequest> many_requests() {
  std::vector<TestRequest> requests = random_requests(20, 4, 12, 24, 8);
  for (const int tokens : {40, 330, 700})
    requests[std::size_t(tokens / 40)].prompt = random_tokens(tokens, 4, std::uint64_t(tokens));
  for (const std::size_t i : {0, 1, 8, 19}) requests[i].max_new_tokens = 120;
  return requests;
}

void add_policy_cases(const Candidate& c, Cases& all) {
  for (const float temperature : {0.0f, 1.0f}) all.push_back(policy_case(c, temperature));
  const auto in_company = [&](const Candidate& of, const std::string& options) {
    all.push_back(on_tables("24 sequences, 72 rounds" + options, policy_in_company, of.subject, {}, {.vocab = 4}, {},
                            drafter_of(of)));
  };
  in_company(c, "");
  for (const OtherCandidate& other : with_other_options(c)) in_company(other.candidate, ", " + other.options);
}

// What a drafter that learns owes too: another engine, and ids that were forgotten.
void add_cases_of_all(const Candidate& c, Cases& all) {
  const TableModel::Options target{.vocab = 4, .order = 2, .seed = 41};
  all.push_back(on_tables("ids that were forgotten", forgotten_ids, c.subject, {}, target, {}, drafter_of(c)));
  const auto beside = [](const Run& run) { return beside_another_engine(run, random_requests(8, 4, 12, 24, 9)); };
  all.push_back(on_tables("beside another engine", beside, under_length(c, 5, 12),
                          {.engine = {.batch = 4, .step_rows = 256, .page_rows = 4, .pages = 256}}, target,
                          random_requests(8, 4, 12, 24, 5), drafter_of(c)));
}

}  // namespace

Cases memory_cases(const Candidate& c, const Environment&) {
  const EngineOptions roomy{.batch = 4, .step_rows = 256, .page_rows = 3, .pages = 512, .check = true},
      small = short_of_pages(c, 6, 24), parts{.batch = 1, .step_rows = 8, .page_rows = 3, .pages = 512, .check = true},
      many{.batch = 20, .step_rows = 2048, .page_rows = 16, .pages = 1024},
      large{.batch = 4, .step_rows = 2048, .page_rows = 16, .pages = 512, .check = true};
  const auto requests = random_requests(10, 4, 12, 24, 5);
  Cases all;
  using enum Interruption;
  if (c.own_policy && !c.policy_learns) add_policy_cases(c, all);
  if (c.needs.proposes.empty()) return all;
  add_cases_of_all(c, all);
  if (c.needs.learns) return all;
  all.push_back(memory_case(c, "20 sequences, long texts, many rounds", none, 1, many, 4, many_requests()));
  all.push_back(on_tables("3000 short sequences", nothing_left, c.subject, {}, {.vocab = 4, .order = 2, .seed = 41}, {},
                          drafter_of(c)));
  for (const float temperature : {0.0f, 1.0f}) {
    all.push_back(memory_case(c, "10 requests", none, temperature, roomy, 4, requests));
    all.push_back(memory_case(c, "preempted in a small pool", preempted, temperature, small, 4,
                              random_requests(4 + small.batch, 4, 12, 24, 5)));
    all.push_back(memory_case(c, "forgotten now and then", forgotten, temperature, roomy, 4, requests));
    all.push_back(
        memory_case(c, "prompts read in parts", none, temperature, parts, 4, random_requests(3, 4, 30, 16, 7)));
    if (temperature > 0)
      all.push_back(memory_case(c, "unlike requests", none, temperature, roomy, 4, unlike_requests()));
    all.push_back(memory_case(c, "long prompts that share passages", none, temperature, large, 16,
                              self_similar_requests(12, 16, 16)));
  }
  for (const OtherCandidate& other : with_other_options(c))
    if (!c.own_policy)
      all.push_back(memory_case(other.candidate, other.options, none, 1, roomy, 4, random_requests(4, 4, 12, 24, 5)));
  return all;
}

Cases cache_cases(const Candidate& c, const Environment&) {
  Cases all;
  for (const int page_rows : {1, 3, 4})
    all.push_back(step_case(c, "pages of " + std::to_string(page_rows), 1,
                            {.batch = 4, .step_rows = 24, .page_rows = page_rows, .pages = 256, .check = true}));
  all.push_back(step_case(c, "a pool so small that sequences are preempted", 1,
                          {.batch = 6, .step_rows = 24, .page_rows = 2, .pages = 24, .check = true}));
  all.push_back(
      step_case(c, "pages of 3", 0, {.batch = 4, .step_rows = 24, .page_rows = 3, .pages = 256, .check = true}));
  return all;
}

}  // namespace foretoken::conformance
