// The engine's errors, its scheduling, and that no token or page is lost when memory runs out or a request is
// cancelled.
#include <cmath>

#include <malloc.h>

#include "tests/framework/engine/engine_scenario.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using conformance::Tokens;
using nlohmann::json;

struct EngineTest : EngineScenario {};

TEST_F(EngineTest, refuses_invalid_requests_in_one_sentence) {
  const auto e = engine();
  EXPECT_TRUE(says(sentence([&] { e->submit(request({})); }), "prompt is empty"));
  EXPECT_TRUE(says(sentence([&] { e->submit(request(Tokens(64, 1))); }), "context"));
  EXPECT_TRUE(says(sentence([&] { e->submit(request({5})); }), "outside the vocabulary"));
  EXPECT_TRUE(says(sentence([&] { e->submit(request({1}, 0)); }), "max_new_tokens"));
  EXPECT_TRUE(says(sentence([&] { e->submit(request({1}, 4, -1)); }), "'temperature'"));
  EXPECT_TRUE(says(sentence([&] { e->submit(request({1}, 4, NAN)); }), "'temperature'"));
  Request r = request({1});
  r.sampling.top_p = 0;
  EXPECT_TRUE(says(sentence([&] { e->submit(r); }), "'top_p'"));
  for (const auto& [sampling, what] : std::vector<std::pair<Sampling, std::string>>{
           {{.repetition_penalty = 0}, "'repetition_penalty'"},
           {{.frequency_penalty = NAN}, "'frequency_penalty'"},
           {{.presence_penalty = 1e9f}, "'presence_penalty'"},
           {{.warped_logprobs = true}, "'warped_logprobs'"},
           {{.logit_bias = {{5, 1}}}, "token 5"},
           {{.logit_bias = {{1, -101}}}, "-100 forbids"},
           {{.logit_bias = {{0, -100}, {1, -100}, {2, -100}, {3, -100}, {4, -100}}},
            "'logit_bias' forbids all 5 tokens"}}) {
    r.sampling = sampling;
    EXPECT_TRUE(says(sentence([&] { e->submit(r); }), what)) << what;
  }
  EXPECT_TRUE(e->idle());
}

TEST_F(EngineTest, refuses_a_pool_too_small_for_one_sequence) {
  options.pages = 4;  // 8 positions
  EXPECT_TRUE(says(sentence([&] { engine()->submit(request({1, 2, 3, 4}, 8)); }), "memory_mib"));
}

TEST_F(EngineTest, refuses_names_that_are_not_registered) {
  configs.drafter = {{"name", "ngrm"}};
  EXPECT_TRUE(says(sentence([&] { engine(); }), "did you mean 'ngram'?"));
}

// A drafter whose siblings are drawn without repeats, for which speculative sampling's rule is biased.
class WithoutRepeats : public Drafter {
 public:
  std::vector<DraftTree> draft(std::span<const DraftRequest>) override { return {}; }
};

TEST_F(EngineTest, refuses_an_unsound_pair) {
  registries.drafters.add("sequoia",
                          entry_that<Drafter>(states(Needs{.proposes = {Drawn::without_replacement}}),
                                              [](const json&, Host&) { return std::make_unique<WithoutRepeats>(); }));
  configs.drafter = {{"name", "sequoia"}};
  const std::string text = sentence([&] { engine(); });
  EXPECT_TRUE(says(text, "not sound", "without_replacement", "it takes those drawn 'certain, chain, ")) << text;
}

TEST_F(EngineTest, refuses_a_draft_of_another_vocabulary) {
  const auto other = conformance::table_models({.vocab = 4});
  models.load = [other](const ModelChoice&) { return other.target; };
  EXPECT_TRUE(says(sentence([&] { engine(); }), "another vocabulary"));
}

// A drafter that draws a node without giving its distribution.
class Lawless : public Drafter {
 public:
  explicit Lawless(Backend& b) : backend_(b) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees;
    for (const auto& r : requests) {
      trees.push_back(DraftTree::rooted(backend_, r.sequence->last(), r.budget));
      if (r.budget.drafts())
        trees.back().q.drawn.data<std::uint8_t>()[trees.back().guess(0, 1)] = std::uint8_t(Drawn::chain);
    }
    return trees;
  }

 private:
  Backend& backend_;
};

TEST_F(EngineTest, refuses_a_drawn_node_without_its_distribution) {
  registries.drafters.add(
      "lawless", entry_that<Drafter>(states(Needs{.proposes = {Drawn::chain}}),
                                     [](const json&, Host& h) { return std::make_unique<Lawless>(h.backend()); }));
  configs.drafter = {{"name", "lawless"}};
  const auto e = engine();
  e->submit(request({1, 2}));
  EXPECT_TRUE(
      says(sentence([&] { (void)without_failures(e->step()); }), "no distribution q", "fill Proposal::distributions"));
}

// Guesses of which some are absent: below the root a token with a child, and an absent token with a child.
class Gaps : public Drafter {
 public:
  explicit Gaps(Backend& b) : backend_(b) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees;
    for (const auto& r : requests) {
      trees.push_back(DraftTree::rooted(backend_, r.sequence->last(), r.budget));
      if (r.budget.chain() < 4) continue;
      const int there = trees.back().guess(0, 1), absent = trees.back().guess(0, -1);
      trees.back().guess(there, 2), trees.back().guess(absent, 3);
    }
    return trees;
  }

 private:
  Backend& backend_;
};

TEST_F(EngineTest, absent_nodes_do_not_count_as_drafted) {
  registries.drafters.add(
      "gaps", entry_that<Drafter>(states(Needs{.proposes = {Drawn::certain}}),
                                  [](const json&, Host& h) { return std::make_unique<Gaps>(h.backend()); }));
  configs.drafter = {{"name", "gaps"}}, configs.policy = {{"name", "fixed"}, {"length", 4}};
  const auto e = engine();
  e->submit(request({1, 2}, 12));
  int whole = 0;
  while (!e->idle()) {
    for (const SequenceReport& r : e->step().sequences) {
      if (r.drafted == 0) continue;
      EXPECT_EQ(r.drafted, 2);
      EXPECT_EQ(r.depth, 2);
      ++whole;
    }
  }
  EXPECT_GT(whole, 0);
}

// A target whose logits are NaN at one position.
class Broken : public Model {
 public:
  explicit Broken(std::shared_ptr<Model> inner) : inner_(std::move(inner)) {}
  const ModelInfo& info() const override { return inner_->info(); }
  Output forward(Backend& b, const Rows& rows, std::span<const KvLayer> kv) override {
    Output out = inner_->forward(b, rows, kv);
    if (rows.layout.deepest > 5 && out.logits) out.logits.row<float>(0)[1] = NAN;
    return out;
  }

 private:
  std::shared_ptr<Model> inner_;
};

TEST_F(EngineTest, reports_logits_that_are_not_finite) {
  for (const char* drafter : {"none", "draft_model"}) {
    configs.drafter = {{"name", drafter}};
    if (configs.drafter["name"] == "draft_model") configs.drafter["model"] = "table:other";
    auto e = Engine(*backend, std::make_shared<Broken>(models.target), registries, configs, options, models.load);
    e.submit(request({1, 2, 3}));
    std::vector<Sequence> done;
    while (!e.idle())
      for (auto& s : e.step().finished) done.push_back(std::move(s));
    ASSERT_EQ(done.size(), 1u) << drafter;
    EXPECT_EQ(done[0].finish, Finish::failed) << drafter;
    EXPECT_TRUE(says(done[0].failure, "NaN")) << drafter;
  }
}

TEST_F(EngineTest, the_context_limits_the_output) {
  const auto e = engine();
  e->submit(request(Tokens(60, 1), 100));
  std::vector<Sequence> done;
  while (!e->idle())
    for (auto& s : e->step().finished) done.push_back(std::move(s));
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].length(), 64);
  EXPECT_EQ(done[0].finish, Finish::length);
}

TEST_F(EngineTest, a_draft_with_a_shorter_context_drafts_up_to_its_end) {
  const auto shorter = conformance::table_models({.vocab = 5, .positions = 20});
  models.load = [shorter](const ModelChoice&) { return shorter.target; };
  const auto e = engine();
  e->submit(request({1, 2, 3}, 40));
  int longest = 0, length = 3;
  while (!e->idle())
    for (const auto& r : e->step().sequences) {
      if (r.drafted > 0) longest = length + r.drafted;
      length += int(r.emitted.size());
    }
  EXPECT_EQ(length, 43);
  EXPECT_GE(longest, 20);
  EXPECT_LE(longest, 21) << "the last drafted token is never fed";
}

TEST_F(EngineTest, a_cancelled_request_leaves_at_the_next_step_and_gives_back_its_pages) {
  const auto e = engine();
  const SequenceId stays = e->submit(request({1, 2}, 4)), goes = e->submit(request({2, 2}, 40));
  e->step();
  e->cancel(goes);
  std::vector<Sequence> done;
  while (!e->idle())
    for (auto& s : e->step().finished) done.push_back(std::move(s));
  ASSERT_EQ(done.size(), 2u);
  for (const auto& s : done) EXPECT_EQ(s.finish, s.id == stays ? Finish::length : Finish::cancelled);
  EXPECT_EQ(e->pool().in_use(), 0);
}

TEST_F(EngineTest, on_tokens_gets_the_tokens_of_every_round) {
  const auto e = engine();
  Tokens streamed;
  Request r = request({1, 2, 3}, 12);
  r.on_tokens = [&](const Sequence&, std::span<const Token> t) { streamed.insert(streamed.end(), t.begin(), t.end()); };
  e->submit(r);
  std::vector<Sequence> done;
  while (!e->idle())
    for (auto& s : e->step().finished) done.push_back(std::move(s));
  EXPECT_EQ(streamed, Tokens(done.at(0).tokens.begin() + 3, done.at(0).tokens.end()));
}

// A draft of eight tokens that the target would draw itself, of an output that ends after three.
TEST_F(EngineTest, what_was_accepted_behind_the_end_is_not_counted) {
  configs.drafter["model"] = "table:same", configs.policy["length"] = 8;
  for (const bool by_token : {false, true}) {
    Request r = request({1, 2}, 20, 0);
    if (by_token)
      r.limits.stop_tokens = {0, 1, 2, 3, 4};  // the first of any
    else
      r.limits.stop = [](auto tokens, int) { return tokens.size() > 3 ? std::optional(3) : std::nullopt; };
    const auto e = engine();
    e->submit(r);
    int drafted = 0, tested = 0, accepted = 0, kept = 0;
    while (!e->idle())
      for (const SequenceReport& s : e->step().sequences)
        drafted += s.drafted, tested += s.tested(), accepted += s.accepted, kept += int(s.emitted.size());
    EXPECT_EQ(drafted, 8);
    EXPECT_EQ(kept, by_token ? 1 : 3);
    EXPECT_EQ(accepted, kept) << "all that was kept was drafted";
    EXPECT_EQ(tested, kept);
  }
}

// A stop rule keeps what came before it, of the round that it ends as well.
TEST_F(EngineTest, on_tokens_gets_what_a_stop_rule_kept) {
  configs.drafter["model"] = "table:same";  // rounds of four tokens
  const auto e = engine();
  Tokens streamed;
  Request r = request({1, 2, 3}, 12);
  r.limits.stop = [](auto tokens, int) { return tokens.size() > 6 ? std::optional(6) : std::nullopt; };
  r.on_tokens = [&](const Sequence&, std::span<const Token> t) { streamed.insert(streamed.end(), t.begin(), t.end()); };
  e->submit(r);
  while (!e->idle()) e->step();
  EXPECT_EQ(streamed.size(), 6u);
}

TEST_F(EngineTest, prompts_are_read_in_chunks_and_do_not_delay_decoding) {
  options.step_rows = 8;
  const auto e = engine();
  const SequenceId first = e->submit(request({1, 2}, 30));
  e->step();
  e->submit(request(Tokens(20, 3), 4));
  for (int i = 0; i < 3; ++i) {
    const StepReport report = e->step();
    EXPECT_LE(report.rows, 8);
    ASSERT_FALSE(report.sequences.empty());
    EXPECT_EQ(report.sequences[0].id, first);
    EXPECT_TRUE(report.sequences[0].judged);
  }
}

TEST_F(EngineTest, when_pages_run_out_the_newest_is_preempted_and_all_finish) {
  options.pages = 26, options.batch = 4;
  const auto e = engine();
  for (int i = 0; i < 4; ++i) e->submit(request({i, 1, 2}, 30));
  long preempted = 0;
  std::vector<Sequence> done;
  while (!e->idle()) {
    StepReport report = e->step();
    preempted += report.preempted;
    for (auto& s : report.finished) done.push_back(std::move(s));
  }
  EXPECT_GT(preempted, 0);
  ASSERT_EQ(done.size(), 4u);
  for (const auto& s : done) EXPECT_EQ(s.generated(), 30);
  EXPECT_EQ(e->pool().in_use(), 0);
}

TEST_F(EngineTest, phases_sum_to_the_step) {
  const auto e = engine();
  e->submit(request({1, 2, 3}, 20));
  Phases all;
  while (!e->idle()) all += e->step().phases;
  const double sum = all.schedule + all.draft_forward + all.draft_other + all.target_forward + all.verify + all.deliver;
  EXPECT_LE(sum, all.total);
  EXPECT_GT(sum, 0.8 * all.total);
  for (const double part : {all.draft_forward, all.target_forward, all.verify, all.deliver}) EXPECT_GT(part, 0);
}

// A program may serve for weeks, so no step may leave memory behind. Sanitizers have an allocator of their own, which
// mallinfo2 does not report; their leak check finds unreachable memory only.
TEST_F(EngineTest, holds_no_more_memory_after_thousands_of_steps) {
  options.check = false;
  const auto e = engine();
  const auto serve = [&](int requests) {
    for (int i = 0; i < requests; ++i) {
      e->submit(request({Token(i % 5), 1, 2}, 24));
      while (!e->idle()) e->step();
    }
    const struct mallinfo2 held = mallinfo2();
    return held.uordblks + held.hblkhd;  // small blocks and mapped ones
  };
  if (serve(200) == 0) GTEST_SKIP() << "this allocator does not report its memory";
  const auto before = serve(20);
  const auto after = serve(400);  // some 4000 steps
  EXPECT_LT(after, before + 16384) << "4 bytes per step";
}

}  // namespace
}  // namespace foretoken::test
