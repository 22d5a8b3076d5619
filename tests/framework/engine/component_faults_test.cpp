// What a component does wrong for one request ends that request alone: what it throws when it observes or forgets, a
// tree or a verdict that it may not return, a NaN after a token that was accepted.
#include <map>
#include <utility>

#include "tests/framework/engine/failure_scenario.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using conformance::Tokens;
using nlohmann::json;

// What a test does to a drafter: each function may throw.
struct Hooks {
  std::function<void(const DraftRequest&, DraftTree&)> drafted = [](auto&, auto&) {};
  std::function<void(const Outcome&)> observed = [](auto&) {};
  std::function<void(const StepReport&)> stepped = [](auto&) {};
  std::function<void(const Sequence&)> forgot = [](auto&) {};
};

// Drafts as `inner` does. Where it throws in forget, `inner` has not forgotten the sequence.
class Hooked : public Drafter {
 public:
  Hooked(std::unique_ptr<Drafter> inner, Hooks hooks) : inner_(std::move(inner)), hooks_(std::move(hooks)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    auto trees = inner_->draft(requests);
    for (std::size_t i = 0; i < trees.size(); ++i) hooks_.drafted(requests[i], trees[i]);
    return trees;
  }
  void observe(std::span<const Outcome> outcomes) override {
    for (const Outcome& o : outcomes) hooks_.observed(o);
  }
  void observe_step(const StepReport& report) override { hooks_.stepped(report); }
  void forget(const Sequence& sequence) override { hooks_.forgot(sequence), inner_->forget(sequence); }

 private:
  std::unique_ptr<Drafter> inner_;
  Hooks hooks_;
};

struct PolicyHooks {
  std::function<void(std::span<const PastOnly>)> asked = [](auto) {};
  std::function<void(const StepReport&)> observed = [](auto&) {};
  std::function<void(const Sequence&)> forgot = [](auto&) {};
};

class HookedPolicy : public LengthPolicy {
 public:
  explicit HookedPolicy(PolicyHooks hooks) : hooks_(std::move(hooks)) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    hooks_.asked(past);
    return std::vector<Budget>(past.size(), {4, 3});
  }
  void observe(const StepReport& report) override { hooks_.observed(report); }
  void forget(const Sequence& sequence) override { hooks_.forgot(sequence); }

 private:
  PolicyHooks hooks_;
};

// Judges as `inner` does, then a test changes the verdicts of stream 2.
class Misjudging : public Verifier {
 public:
  using Change = std::function<void(Verdict&)>;
  Misjudging(std::unique_ptr<Verifier> inner, Change change) : inner_(std::move(inner)), change_(std::move(change)) {}
  void verify(Backend& b, const Trials& trials, Tensor verdicts) override {
    inner_->verify(b, trials, verdicts);
    for (int i = 0; i < trials.count(); ++i)
      if (trials.named()[std::size_t(i)].stream == 2 && trials.positions()[std::size_t(i)] > 5)
        change_(*reinterpret_cast<Verdict*>(verdicts.row<std::uint8_t>(i)));
  }

 private:
  std::unique_ptr<Verifier> inner_;
  Change change_;
};

struct ComponentFaults : FailureScenario {
  void hook(const Hooks& hooks, const json& inner = {{"name", "draft_model"}, {"model", "table:other"}}) {
    registries.drafters.replace(
        "hooked", entry_that<Drafter>(states_those_of(conformance::all_registries().drafters, inner),
                                      [inner, hooks, r = conformance::all_registries()](const json&, Host& h) {
                                        return std::make_unique<Hooked>(r.drafters.make(inner, h), hooks);
                                      }));
    configs.drafter = {{"name", "hooked"}};
  }
  void hook_policy(const PolicyHooks& hooks) {
    registries.policies.replace("hooked", entry_that<LengthPolicy>(states(Budget{4, 3}), [hooks](const json&, Host&) {
                                  return std::make_unique<HookedPolicy>(hooks);
                                }));
    configs.policy = {{"name", "hooked"}};
  }
  void misjudge(const Misjudging::Change& change) {
    registries.verifiers.replace(
        "wrong", entry_that<Verifier>(
                     states_those_of(conformance::all_registries().verifiers, {{"name", "speculative_sampling"}}),
                     [change, r = conformance::all_registries()](const json&, Host& h) {
                       return std::make_unique<Misjudging>(r.verifiers.make({{"name", "speculative_sampling"}}, h),
                                                           change);
                     }));
    configs.verifier = {{"name", "wrong"}};
  }
  static std::vector<Request> three() {
    return {clean({1, 2, 3}, 1, true), clean({2, 1, 2}, 2, true), clean({3, 3}, 3)};
  }
  // All sequences, although steps may throw; how many did.
  std::pair<std::vector<Sequence>, int> serve_in_spite(const std::vector<Request>& requests) {
    const auto e = engine();
    for (const Request& r : requests) e->submit(r);
    std::vector<Sequence> done;
    int errors = 0;
    for (int steps = 0; !e->idle() && steps < 400; ++steps) {
      try {
        for (auto& s : e->step().finished) done.push_back(std::move(s));
      } catch (const std::runtime_error&) {
        ++errors;
      }
    }
    EXPECT_TRUE(e->idle());
    std::ranges::sort(done, {}, &Sequence::id);
    return {std::move(done), errors};
  }
};

TEST_F(ComponentFaults, a_drafter_that_cannot_forget_one_sequence_fails_that_one_alone) {
  hook({.forgot = [](const Sequence& s) {
    if (s.stream == 2) throw std::runtime_error("no farewell");
  }});
  for (const int batch : {1, 2, 4}) {
    options.batch = batch;
    const Sequence failed = one_fails(three(), 1, "the drafter 'hooked' failed for this request: no farewell");
    EXPECT_EQ(failed.generated(), 14) << "its text is whole";
  }
}

TEST_F(ComponentFaults, of_a_sequence_that_could_not_be_forgotten_the_report_says_so) {
  hook({.forgot = [](const Sequence&) { throw std::runtime_error("no farewell"); }});
  const auto e = engine();
  Request r = clean({1, 2}, 1);
  r.limits.max_new_tokens = 1;
  e->submit(r);
  const StepReport report = e->step();
  ASSERT_EQ(report.sequences.size(), 1u);
  EXPECT_EQ(report.sequences[0].finish, Finish::failed);
  EXPECT_EQ(report.sequences[0].emitted.size(), 1u);
  EXPECT_TRUE(e->idle());
}

// Drafters give their pages back first, then the newest sequence does; in the middle of a step.
TEST_F(ComponentFaults, a_drafter_that_cannot_forget_where_pages_are_short_fails_that_sequence_alone) {
  for (const int pages : {16, 20, 24, 30}) {
    options.pages = pages;
    int told = 0;
    hook({.forgot = [&](const Sequence& s) {
      if (s.stream == 2 && s.running()) ++told, throw std::runtime_error("no room to forget");
    }});
    std::vector<Request> requests{clean({1, 2, 3}, 1), clean({2, 1}, 2), clean({3, 3}, 3), clean({1}, 4)};
    for (Request& r : requests) r.sampling.temperature = 0;  // drafts of other lengths are other draws
    one_fails(requests, 1, "no room to forget");
    EXPECT_EQ(told, 1) << "it was the drafter of a sequence that ran";
  }
}

TEST_F(ComponentFaults, a_drafter_that_cannot_observe_one_outcome_fails_that_sequence_alone) {
  for (const int batch : {1, 2, 4}) {
    options.batch = batch;
    std::map<std::uint64_t, std::vector<int>> heard;
    hook({.observed = [&](const Outcome& o) {
      heard[o.sequence->stream].push_back(o.sequence->length());
      if (o.sequence->stream == 2 && o.sequence->length() >= 6) throw std::runtime_error("nothing learned");
    }});
    const Sequence failed = one_fails(three(), 1, "the drafter 'hooked' failed for this request: nothing learned");
    EXPECT_GE(failed.length(), 6);
    for (const std::uint64_t stream : {1u, 3u}) {  // in both runs
      std::vector<int>& lengths = heard[stream];
      const std::size_t half = lengths.size() / 2;
      EXPECT_TRUE(std::equal(lengths.begin(), lengths.begin() + std::ptrdiff_t(half),
                             lengths.begin() + std::ptrdiff_t(half), lengths.end()))
          << "every outcome once, also beside the one that fails";
    }
  }
}

TEST_F(ComponentFaults, requests_that_fail_alone_say_each_its_own_reason) {
  hook({.drafted = [](const DraftRequest& r, DraftTree&) {
    if (r.sequence->stream < 3) throw std::runtime_error("not stream " + std::to_string(r.sequence->stream));
  }});
  for (const int batch : {1, 2, 3}) {
    options.batch = batch;
    const std::vector<Sequence> all = serve(three());
    ASSERT_EQ(all.size(), 3u);
    EXPECT_TRUE(says(all[0].failure, "not stream 1")) << all[0].failure;
    EXPECT_TRUE(says(all[1].failure, "not stream 2")) << all[1].failure;
    EXPECT_EQ(all[2].finish, Finish::length);
  }
}

TEST_F(ComponentFaults, a_tree_that_no_drafter_may_return_fails_its_sequence_alone) {
  const auto spoil = [&](const std::function<void(DraftTree&)>& how) {
    hook({.drafted = [how](const DraftRequest& r, DraftTree& t) {
      if (r.sequence->stream == 2 && r.sequence->length() >= 6 && t.nodes > 1) how(t);
    }});
  };
  for (const int batch : {1, 2, 4}) {
    options.batch = batch;
    spoil([](DraftTree& t) { *t.known.row<Token>(1) = 99; });
    one_fails(three(), 1, "the drafter 'hooked' drew the token 99 at node 1, outside the target's vocabulary of 5");
    spoil([](DraftTree& t) { t.q.distributions.clear(); });
    one_fails(three(), 1, "node 1 as drawn but gave no distribution q for its parent");
    spoil([](DraftTree& t) { t = {}; });
    one_fails(three(), 1, "returned a tree without a root");
  }
}

TEST_F(ComponentFaults, a_verdict_that_no_verifier_may_give_fails_its_sequence_alone) {
  for (const int batch : {1, 2, 4}) {
    options.batch = batch;
    misjudge([](Verdict& v) { v.tokens[v.length] = v.next = 99; });
    one_fails(three(), 1, "the verifier 'wrong' emitted the token 99");
    misjudge([](Verdict& v) { v.length = 1000; });
    one_fails(three(), 1, "the verifier 'wrong' accepted 1000 nodes");
    misjudge([](Verdict& v) { v.length = 1, v.path[0] = 100'000'000, v.tokens[0] = v.tokens[1] = v.next = 1; });
    one_fails(three(), 1, "the verifier 'wrong' accepted the node 100000000");
  }
}

TEST_F(ComponentFaults, a_policy_that_cannot_observe_a_step_loses_no_sequence) {
  const std::vector<Sequence> undisturbed = serve(three());
  for (const bool always : {false, true}) {
    bool thrown = false;
    hook_policy({.observed = [&](const StepReport& report) {
      if (!always && (report.finished.empty() || std::exchange(thrown, true))) return;
      throw std::runtime_error("no book today");
    }});
    const auto [all, errors] = serve_in_spite(three());
    EXPECT_EQ(errors == 1, !always);
    ASSERT_EQ(all.size(), 3u) << always;
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(all[i].tokens, undisturbed[i].tokens);
  }
}

TEST_F(ComponentFaults, a_drafter_that_cannot_observe_a_step_loses_no_sequence) {
  const std::vector<Sequence> undisturbed = serve(three());
  for (const bool always : {false, true}) {
    bool thrown = false;
    hook({.stepped = [&](const StepReport& report) {
      if (!always && (report.finished.empty() || std::exchange(thrown, true))) return;
      throw std::runtime_error("no time today");
    }});
    const auto [all, errors] = serve_in_spite(three());
    EXPECT_EQ(errors == 1, !always);
    ASSERT_EQ(all.size(), 3u) << always;
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(all[i].tokens, undisturbed[i].tokens);
  }
}

// Of every step, after its outcomes: with the tokens that it emitted and with its times.
TEST_F(ComponentFaults, a_drafter_hears_of_every_step) {
  std::size_t emitted = 0, outcomes = 0, when_heard = 0;
  bool timed = true;
  hook({.observed = [&](const Outcome&) { ++outcomes; },
        .stepped =
            [&](const StepReport& report) {
              for (const SequenceReport& s : report.sequences) emitted += s.emitted.size();
              timed &= report.phases.total > 0, when_heard = outcomes;
            }});
  const std::vector<Sequence> all = serve(three());
  std::size_t generated = 0;
  for (const Sequence& s : all) generated += std::size_t(s.generated());
  EXPECT_EQ(emitted, generated);
  EXPECT_GT(outcomes, 0u);
  EXPECT_EQ(when_heard, outcomes);
  EXPECT_TRUE(timed);
}

TEST_F(ComponentFaults, a_policy_that_cannot_forget_one_sequence_fails_that_one_alone) {
  hook_policy({.forgot = [](const Sequence& s) {
    if (s.stream == 2) throw std::runtime_error("no farewell");
  }});
  one_fails(three(), 1, "the policy 'hooked' failed for this request: no farewell");
}

TEST_F(ComponentFaults, a_policy_is_not_asked_about_nobody) {
  int nobody = 0;
  hook_policy({.asked = [&](std::span<const PastOnly> past) {
    nobody += past.empty();
    for (const PastOnly& p : past)
      if (p.id == 1) throw std::runtime_error("no length today");
  }});
  const std::vector<Sequence> all = serve({clean({1, 2}, 1)});
  EXPECT_TRUE(says(all.at(0).failure, "no length today"));
  const auto e = engine();
  e->cancel(e->submit(clean({1, 2}, 1)));
  e->step(), e->step();
  EXPECT_EQ(nobody, 0);
}

// Guesses kPoison and then 1s: the logits after the first guess are no numbers.
TEST_F(ComponentFaults, a_nan_below_a_guess_that_is_refused_harms_nobody) {
  models.target = std::make_shared<Poisoned>(models.target);
  std::vector<Request> requests = three();
  requests[2].sampling.temperature = 0;
  for (const char* verifier : {"speculative_sampling", "coupled"}) {
    configs.verifier = {{"name", verifier}};
    configs.drafter = {{"name", "none"}};
    const std::vector<Sequence> plain = serve(requests);
    int guessed = 0;
    hook({.drafted =
              [&](const DraftRequest& r, DraftTree& t) {
                for (int n = 0; n < r.budget.chain(); ++n) t.guess(n, n == 0 ? kPoison : 1), ++guessed;
              }},
         {{"name", "ngram"}, {"longest", 60}, {"shortest", 60}});  // which never finds anything
    const std::vector<Sequence> all = serve(requests);
    EXPECT_GT(guessed, 20);
    ASSERT_EQ(all.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(all[i].finish, Finish::length) << all[i].failure;
      const bool same = i == 2 || verifier == std::string("coupled");  // else drafts are other draws
      EXPECT_TRUE(!same || all[i].tokens == plain[i].tokens) << verifier << ", request " << i;
    }
    requests[1].sampling.logit_bias = {{kPoison, 100}};
    EXPECT_TRUE(says(serve(requests).at(1).failure, "hold a NaN or an infinity")) << "it is accepted";
    requests[1].sampling.logit_bias = {{kPoison, -100}};
  }
}

}  // namespace
}  // namespace foretoken::test
