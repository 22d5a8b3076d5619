// A sequence that cannot go on ends alone and says why: a NaN in its logits, a component that throws for it, its own
// stop rule. The others get the tokens that they get without it, and no page is lost.
#include "tests/framework/engine/failure_scenario.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using conformance::Tokens;
using nlohmann::json;

using Fails = std::function<bool(const Sequence&)>;

// Drafts as `inner` does, then throws where one of the batch is failing.
class Throwing : public Drafter {
 public:
  Throwing(std::unique_ptr<Drafter> inner, Fails failing) : inner_(std::move(inner)), fails_(std::move(failing)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    auto trees = inner_->draft(requests);
    for (const DraftRequest& r : requests)
      if (fails_(*r.sequence)) throw std::runtime_error("no guess today");
    return trees;
  }
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }

 private:
  std::unique_ptr<Drafter> inner_;
  Fails fails_;
};

class ThrowingPolicy : public LengthPolicy {
 public:
  explicit ThrowingPolicy(SequenceId failing) : fails_(failing) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    for (const PastOnly& p : past)
      if (p.id == fails_ && p.rounds == 1) throw Error("no length today");
    return std::vector<Budget>(past.size(), {4, 3});
  }

 private:
  SequenceId fails_;
};

class ThrowingVerifier : public Verifier {
 public:
  ThrowingVerifier(std::unique_ptr<Verifier> inner, std::uint64_t stream) : inner_(std::move(inner)), stream_(stream) {}
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

struct FailureTest : FailureScenario {
  void throw_for(const Fails& failing, const json& inner = {{"name", "draft_model"}, {"model", "table:other"}}) {
    registries.drafters.replace(
        "throwing", entry_that<Drafter>(states_those_of(conformance::all_registries().drafters, inner),
                                        [inner, failing, r = conformance::all_registries()](const json&, Host& h) {
                                          return std::make_unique<Throwing>(r.drafters.make(inner, h), failing);
                                        }));
    configs.drafter = {{"name", "throwing"}};
  }
};

TEST_F(FailureTest, a_nan_in_the_logits_ends_its_sequence_alone) {
  models.target = std::make_shared<Poisoned>(models.target);
  for (const char* drafter : {"none", "ngram", "draft_model"}) {
    configs.drafter = {{"name", drafter}};
    if (drafter == std::string("draft_model")) configs.drafter["model"] = "table:other";
    for (const int batch : {1, 2, 4}) {
      options.batch = batch;
      const Sequence first = one_fails({clean({1, 2, 3}, 1, true), clean({2, 1, 2, 1, kPoison}, 2), clean({3, 3}, 3)},
                                       1, "the logits at position 5 hold a NaN or an infinity");
      EXPECT_EQ(first.generated(), 0);
      if (drafter == std::string("draft_model")) continue;  // it would draft what is no number: the first round fails
      Request later = clean({1, 1, 1}, 2);
      later.sampling.logit_bias = {{kPoison, 100}};
      const Sequence second =
          one_fails({clean({1, 2, 3}, 1), later, clean({3, 3}, 3, true), clean({2}, 4)}, 1, "the logits at position 4");
      EXPECT_EQ(second.tokens, (Tokens{1, 1, 1, kPoison}));
    }
  }
}

TEST_F(FailureTest, a_nan_of_the_draft_model_ends_its_sequence_alone) {
  models.load = [load = models.load](const ModelChoice& choice) { return std::make_shared<Poisoned>(load(choice)); };
  one_fails({clean({1, 2, 3}, 1), clean({2, 1, kPoison}, 2), clean({3, 3}, 3)}, 1, "NaN or an infinity");
}

TEST_F(FailureTest, of_a_step_its_report_tells) {
  models.target = std::make_shared<Poisoned>(models.target);
  const auto e = engine();
  const SequenceId good = e->submit(clean({1, 2, 3}, 1)), bad = e->submit(clean({2, 1, kPoison}, 2));
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
  models.target = std::make_shared<Poisoned>(models.target);
  const auto e = engine();
  Request first = clean({2, 1, kPoison}, 2), second = clean({2, 1, kPoison}, 3);
  second.sample_of = e->submit(first);
  e->submit(second);
  int failed = 0;
  for (int steps = 0; !e->idle() && steps < 20; ++steps)
    for (const Sequence& s : e->step().finished) failed += s.finish == Finish::failed;
  EXPECT_EQ(failed, 2);
}

TEST_F(FailureTest, a_drafter_that_throws_for_one_request_fails_that_one_alone) {
  throw_for([](const Sequence& s) { return s.stream == 2 && s.length() >= 6; });
  for (const int batch : {1, 2, 4}) {
    options.batch = batch;
    const Sequence failed = one_fails({clean({1, 2, 3}, 1, true), clean({2, 1, 2}, 2), clean({3, 3}, 3)}, 1,
                                      "the drafter 'throwing' failed for this request: no guess today");
    EXPECT_GE(failed.length(), 6);
  }
}

// While prompts are read in chunks, drafters catch up with them.
TEST_F(FailureTest, a_drafter_that_throws_while_a_prompt_is_read_fails_that_request_alone) {
  throw_for([](const Sequence& s) { return s.stream == 2; });
  options.step_rows = 8;
  std::vector<Request> requests{clean({1, 2, 3}, 1), clean(Tokens(20, 2), 2), clean({3, 3}, 3)};
  for (Request& r : requests) r.sampling.temperature = 0;  // drafts of other lengths are other draws
  one_fails(requests, 1, "no guess today");
}

TEST_F(FailureTest, a_drafter_that_throws_for_every_request_fails_each_of_them) {
  throw_for([](const Sequence&) { return true; });
  for (const int batch : {1, 2, 4}) {
    options.batch = batch;
    const std::vector<Sequence> all = serve({clean({1, 2, 3}, 1), clean({2, 1}, 2), clean({3}, 3)});
    EXPECT_EQ(all.size(), 3u);
    for (const Sequence& s : all) EXPECT_TRUE(says(s.failure, "no guess today")) << s.failure;
  }
}

// The step is at fault, and may be asked for again.
TEST_F(FailureTest, a_drafter_that_throws_for_a_batch_alone_ends_no_sequence) {
  int calls = 0, errors = 0;
  const std::vector<Request> requests{clean({1, 2, 3}, 1), clean({2, 1}, 2)};
  const std::vector<Sequence> undisturbed = serve(requests);
  throw_for([&](const Sequence&) { return ++calls == 3; });
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
  for (const SequenceId failing : {1u, 2u}) {
    registries.policies.replace("throwing",
                                entry_that<LengthPolicy>(states(Budget{4, 3}), [failing](const json&, Host&) {
                                  return std::make_unique<ThrowingPolicy>(failing);
                                }));
    configs.policy = {{"name", "throwing"}};
    const std::vector<Sequence> all = serve({clean({1, 2, 3}, 1), clean({2, 1}, 2)});
    for (const Sequence& s : all) EXPECT_EQ(s.failure, s.id == failing ? "no length today" : "");
  }
}

TEST_F(FailureTest, a_verifier_that_throws_for_one_request_fails_that_one_alone) {
  registries.verifiers.add(
      "throwing",
      entry_that<Verifier>(states_those_of(conformance::all_registries().verifiers, {{"name", "speculative_sampling"}}),
                           [r = conformance::all_registries()](const json&, Host& h) {
                             return std::make_unique<ThrowingVerifier>(
                                 r.verifiers.make({{"name", "speculative_sampling"}}, h), 2);
                           }));
  configs.verifier = {{"name", "throwing"}};
  const Sequence failed = one_fails({clean({1, 2, 3}, 1, true), clean({2, 1, 2}, 2, true), clean({3, 3}, 3)}, 1,
                                    "the verifier 'throwing' failed for this request: no verdict today");
  EXPECT_GE(failed.length(), 6);
  EXPECT_EQ(failed.logprobs.size(), std::size_t(failed.generated()));
}

TEST_F(FailureTest, a_request_whose_own_functions_throw_fails_alone) {
  Request stops = clean({2, 1, 2}, 2), tells = clean({2, 1, 2}, 2);
  stops.limits.stop = [](std::span<const Token> generated, int) -> std::optional<int> {
    if (generated.size() > 3) throw std::runtime_error("no end in sight");
    return std::nullopt;
  };
  const Sequence stopped =
      one_fails({clean({1, 2, 3}, 1), stops, clean({3, 3}, 3)}, 1, "its stop rule failed for this request: no end");
  EXPECT_LE(stopped.generated(), 3);
  tells.on_tokens = [](const Sequence& s, std::span<const Token>) {
    if (s.generated() > 3) throw 7;
  };
  const Sequence told = one_fails({clean({1, 2, 3}, 1), tells, clean({3, 3}, 3)}, 1, "its on_tokens failed");
  EXPECT_GT(told.generated(), 3);
}

// Says of the second trial what no verifier may say.
class HalfRight : public Verifier {
 public:
  void verify(Backend&, const Trials& trials, Tensor verdicts) override {
    for (int i = 0; i < trials.count(); ++i) {
      auto& v = *reinterpret_cast<Verdict*>(verdicts.row<std::uint8_t>(i));
      v = Verdict(), v.finish(i == 0 ? 1 : 99);
    }
  }
};

TEST_F(FailureTest, a_verdict_that_no_verifier_may_give_is_not_delivered) {
  registries.verifiers.add("half",
                           entry_that<Verifier>(states(Soundness{{Drawn::certain, Drawn::chain}}),
                                                [](const json&, Host&) { return std::make_unique<HalfRight>(); }));
  configs.verifier = {{"name", "half"}};
  const auto e = engine();
  std::vector<SequenceId> told;
  for (Request r : {clean({1, 2, 3}, 1), clean({2, 1}, 2)}) {
    r.on_tokens = [&](const Sequence& s, std::span<const Token>) { told.push_back(s.id); };
    e->submit(r);
  }
  const StepReport report = e->step();
  ASSERT_EQ(report.finished.size(), 1u);
  EXPECT_TRUE(says(report.finished[0].failure, "the verifier 'half' emitted the token 99"));
  EXPECT_EQ(report.finished[0].generated(), 0);
  EXPECT_EQ(told, std::vector<SequenceId>{1});
}

}  // namespace
}  // namespace foretoken::test
