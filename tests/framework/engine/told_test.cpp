// What an engine tells components of a request and of a step: its category, whether it ended or only gives back pages,
// times of the clock that the backend was given; and what it expects of a drafter that was told to forget.
#include <functional>
#include <map>
#include <utility>

#include "tests/framework/engine/engine_scenario.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

struct Told {
  std::function<void(const DraftRequest&)> drafted = [](const DraftRequest&) {};
  std::function<void(const Sequence&)> forgot = [](const Sequence&) {};
  std::function<void(const PastOnly&)> asked = [](const PastOnly&) {};
  std::function<void(const StepReport&)> reported = [](const StepReport&) {};
  bool keeps_pages = false;  // the drafter does not pass on what it is to forget
};

class Listening : public Drafter {
 public:
  Listening(std::unique_ptr<Drafter> inner, const Told& told) : inner_(std::move(inner)), told_(told) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    for (const DraftRequest& r : requests) told_.drafted(r);
    return inner_->draft(requests);
  }
  void forget(const Sequence& sequence) override {
    told_.forgot(sequence);
    if (!told_.keeps_pages) inner_->forget(sequence);
  }

 private:
  std::unique_ptr<Drafter> inner_;
  const Told& told_;
};

class ListeningPolicy : public LengthPolicy {
 public:
  explicit ListeningPolicy(const Told& told) : told_(told) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    for (const PastOnly& p : past) told_.asked(p);
    return std::vector<Budget>(past.size(), {4, 3});
  }
  void observe(const StepReport& report) override { told_.reported(report); }

 private:
  const Told& told_;
};

struct ToldComponents : EngineScenario {
  Told told;

  ToldComponents() {
    registries.drafters.add(
        "listening",
        entry_that<Drafter>(states_those_of(registries.drafters, {{"name", "draft_model"}, {"model", "table:other"}}),
                            [this](const json&, Host& host) {
                              return std::make_unique<Listening>(
                                  host.drafter({{"name", "draft_model"}, {"model", "table:other"}}), told);
                            }));
    registries.policies.add("listening", entry_that<LengthPolicy>(states(Budget{4, 3}), [this](const json&, Host&) {
                              return std::make_unique<ListeningPolicy>(told);
                            }));
    configs.drafter = configs.policy = {{"name", "listening"}};
  }
  std::vector<Sequence> serve(const std::vector<Request>& requests) {
    const auto e = engine();
    for (const Request& r : requests) e->submit(r);
    std::vector<Sequence> done;
    while (!e->idle())
      for (Sequence& s : e->step().finished) done.push_back(std::move(s));
    return done;
  }
};

TEST_F(ToldComponents, TheCategoryOfARequest) {
  std::map<SequenceId, std::string> drafted, asked;
  told.drafted = [&](const DraftRequest& r) { drafted[r.sequence->id] = r.sequence->category; };
  told.asked = [&](const PastOnly& p) { asked[p.id] = p.category; };
  Request math = request({1, 2, 3}), none = request({2, 1});
  math.category = "math";
  serve({math, none});
  const std::map<SequenceId, std::string> expected{{1, "math"}, {2, ""}};
  EXPECT_EQ(drafted, expected);
  EXPECT_EQ(asked, expected);
}

TEST_F(ToldComponents, WhetherAForgottenSequenceGoesOn) {
  options.batch = 6, options.pages = 20;
  std::map<SequenceId, int> goes_on, ended;
  told.forgot = [&](const Sequence& s) {
    EXPECT_FALSE(ended.contains(s.id)) << "it is the last call";
    ++(s.running() ? goes_on : ended)[s.id];
  };
  std::vector<Request> requests;
  for (Token t = 0; t < 5; ++t) requests.push_back(request({t, 1, 2}, 16));
  const std::vector<Sequence> done = serve(requests);
  EXPECT_EQ(done.size(), requests.size());
  EXPECT_EQ(ended.size(), requests.size());
  EXPECT_GT(goes_on.size(), 0u) << "pages were short";
}

TEST_F(ToldComponents, PagesThatADrafterKeepsAreItsFaultAndNotThePools) {
  told.keeps_pages = true;
  const std::vector<Sequence> done = serve({request({1, 2, 3}), request({2, 1})});
  ASSERT_EQ(done.size(), 2u);
  for (const Sequence& s : done) {
    EXPECT_EQ(s.finish, Finish::failed);
    EXPECT_TRUE(says(s.failure, "the drafter 'listening' was to forget sequence " + std::to_string(s.id),
                     "left its rows in the cache of the model ", "CachedModel::forget"));
  }
}

TEST_F(ToldComponents, TimesOfTheBackendsOwnClock) {
  double now = 0;
  backend->set_clock([&now] { return now += 0.25; });
  std::vector<double> steps, verifying;
  told.reported = [&](const StepReport& r) {
    steps.push_back(r.phases.total), verifying.push_back(r.phases.verify);
    EXPECT_EQ(std::remainder(r.phases.total, 0.25), 0);
    EXPECT_NEAR(r.phases.schedule + r.phases.forwards() + r.phases.draft_other + r.phases.verify + r.phases.deliver,
                r.phases.total, 1e-9);
  };
  serve({request({1, 2, 3})});
  EXPECT_GT(steps.size(), 2u);
  EXPECT_EQ(verifying, std::vector<double>(steps.size(), 0.25)) << "from one mark to the next";
  const std::vector<double> before = std::exchange(steps, {});
  verifying.clear(), serve({request({1, 2, 3})});
  EXPECT_EQ(steps, before);
  backend->set_clock(nullptr);
  EXPECT_GT(backend->clock(), now);
}

}  // namespace
}  // namespace foretoken::test
