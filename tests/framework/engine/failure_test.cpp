// A sequence that cannot go on ends alone and says why: a NaN in its logits, a component that throws for it, its own
// stop rule. The others get the tokens that they get without it, and no page is lost.
#include "tests/framework/engine/failure_scene.h"

namespace foretoken::testing {
namespace {

using conformance::Text;
using nlohmann::json;

using Unlucky = std::function<bool(const Sequence&)>;

// Drafts as `inner` does, then throws where one of the batch is unlucky.
class Choosy : public Drafter {
 public:
  Choosy(std::unique_ptr<Drafter> inner, Unlucky unlucky) : inner_(std::move(inner)), unlucky_(std::move(unlucky)) {}
  Needs needs() const override { return inner_->needs(); }
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    auto trees = inner_->draft(requests);
    for (const DraftRequest& r : requests)
      if (unlucky_(*r.sequence)) throw std::runtime_error("no guess today");
    return trees;
  }
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }

 private:
  std::unique_ptr<Drafter> inner_;
  Unlucky unlucky_;
};

class ChoosyPolicy : public LengthPolicy {
 public:
  explicit ChoosyPolicy(SequenceId unlucky) : unlucky_(unlucky) {}
  Budget most() const override { return {4, 3}; }
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    for (const PastOnly& p : past)
      if (p.id == unlucky_ && p.rounds == 1) throw Error("no length today");
    return std::vector<Budget>(past.size(), {4, 3});
  }

 private:
  SequenceId unlucky_;
};

class ChoosyVerifier : public Verifier {
 public:
  ChoosyVerifier(std::unique_ptr<Verifier> inner, std::uint64_t stream) : inner_(std::move(inner)), stream_(stream) {}
  Soundness soundness() const override { return inner_->soundness(); }
  void verify(Backend& b, const Trials& trials, Tensor verdicts) override {
    inner_->verify(b, trials, verdicts);
    for (int i = 0; i < trials.count(); ++i)
      if (trials.named()[std::size_t(i)].stream == stream_ && trials.positions()[std::size_t(i)] > 5)
        throw std::runtime_error("no verdict today");
  }

 private:
  std::unique_ptr<Verifier> inner_;
  std::uint64_t stream_;
};

struct FailureTest : FailureScene {
  void choosy(const Unlucky& unlucky, const json& inner = {{"name", "draft_model"}, {"model", "table:other"}}) {
    registries.drafters.replace("choosy",
                                {"", "", {}, [inner, unlucky, r = conformance::all_registries()](const json&, Host& h) {
                                   return std::make_unique<Choosy>(r.drafters.make(inner, h), unlucky);
                                 }});
    chairs.drafter = {{"name", "choosy"}};
  }
};

TEST_F(FailureTest, a_nan_in_the_logits_ends_its_sequence_alone) {
  cast.target = std::make_shared<Poisoned>(cast.target);
  for (const char* drafter : {"none", "ngram", "draft_model"}) {
    chairs.drafter = {{"name", drafter}};
    if (drafter == std::string("draft_model")) chairs.drafter["model"] = "table:other";
    for (const int batch : {1, 2, 4}) {
      options.batch = batch;
      const Sequence first = one_fails({lucky({1, 2, 3}, 1, true), lucky({2, 1, 2, 1, kPoison}, 2), lucky({3, 3}, 3)},
                                       1, "the logits at position 5 hold a NaN or an infinity");
      EXPECT_EQ(first.generated(), 0);
      if (drafter == std::string("draft_model")) continue;  // it would draft what is no number: the first round fails
      Request later = lucky({1, 1, 1}, 2);
      later.sampling.logit_bias = {{kPoison, 100}};
      const Sequence second =
          one_fails({lucky({1, 2, 3}, 1), later, lucky({3, 3}, 3, true), lucky({2}, 4)}, 1, "the logits at position 4");
      EXPECT_EQ(second.tokens, (Text{1, 1, 1, kPoison}));
    }
  }
}

TEST_F(FailureTest, a_nan_of_the_draft_model_ends_its_sequence_alone) {
  cast.load = [load = cast.load](const ModelChoice& choice, const std::string& dtype) {
    return std::make_shared<Poisoned>(load(choice, dtype));
  };
  one_fails({lucky({1, 2, 3}, 1), lucky({2, 1, kPoison}, 2), lucky({3, 3}, 3)}, 1, "NaN or an infinity");
}

TEST_F(FailureTest, of_a_step_its_report_tells) {
  cast.target = std::make_shared<Poisoned>(cast.target);
  const auto e = engine();
  const SequenceId good = e->submit(lucky({1, 2, 3}, 1)), bad = e->submit(lucky({2, 1, kPoison}, 2));
  const StepReport report = e->step();
  ASSERT_EQ(report.sequences.size(), 2u);
  for (const SequenceReport& r : report.sequences) {
    EXPECT_EQ(r.judged, r.id == good);
    EXPECT_EQ(r.finish, r.id == bad ? Finish::failed : Finish::running);
  }
  ASSERT_EQ(report.finished.size(), 1u);
  EXPECT_EQ(report.finished[0].id, bad);
  EXPECT_STREQ(name_of(report.finished[0].finish), "failed");
  EXPECT_TRUE(says(test::sentence_of([&] { (void)without_failures(report); }), "request 2 failed: the logits at"));
}

TEST_F(FailureTest, whoever_waits_for_a_failed_prompt_begins) {
  cast.target = std::make_shared<Poisoned>(cast.target);
  const auto e = engine();
  Request first = lucky({2, 1, kPoison}, 2), second = lucky({2, 1, kPoison}, 3);
  second.like = e->submit(first);
  e->submit(second);
  int failed = 0;
  for (int steps = 0; !e->idle() && steps < 20; ++steps)
    for (const Sequence& s : e->step().finished) failed += s.finish == Finish::failed;
  EXPECT_EQ(failed, 2);
}

TEST_F(FailureTest, a_drafter_that_throws_for_one_request_fails_that_one_alone) {
  choosy([](const Sequence& s) { return s.stream == 2 && s.length() >= 6; });
  for (const int batch : {1, 2, 4}) {
    options.batch = batch;
    const Sequence failed = one_fails({lucky({1, 2, 3}, 1, true), lucky({2, 1, 2}, 2), lucky({3, 3}, 3)}, 1,
                                      "the drafter 'choosy' failed for this request: no guess today");
    EXPECT_GE(failed.length(), 6);
  }
}

// While prompts are read in chunks, drafters catch up with them.
TEST_F(FailureTest, a_drafter_that_throws_while_a_prompt_is_read_fails_that_request_alone) {
  choosy([](const Sequence& s) { return s.stream == 2; });
  options.step_rows = 8;
  std::vector<Request> requests{lucky({1, 2, 3}, 1), lucky(Text(20, 2), 2), lucky({3, 3}, 3)};
  for (Request& r : requests) r.sampling.temperature = 0;  // drafts of other lengths are other draws
  one_fails(requests, 1, "no guess today");
}

TEST_F(FailureTest, a_drafter_that_throws_for_every_request_fails_each_of_them) {
  choosy([](const Sequence&) { return true; });
  for (const int batch : {1, 2, 4}) {
    options.batch = batch;
    const std::vector<Sequence> all = serve({lucky({1, 2, 3}, 1), lucky({2, 1}, 2), lucky({3}, 3)});
    EXPECT_EQ(all.size(), 3u);
    for (const Sequence& s : all) EXPECT_TRUE(says(s.failure, "no guess today")) << s.failure;
  }
}

// The step is at fault, and may be asked for again.
TEST_F(FailureTest, a_drafter_that_throws_for_a_batch_alone_ends_no_sequence) {
  int calls = 0, errors = 0;
  const std::vector<Request> requests{lucky({1, 2, 3}, 1), lucky({2, 1}, 2)};
  const std::vector<Sequence> undisturbed = serve(requests);
  choosy([&](const Sequence&) { return ++calls == 3; });
  const auto e = engine();
  for (const Request& r : requests) e->submit(r);
  std::vector<Sequence> done;
  while (!e->idle()) {
    try {
      for (auto& s : e->step().finished) done.push_back(std::move(s));
    } catch (const std::runtime_error&) {
      ++errors;
    }
  }
  EXPECT_EQ(errors, 1);
  std::ranges::sort(done, {}, &Sequence::id);
  ASSERT_EQ(done.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(done[i].tokens, undisturbed[i].tokens);
}

TEST_F(FailureTest, a_policy_that_throws_for_one_request_fails_that_one_alone) {
  for (const SequenceId unlucky : {1u, 2u}) {
    registries.policies.replace(
        "choosy", {"", "", {}, [unlucky](const json&, Host&) { return std::make_unique<ChoosyPolicy>(unlucky); }});
    chairs.policy = {{"name", "choosy"}};
    const std::vector<Sequence> all = serve({lucky({1, 2, 3}, 1), lucky({2, 1}, 2)});
    for (const Sequence& s : all) EXPECT_EQ(s.failure, s.id == unlucky ? "no length today" : "");
  }
}

TEST_F(FailureTest, a_verifier_that_throws_for_one_request_fails_that_one_alone) {
  registries.verifiers.add("choosy", {"", "", {}, [r = conformance::all_registries()](const json&, Host& h) {
                                        return std::make_unique<ChoosyVerifier>(
                                            r.verifiers.make({{"name", "speculative_sampling"}}, h), 2);
                                      }});
  chairs.verifier = {{"name", "choosy"}};
  const Sequence failed = one_fails({lucky({1, 2, 3}, 1, true), lucky({2, 1, 2}, 2, true), lucky({3, 3}, 3)}, 1,
                                    "the verifier 'choosy' failed for this request: no verdict today");
  EXPECT_GE(failed.length(), 6);
  EXPECT_EQ(failed.logprobs.size(), std::size_t(failed.generated()));
}

TEST_F(FailureTest, a_request_whose_own_functions_throw_fails_alone) {
  Request stops = lucky({2, 1, 2}, 2), tells = lucky({2, 1, 2}, 2);
  stops.limits.stop = [](std::span<const Token> generated, int) -> std::optional<int> {
    if (generated.size() > 3) throw std::runtime_error("no end in sight");
    return std::nullopt;
  };
  const Sequence stopped =
      one_fails({lucky({1, 2, 3}, 1), stops, lucky({3, 3}, 3)}, 1, "its stop rule failed for this request: no end");
  EXPECT_LE(stopped.generated(), 3);
  tells.on_tokens = [](const Sequence& s, std::span<const Token>) {
    if (s.generated() > 3) throw 7;
  };
  const Sequence told = one_fails({lucky({1, 2, 3}, 1), tells, lucky({3, 3}, 3)}, 1, "its on_tokens failed");
  EXPECT_GT(told.generated(), 3);
}

// Says of the second trial what no verifier may say.
class HalfRight : public Verifier {
 public:
  Soundness soundness() const override { return {{Drawn::certain, Drawn::chain}}; }
  void verify(Backend&, const Trials& trials, Tensor verdicts) override {
    for (int i = 0; i < trials.count(); ++i) {
      auto& v = *reinterpret_cast<Verdict*>(verdicts.row<std::uint8_t>(i));
      v = Verdict(), v.finish(i == 0 ? 1 : 99);
    }
  }
};

TEST_F(FailureTest, a_verdict_that_no_verifier_may_give_is_not_delivered) {
  registries.verifiers.add("half", {"", "", {}, [](const json&, Host&) { return std::make_unique<HalfRight>(); }});
  chairs.verifier = {{"name", "half"}};
  const auto e = engine();
  std::vector<SequenceId> told;
  for (Request r : {lucky({1, 2, 3}, 1), lucky({2, 1}, 2)}) {
    r.on_tokens = [&](const Sequence& s, std::span<const Token>) { told.push_back(s.id); };
    e->submit(r);
  }
  const StepReport report = e->step();
  ASSERT_EQ(report.finished.size(), 1u);
  EXPECT_TRUE(says(report.finished[0].failure, "the verifier 'half' said the token 99"));
  EXPECT_EQ(report.finished[0].generated(), 0);
  EXPECT_EQ(told, std::vector<SequenceId>{1});
}

}  // namespace
}  // namespace foretoken::testing
