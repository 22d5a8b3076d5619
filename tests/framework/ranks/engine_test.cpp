// Engines of a divided target decode what one engine of the whole does, whoever drafts and verifies; draws have names,
// so that outputs are compared, and not their distributions. Callbacks, cancelled requests and failures are rank 0's.
#include <gtest/gtest.h>

#include "tests/framework/ranks/divided_models.h"
#include "tests/laws/subjects.h"
#include "tests/support/sentence.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

const EngineOptions kOptions{.batch = 3, .step_rows = 48, .page_rows = 4, .pages = 96, .check = true};

Decoded by_one(const std::string& target, const Subject& subject, std::span<const TestRequest> requests,
               const Sampling& sampling) {
  ReferenceBackend b;
  let_tick(b, 0);
  const Models models = tiny_models(b, {.target = target});
  Engine engine(b, models.target, subject.registries, subject.configs, kOptions, models.load);
  return decoded(engine, requests, sampling);
}

// Every drafter and every exact verifier at least once.
TEST(DividedEngine, DecodesWhatOneDoesWithEveryDrafterAndVerifier) {
  RankedModels models({"llama2"});
  const auto requests = random_requests(5, 96, 14, 12, 8);
  long accepted = 0, rejected = 0;
  for (const Subject& subject : subjects(all_registries(), 3))
    for (const float temperature : {0.0f, 1.0f}) {
      const Sampling sampling{.temperature = temperature, .seed = 3};
      const Decoded found = decoded(*models.engine(subject, kOptions), requests, sampling),
                    expected = by_one("llama2", subject, requests, sampling);
      EXPECT_EQ(found, expected) << subject.text() << " at " << temperature;
      accepted += found.accepted, rejected += found.drafted - found.accepted;
    }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(rejected, 1000);
}

TEST(DividedEngine, OfExpertsAndOfFourRanks) {
  const Subject subject{all_registries(),
                        {{{"name", "draft_model"}, {"model", "table:other"}},
                         {{"name", "fixed"}, {"length", 3}},
                         {{"name", "speculative_sampling"}}}};
  const auto requests = random_requests(6, 96, 14, 16, 9);
  for (const RankedModels::Choice& choice :
       {RankedModels::Choice{"mixtral", 2, 2}, RankedModels::Choice{"llama2", 4, 1}}) {
    RankedModels models(choice);
    for (const float temperature : {0.0f, 1.0f})
      EXPECT_EQ(decoded(*models.engine(subject, kOptions), requests, {.temperature = temperature}),
                by_one(choice.target, subject, requests, {.temperature = temperature}))
          << choice.target;
  }
}

// Policies see rank 0's times on every rank; where they did not, ranks would draft differently and refuse each other.
TEST(DividedEngine, PoliciesThatLearnFromTimesAgree) {
  RankedModels models({"llama2"});
  const auto requests = random_requests(6, 96, 14, 24, 10);
  const Registries registries = all_registries();
  const Subject plain_one{registries,
                          {{{"name", "none"}}, {{"name", "fixed"}, {"length", 0}}, {{"name", "speculative_sampling"}}}};
  const Decoded expected = by_one("llama2", plain_one, requests, {.temperature = 0});
  int learning = 0;
  for (const nlohmann::json& policy : configurations(registries.policies)) {
    const Subject subject{registries, {{{"name", "ngram"}}, policy, {{"name", "speculative_sampling"}}}};
    if (!needs_of(registries, subject.configs.drafter).hidden.empty()) continue;
    try {
      learning += registries.policies.traits(policy, models.models(0).target->info()).learns;
      EXPECT_EQ(decoded(*models.engine(subject, kOptions), requests, {.temperature = 0}).outputs, expected.outputs)
          << policy;
    } catch (const Error& e) {
      EXPECT_FALSE(holds(e.what(), "rank")) << policy << e.what();  // it takes no draft without a model
    }
  }
  EXPECT_GE(learning, 2);
}

struct DividedRequests : ::testing::Test {
  RankedModels models{{"llama2"}};
  Registries registries = all_registries();
  Subject subject{registries,
                  {{{"name", "ngram"}}, {{"name", "fixed"}, {"length", 3}}, {{"name", "speculative_sampling"}}}};
  static Request request(int max_new_tokens = 40) {
    return request_of({{1, 5, 2, 9, 9, 3, 1, 5}, 7, max_new_tokens}, {.temperature = 1});
  }
};

TEST_F(DividedRequests, StopRulesAndCallbacksAreRank0s) {
  const auto engine = models.engine(subject, kOptions);
  int calls = 0, heard = 0;
  Request stopped = request(), throwing = request();
  stopped.limits.stop = [&calls](std::span<const Token> all, int) -> std::optional<int> {
    ++calls;  // a state of its own, which other ranks must not touch
    return all.size() >= 9 ? std::optional(8) : std::nullopt;
  };
  throwing.stream = 8;
  throwing.on_tokens = [&heard](const Sequence&, std::span<const Token>) {
    if (++heard == 3) throw std::runtime_error("nobody reads");
  };
  const SequenceId first = engine->submit(std::move(stopped)), second = engine->submit(std::move(throwing)),
                   third = engine->submit(request());
  std::map<SequenceId, Sequence> ended;
  int steps = 0;
  while (!engine->idle()) {
    for (Sequence& s : engine->step().finished) ended[s.id] = std::move(s);
    if (++steps == 4) engine->cancel(third);
  }
  EXPECT_EQ(ended.at(first).finish, Finish::stop_rule);
  EXPECT_EQ(ended.at(first).generated(), 8);
  EXPECT_EQ(ended.at(second).finish, Finish::failed);
  EXPECT_TRUE(says(ended.at(second).failure, "nobody reads"));
  EXPECT_EQ(ended.at(third).finish, Finish::cancelled);
  EXPECT_EQ(heard, 3);
  EXPECT_GT(calls, 1);
  // The ranks are where rank 0 is: what follows is what an engine makes that met nothing before.
  const std::vector<TestRequest> later{{{4, 4, 8}, 5, 12}, {{1, 5, 2, 9, 9, 3, 1, 5}, 6, 12}};
  EXPECT_EQ(decoded(*engine, later, {.temperature = 1}).outputs,
            by_one("llama2", subject, later, {.temperature = 1}).outputs);
}

// Prefers what others think improbable.
struct Contrary final : ReferenceBackend {
  Distributions distributions(const Tensor& logits, std::span<const Warp> warps) override {
    const Tensor turned = allocate(logits.shape(), DType::f32);
    copy(logits, turned);
    scale(turned, -1);
    return ReferenceBackend::distributions(turned, warps);
  }
};

TEST_F(DividedRequests, DevicesThatDoNotComputeAlikeAreNoticed) {
  int made = 0;
  RankedModels unlike({.target = "llama2", .make = [&made]() -> std::unique_ptr<HostBackend> {
                         if (++made == 2) return std::make_unique<Contrary>();
                         return reference();
                       }});
  const auto engine = unlike.engine(subject, kOptions);
  engine->submit(request());
  EXPECT_TRUE(says(sentence_of([&] {
                     while (!engine->idle()) engine->step();
                   }),
                   "rank 1 of 2 ended", "other tokens than rank 0", "numerics"));
}

// Throws in its third call on one device, as where that is lost.
class Lost : public Drafter {
 public:
  Lost(Host& host, const Backend& lost) : backend_(host.backend()), lost_(&host.backend() == &lost) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    if (lost_ && ++calls_ >= 3) throw std::bad_alloc();
    return rooted(backend_, requests);
  }

 private:
  Backend& backend_;
  bool lost_;
  int calls_ = 0;
};

TEST_F(DividedRequests, ARankThatDiesEndsTheStepAndTheNextEngineIsWhole) {
  for (const int dying : {0, 1}) {
    Subject losing = subject;
    losing.registries.drafters.add(
        "lost",
        entry_that<Drafter>(states(Needs{.proposes = {Drawn::certain}}), [&](const nlohmann::json&, Host& host) {
          return std::make_unique<Lost>(host, models.backend(dying));
        }));
    losing.configs.drafter = {{"name", "lost"}};
    auto engine = models.engine(losing, kOptions);
    engine->submit(request());
    std::string why;
    try {
      while (!engine->idle()) engine->step();
    } catch (const std::exception& e) {
      why = e.what();
    }
    EXPECT_TRUE(says(why, dying == 1 ? "rank 1 of 2 ended: std::bad_alloc" : "std::bad_alloc"));
    EXPECT_TRUE(says(sentence_of([&] { engine->step(); }), "divided model has failed", "std::bad_alloc"));
    engine.reset();
    const std::vector<TestRequest> requests{{{4, 4, 8}, 5, 12}};
    EXPECT_EQ(decoded(*models.engine(subject, kOptions), requests, {}), by_one("llama2", subject, requests, {}));
  }
}

}  // namespace
}  // namespace foretoken::test
