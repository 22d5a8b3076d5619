// Draft models of another vocabulary than the target's: the laws hold, and q is what the model gives the tokens that
// both have, after the text as its own tokenizer reads it.
#include "tests/support/two_vocabularies.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "experiments/conformance/devices.h"
#include "experiments/conformance/laws.h"
#include "framework/model/translated_model.h"
#include "tests/laws/subjects.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

json named(const char* name, json more = json::object()) {
  json config{{"name", name}, {"model", "table:other"}};
  config.update(more);
  return config;
}

const std::vector<json> kChains{named("draft_model"), named("draft_model", {{"temperature", 0.5}}),
                                named("pard", {{"mask", 3}})};  // which the target lacks
const std::vector<json> kTrees{named("draft_tree", {{"shape", {2, 1}}, {"draws", "without_replacement"}}),
                               named("draft_tree", {{"shape", {2, 1}}, {"draws", "independent"}}),
                               named("draft_dynamic", {{"width", 2}, {"expand", 2}})};

// The middle model and the model that drafts for it read a path that may be taken back.
json cascade_of(const json& inner, int length) {
  return named("cascade", {{"inner", inner}, {"verifier", {{"name", "speculative_sampling"}}}, {"length", length}});
}
const std::vector<json> kCascades{cascade_of({{"name", "ngram"}, {"longest", 2}, {"shortest", 1}}, 2),
                                  cascade_of(named("draft_model"), 1)};

std::vector<Subject> all_subjects(int length) {
  std::vector<Subject> all;
  for (const std::vector<json>& drafters : {kChains, kTrees, kCascades})
    for (Subject& s : subjects(all_registries(), length, drafters)) all.push_back(std::move(s));
  return all;
}

Host::Load load_of(Backend& backend, const TableModel::Options& target) {
  return models_of_two_vocabularies(backend, target).load;
}

// Both begin with a text whose tokens are other ones for the draft model: "aba" is "a" and "ba", "ab" is "a" and "b".
TEST(TwoVocabularies, every_pair_is_exact) {
  long accepted = 0, rejected = 0;
  for (const Subject& s : all_subjects(2))
    for (const Tokens& prompt : {Tokens{0, 1, 0}, Tokens{1, 2}}) {
      ExactCase c{.prompts = {prompt}, .tokens = 3, .most_ways = 20'000};
      c.load = [&](Backend& backend) { return load_of(backend, c.target); };
      const Finding f = exact(s, c);
      EXPECT_TRUE(f.holds) << f.what << " after [" << text_of(prompt) << "]";
      accepted += f.accepted, rejected += f.rejected;
    }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(rejected, 1000);
}

const TableModel::Options kTable{.vocab = 4, .order = 2, .seed = 41};

// What the model reads for each word: the tokens of its text, one word after another, but the prompt's at once.
Tokens own_context(std::span<const Token> tokens, int prompt, const std::vector<Token>& path) {
  const auto theirs = tokenizer_of(target_words(kTable.vocab)), ours = tokenizer_of(draft_words(kTable.vocab));
  Tokens context = ours->encode(theirs->decode(tokens.first(std::size_t(prompt))));
  const auto add = [&](Token t) {
    for (const Token own : ours->encode(theirs->decode({&t, 1}))) context.push_back(own);
  };
  for (const Token t : tokens.subspan(std::size_t(prompt))) add(t);
  for (const Token t : path) add(t);
  return context;
}

// Of the draft model after a context in its own tokens, given that its next token is one of the target's.
std::vector<double> restricted(const TableModel& own, const Tokens& context, const Warp& warp) {
  const auto theirs = target_words(kTable.vocab), ours = draft_words(kTable.vocab);
  std::vector<float> row(theirs.size(), -std::numeric_limits<float>::infinity());
  for (std::size_t t = 0; t < theirs.size(); ++t)
    if (const auto at = std::ranges::find(ours, theirs[t]); at != ours.end())
      row[t] = own.logits(context)[std::size_t(at - ours.begin())];
  const Distribution d{row.data(), normalize(row.data(), int(row.size()), warp), int(row.size())};
  std::vector<double> q;
  for (Token x = 0; x < d.vocab; ++x) q.push_back(d(x));
  return q;
}

struct Compared {
  long distributions = 0, behind_pairs = 0;  // after outputs that hold "ab", which the model reads as two tokens
};

// Compares q of every drawn tree of a run.
Compared compare_q(const json& drafter, const Scenario& scenario, HostBackend& backend, RunOutcome& outcome) {
  const TableModel own(draft_table("table:other", kTable));
  Compared seen;
  const auto judge = [&](Host&, std::span<const DraftRequest> requests, std::span<const DraftTree> trees) {
    for (std::size_t i = 0; i < trees.size(); ++i) {
      const Sequence& s = *requests[i].sequence;
      for (int n = 0; n < int(trees[i].q.distributions.size()); ++n) {
        const Distributions& q = trees[i].q.distributions[std::size_t(n)];
        std::vector<Token> path;
        for (int m = n; m > 0; m = *trees[i].parents.row<std::int32_t>(m))
          path.insert(path.begin(), *trees[i].tokens.row<Token>(m));
        if (!q || std::ranges::find(path, -1) != path.end()) continue;
        const auto expected = restricted(own, own_context(s.tokens, s.prompt_length, path), s.sampling.warp());
        for (Token x = 0; x < kTable.vocab; ++x)
          EXPECT_DOUBLE_EQ(q[0](x), expected[std::size_t(x)]) << text_of(s.tokens) << ", node " << n;
        ++seen.distributions;
        seen.behind_pairs += std::find(s.tokens.begin() + s.prompt_length, s.tokens.end(), 3) != s.tokens.end();
      }
    }
  };
  const Subject s{all_registries(), {drafter, {{"name", "fixed"}, {"length", 3}}, {{"name", "speculative_sampling"}}}};
  outcome = run_scenario({watched(s, judge), scenario, backend, models_of_two_vocabularies(backend, kTable),
                          random_requests(30, kTable.vocab, 12, 30, 7)});
  return seen;
}

TEST(TwoVocabularies, q_is_that_of_the_common_tokens_after_the_text) {
  ReferenceBackend b;
  for (const Sampling& sampling : {Sampling{.temperature = 1}, Sampling{.temperature = 0.7f, .top_k = 2},
                                   Sampling{.temperature = 1, .top_p = .6f}})
    for (const json& drafter : {named("draft_model"), kTrees[1]}) {
      RunOutcome outcome;
      const Compared seen = compare_q(
          drafter, {.sampling = sampling, .engine = {.batch = 4, .step_rows = 24, .page_rows = 2, .pages = 60}}, b,
          outcome);
      EXPECT_GT(seen.distributions, 100);
      EXPECT_GT(seen.behind_pairs, 50);
      EXPECT_GT(outcome.rejections, 10);
      EXPECT_GT(outcome.accepted, 10);
    }
}

TEST(TwoVocabularies, q_survives_preemption_and_prefixes) {
  ReferenceBackend b;
  RunOutcome outcome;
  const Compared seen =
      compare_q(named("draft_model"),
                {.engine = {.batch = 6, .step_rows = 24, .page_rows = 2, .pages = 34, .check = true}}, b, outcome);
  EXPECT_GT(seen.distributions, 50);
  EXPECT_GT(outcome.preempted, 0);
  EXPECT_EQ(outcome.pages_left, 0);
}

template <class Law> void expect_law(const Law& law, bool cascades = true) {
  ReferenceBackend b;
  const Models models = models_of_two_vocabularies(b, kTable);
  long accepted = 0, rejected = 0;
  for (const Subject& s : all_subjects(4)) {
    if (!cascades && s.configs.drafter["name"] == "cascade") continue;
    const Finding f = law(s, b, models, random_requests(10, kTable.vocab, 12, 24, 5));
    EXPECT_TRUE(f.holds) << f.what.substr(0, 1000);
    EXPECT_GT(f.cases, 0) << f.what;
    accepted += f.accepted, rejected += f.rejected;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(rejected, 0);
}

const Scenario kRoomy{.engine = {.batch = 4, .step_rows = 24, .page_rows = 3, .pages = 256, .check = true}};
const Scenario kTight{.engine = {.batch = 6, .step_rows = 24, .page_rows = 2, .pages = 34, .check = true}};

TEST(TwoVocabularies, caches_hold_what_a_prefill_of_the_same_text_holds) {
  for (const Scenario& scenario : {kRoomy, kTight})
    expect_law([&](const Subject& s, HostBackend& b, const Models& models, const auto& requests) {
      return cache({s, scenario, b, models, requests});
    });
}

TEST(TwoVocabularies, drafters_propose_what_fresh_ones_do) {
  expect_law([&](const Subject& s, HostBackend& b, const Models& models, const auto& requests) {
    return memory({s, kRoomy, b, models, requests});
  });
  for (const Interruption interruption : {Interruption::forgotten, Interruption::preempted})
    expect_law([&](const Subject& s, HostBackend& b, const Models& models, const auto& requests) {
      return memory({s, interruption == Interruption::preempted ? kTight : kRoomy, b, models, requests}, interruption);
    });
}

TEST(TwoVocabularies, whether_nodes_exist_follows_from_no_token_of_theirs) {
  expect_law(
      [&](const Subject& s, HostBackend& b, const Models& models, const auto& requests) {
        Finding f = causal({s, kRoomy, b, models, requests});
        f.accepted = f.rejected = 1;
        return f;
      },
      false);  // a token of a cascade is made of several draws
}

TEST(TwoVocabularies, outputs_are_those_of_plain_decoding) {
  ReferenceBackend b;
  SimulatedDevice device;
  const Models models = models_of_two_vocabularies(b, kTable), there = models_of_two_vocabularies(device, kTable);
  const auto requests = random_requests(10, kTable.vocab, 12, 24, 8);
  long preemptions = 0, prefixes = 0;
  for (const Subject& s : all_subjects(4)) {
    const bool coupled = s.configs.verifier["name"] == "coupled";
    const Sampling sampling{.temperature = coupled ? 1.0f : 0.0f};
    Scenario alone = kRoomy, crowd = kRoomy, tight = kTight;
    for (Scenario* x : {&alone, &crowd, &tight}) x->sampling = sampling;
    alone.engine.batch = 1;
    const Finding text = same_text({s, crowd, b, models, requests});
    EXPECT_TRUE(text.holds) << text.what;
    Finding f = batch({s, alone, b, models, requests}, {.batches = {crowd, tight}, .whole = true});
    EXPECT_TRUE(f.holds) << f.what;
    preemptions += f.seen["preemptions"], prefixes += f.seen["prefix rows"];
    const Finding devices = same_text({s, crowd, device, there, requests});
    EXPECT_TRUE(devices.holds) << devices.what;
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(prefixes, 0);
}

// The rows of a step bound the draft model's, though it reads more tokens than the target: "ab" is two of its own.
TEST(TwoVocabularies, the_rows_of_a_step_are_those_of_the_model) {
  ReferenceBackend b;
  const Subject s{all_registries(), {named("draft_model"), {{"name", "fixed"}, {"length", 2}}, {{"name", "coupled"}}}};
  std::vector<TestRequest> requests;
  for (int i = 0; i < 6; ++i) requests.push_back({.prompt = Tokens(20, 3), .max_new_tokens = 12});
  std::uint64_t before = 0, most = 0;
  const RunOutcome outcome = run_scenario({s,
                                           {.engine = {.batch = 6, .step_rows = 30, .page_rows = 4, .pages = 400}},
                                           b,
                                           models_of_two_vocabularies(b, kTable),
                                           requests},
                                          [&](Engine& engine, const StepReport&, std::span<const Sequence* const>) {
                                            std::uint64_t rows = 0;
                                            for (const auto& c : engine.host().caches())
                                              rows += c->books()->totals().rows;
                                            most = std::max(most, rows - before), before = rows;
                                          });
  EXPECT_GT(outcome.drafted, 0);
  EXPECT_LE(most, 30u + 6 * 3) << "prompts within the rows of a step, and the nodes of six chains";
}

// Biases name the target's tokens. Where all that both have is forbidden, nothing is drafted.
TEST(TwoVocabularies, biases_and_penalties_name_the_targets_tokens) {
  ReferenceBackend b;
  const Models models = models_of_two_vocabularies(b, kTable);
  for (const Subject& s : all_subjects(3))
    for (const std::vector<Token>& forbidden : {std::vector<Token>{1}, std::vector<Token>{0, 1, 2}}) {
      Scenario scenario = kRoomy;
      scenario.sampling = {.temperature = 1, .repetition_penalty = 1.2f, .presence_penalty = .3f};
      for (const Token t : forbidden) scenario.sampling.logit_bias.push_back({t, -100});
      const RunOutcome outcome = run_scenario({s, scenario, b, models, random_requests(6, kTable.vocab, 8, 16, 9)});
      EXPECT_TRUE(forbidden.size() < 3 || outcome.accepted == 0) << s.text();
      for (const Tokens& output : outcome.outputs) {
        EXPECT_EQ(output.size(), 16u);
        for (const Token t : forbidden) EXPECT_EQ(std::ranges::find(output, t), output.end()) << s.text();
      }
    }
}

TEST(TwoVocabularies, an_engine_says_how_many_tokens_are_common) {
  ReferenceBackend b;
  const Models models = models_of_two_vocabularies(b, kTable);
  const ComponentConfigs configs{named("draft_model"), {{"name", "fixed"}}, {{"name", "speculative_sampling"}}};
  const Engine engine(b, models.target, all_registries(), configs, {.pages = 64}, models.load);
  EXPECT_EQ(engine.notice(),
            "the model the table of the draft has 3 of the 4 tokens of the target the table of the target, and drafts "
            "no others");
  const Models same = table_models(kTable);
  EXPECT_EQ(Engine(b, same.target, all_registries(), configs, {.pages = 64}, same.load).notice(), "");
}

}  // namespace
}  // namespace foretoken::test
