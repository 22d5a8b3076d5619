// The engine with faulty components: invalid verdicts, a wrong number of budgets, a forward that fails; and that rows
// of guesses starve no sequence.
#include "kernels/reference/reference_backend.h"
#include "tests/framework/engine/engine_scenario.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using conformance::Tokens;
using nlohmann::json;

struct EngineGuard : EngineScenario {
  static std::vector<Sequence> finish(Engine& e) {
    std::vector<Sequence> done;
    while (!e.idle())
      for (auto& s : e.step().finished) done.push_back(std::move(s));
    std::ranges::sort(done, {}, &Sequence::id);
    return done;
  }
};

TEST_F(EngineGuard, invalid_engine_options_are_refused) {
  for (const int rows : {0, -3}) {
    options.page_rows = rows;
    EXPECT_TRUE(says(sentence([&] { engine(); }), "page_rows")) << rows;
  }
  options.page_rows = 2;
  for (const std::int64_t memory : {std::int64_t(0), std::int64_t(-1), std::int64_t(1) << 50}) {
    options.pages = 0, options.memory_mib = memory;
    EXPECT_TRUE(says(sentence([&] { engine(); }), "memory_mib")) << memory;
  }
  options.memory_mib = 8'000'000;  // more than any machine has; some operating systems grant it
  EXPECT_TRUE(says(sentence([&] { engine(); }), "\"memory_mib\" is 8000000, but only", "MiB of memory are free"));
}

// A host with so much memory.
struct SmallHost : ReferenceBackend {
  std::int64_t free_memory() const override { return std::int64_t(3) << 20; }
};

TEST_F(EngineGuard, caches_may_have_all_memory_that_is_free_and_no_more) {
  backend = std::make_unique<SmallHost>();
  options.pages = 0, options.memory_mib = 3;
  EXPECT_EQ(sentence([&] { engine(); }), "(no error)");
  options.memory_mib = 4;
  EXPECT_TRUE(says(sentence([&] { engine(); }), "\"memory_mib\" is 4, but only 3 MiB of memory are free"));
}

// Gives the verdict of the test for every trial.
class GivenVerdict : public Verifier {
 public:
  explicit GivenVerdict(const Verdict& verdict) : verdict_(verdict) {}
  void verify(Backend&, const Trials& trials, Tensor verdicts) override {
    for (int i = 0; i < trials.count(); ++i) *reinterpret_cast<Verdict*>(verdicts.row<std::uint8_t>(i)) = verdict_;
  }

 private:
  Verdict verdict_;
};

TEST_F(EngineGuard, a_verdict_is_a_path_of_the_tree_and_tokens_of_the_target) {
  configs.drafter = {{"name", "ngram"}, {"longest", 1}, {"shortest", 1}};  // guesses three times the token 1
  const auto step_with = [&](int length, Token accepted, Token next, Token last = -1) {
    Verdict v;
    for (int k = 0; k < 3; ++k) v.path[k] = k + 1, v.tokens[k] = accepted;
    v.length = length, v.next = next;
    if (length >= 0 && length < 4) v.tokens[length] = last >= 0 ? last : next;
    registries.verifiers.replace(
        "given", entry_that<Verifier>(states(Soundness{{Drawn::certain, Drawn::chain}}),
                                      [=](const json&, Host&) { return std::make_unique<GivenVerdict>(v); }));
    configs.verifier = {{"name", "given"}};
    const auto e = engine();
    e->submit(request({2, 1, 1, 1, 3, 2}, 20));
    return sentence([&] { (void)without_failures(e->step()); });
  };
  EXPECT_EQ(step_with(2, 1, 4), "(no error)");
  EXPECT_TRUE(says(step_with(2, 3, 4), "the verifier 'given' accepted the node 1, which holds the token 1",
                   "emitted the token 3 for it"));
  EXPECT_TRUE(says(step_with(2, 1, 4, 3), "the verifier 'given' emitted the token 3 last", "Verdict::next is 4"));
  for (const int length : {-1, 4, 60, 1000}) {
    const std::string text = step_with(length, 1, 1);
    EXPECT_TRUE(says(text, "the verifier 'given' accepted " + std::to_string(length) +
                               " nodes of a tree that has 3 below its root;"))
        << text;
  }
  for (const Token t : {5, -7, 1'000'000}) {
    EXPECT_TRUE(says(step_with(2, t, 1), "the verifier 'given' emitted the token " + std::to_string(t) + ", outside"))
        << t;
    EXPECT_TRUE(says(step_with(0, 1, t), "the verifier 'given' emitted the token " + std::to_string(t) + ", outside"))
        << t;
  }
}

class Miscounting : public LengthPolicy {
 public:
  std::vector<Budget> budgets(std::span<const PastOnly>) override { return {}; }
};

TEST_F(EngineGuard, a_policy_must_return_one_budget_per_sequence) {
  registries.policies.add("miscounting", entry_that<LengthPolicy>(states(Budget{5, 4}), [](const json&, Host&) {
                            return std::make_unique<Miscounting>();
                          }));
  configs.policy = {{"name", "miscounting"}};
  const auto e = engine();
  e->submit(request({1, 2, 3}));
  EXPECT_TRUE(says(sentence([&] { e->step(); }), "'miscounting'"));
}

// 1 / T overflows: the distribution would be NaN everywhere, and every token 0.
TEST_F(EngineGuard, a_temperature_whose_reciprocal_is_not_finite_is_refused) {
  const auto e = engine();
  EXPECT_TRUE(says(sentence([&] { e->submit(request({1}, 4, 1e-40f)); }), "'temperature'"));
  EXPECT_EQ(sentence([&] { e->submit(request({1}, 4, 1e-6f)); }), "(no error)");
}

TEST_F(EngineGuard, a_temperature_of_the_draft_whose_reciprocal_is_not_finite_is_refused) {
  configs.drafter["temperature"] = 1e-40;
  EXPECT_TRUE(says(sentence([&] { engine(); }), "'temperature'"));
  for (const double fine : {0.0, 1e-6}) {
    configs.drafter["temperature"] = fine;
    EXPECT_EQ(sentence([&] { engine(); }), "(no error)") << fine;
  }
}

// Throws once, before it writes anything.
class Failing : public Model {
 public:
  Failing(std::shared_ptr<Model> inner, int at) : inner_(std::move(inner)), at_(at) {}
  const ModelInfo& info() const override { return inner_->info(); }
  Output forward(Backend& b, const Rows& rows, std::span<const KvLayer> kv) override {
    if (calls_++ == at_) throw Error("out of memory");
    return inner_->forward(b, rows, kv);
  }

 private:
  std::shared_ptr<Model> inner_;
  int at_, calls_ = 0;
};

TEST_F(EngineGuard, a_failed_forward_does_not_change_the_output) {
  options.step_rows = 8;
  const auto text = [&](std::shared_ptr<Model> target, std::shared_ptr<Model> draft, int* failures) {
    conformance::Models c{target, [=](const ModelChoice&) { return draft; }};
    Engine e(*backend, c.target, registries, configs, options, c.load);
    e.submit(request(Tokens(13, 2), 20));
    e.submit(request({1, 3, 4}, 20));
    std::vector<Sequence> done;
    while (!e.idle()) {
      try {
        for (auto& s : e.step().finished) done.push_back(std::move(s));
      } catch (const Error& error) {
        if (!says(error.what(), "out of memory")) throw;
        ++*failures;
      }
    }
    std::ranges::sort(done, {}, &Sequence::id);
    return std::pair(done.at(0).tokens, done.at(1).tokens);
  };
  int failures = 0;
  const auto draft = models.load("table:other");
  const auto undisturbed = text(models.target, draft, &failures);
  ASSERT_EQ(failures, 0);
  for (int at = 0; at < 6; ++at) {
    EXPECT_EQ(text(std::make_shared<Failing>(models.target, at), draft, &failures), undisturbed)
        << "target, call " << at;
    EXPECT_EQ(text(models.target, std::make_shared<Failing>(draft, at), &failures), undisturbed)
        << "draft, call " << at;
  }
  EXPECT_EQ(failures, 12);
}

// As many rows as sequences: guesses must leave a row to every sequence that reads a prompt or waits.
TEST_F(EngineGuard, guesses_take_no_row_from_prompts) {
  options.step_rows = 2, options.batch = 2;
  const auto e = engine();
  e->submit(request({1, 2}, 30));
  e->step();
  const SequenceId late = e->submit(request({3, 3, 3}, 2));
  bool served = false;
  for (int i = 0; i < 6; ++i)
    for (const auto& s : e->step().sequences) served |= s.id == late;
  EXPECT_TRUE(served) << "the second request waits for the first one's end";
}

TEST_F(EngineGuard, a_prefix_is_counted_when_it_is_used_and_not_when_it_is_looked_up) {
  options.pages = 27, options.batch = 2;
  configs.drafter = {{"name", "none"}};
  const auto e = engine();
  e->submit(request(Tokens(16, 1), 1));
  finish(*e);
  ASSERT_EQ(e->target().cache().prefix_rows_reused(), 0u);
  e->submit(request(Tokens(30, 2), 6));  // 15 to 18 pages
  e->submit(request(Tokens(30, 1), 4));  // 8 pages are there, but not the 7 others before the first request ends
  finish(*e);
  EXPECT_EQ(e->target().cache().prefix_rows_reused(), 16u);
}

TEST_F(EngineGuard, prefixes_that_are_forgotten_are_read_anew_also_while_others_run) {
  configs.drafter = {{"name", "none"}};
  const auto e = engine();
  const auto reused = [&] { return e->target().cache().prefix_rows_reused(); };
  for (const bool forgotten : {false, true}) {
    const std::uint64_t before = reused();
    e->submit(request(Tokens(16, 1), 1));
    finish(*e);
    e->submit(request(Tokens(9, 2), 4));
    (void)without_failures(e->step());
    if (forgotten) e->forget_prefixes();
    e->submit(request(Tokens(16, 1), 1));
    EXPECT_EQ(finish(*e).size(), 2u);
    EXPECT_EQ(reused() > before, !forgotten) << "the first of both runs has nothing to find but its own";
    e->forget_prefixes();
    EXPECT_EQ(e->pool().available(), e->pool().pages());
  }
}

TEST_F(EngineGuard, ngram_whose_longest_match_is_shorter_than_its_shortest_is_refused) {
  configs.drafter = {{"name", "ngram"}, {"longest", 2}, {"shortest", 5}};
  const std::string text = sentence([&] { engine(); });
  EXPECT_TRUE(says(text, "longest") && says(text, "shortest")) << text;
}

TEST_F(EngineGuard, a_stop_rule_cannot_lengthen_an_output) {
  configs.drafter = {{"name", "none"}};
  const auto e = engine();
  Request r = request({1, 2, 3}, 20);
  r.limits.stop = [](std::span<const Token> generated, int) -> std::optional<int> {
    if (generated.size() < 4) return std::nullopt;
    return 10;
  };
  e->submit(r);
  EXPECT_EQ(finish(*e).at(0).generated(), 4);
}

}  // namespace
}  // namespace foretoken::test
