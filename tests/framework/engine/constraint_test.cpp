// Constraints in the engine: outputs that keep them, and the failures of one sequence alone.
#include "tests/framework/engine/engine_scenario.h"

namespace foretoken::test {
namespace {

using conformance::Tokens;

// Tokens in ascending order; behind the last one nothing may come.
class Ascending final : public Constraint {
 public:
  explicit Ascending(int vocab, Token first = 0) : vocab_(vocab), first_(first) {}
  State start() const override { return first_; }
  State after(State state, Token token) const override {
    return state == kBroken || token < state || token >= vocab_ ? kBroken : token + 1;
  }
  bool allowed(State state, std::span<std::uint32_t> allowed) const override {
    std::ranges::fill(allowed, 0);
    for (Token t = 0; t < vocab_ && !allowed.empty(); ++t)
      if (after(state, t) != kBroken) allowed[0] |= std::uint32_t(1) << t;
    return state != kBroken && state < vocab_;
  }

 private:
  int vocab_;
  Token first_;
};

struct ConstrainedEngine : EngineScenario {
  // By the order of the requests.
  std::vector<Sequence> decoded(std::vector<Request> requests) {
    const auto e = engine();
    std::vector<Sequence> all;
    for (Request& r : requests) e->submit(std::move(r));
    while (!e->idle())
      for (Sequence& s : e->step().finished) all.push_back(std::move(s));
    std::ranges::sort(all, {}, &Sequence::id);
    return all;
  }
};

TEST_F(ConstrainedEngine, an_output_that_nothing_may_continue_fails_alone) {
  Request bound = request({1, 2}, 8), free = request({1, 2}, 8), ended = request({1, 2}, 8);
  bound.sampling.constraint = ended.sampling.constraint = std::make_shared<Ascending>(5);
  ended.limits.stop_tokens = {4};
  const std::vector<Sequence> all = decoded({bound, free, ended});
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].finish, Finish::failed);
  EXPECT_TRUE(says(all[0].failure, "no token of the vocabulary continues"));
  EXPECT_EQ(all[1].finish, Finish::length);
  EXPECT_EQ(all[2].finish, Finish::stop_token) << all[2].failure;
  EXPECT_TRUE(std::ranges::is_sorted(std::span(all[2].tokens).subspan(2)));
}

TEST_F(ConstrainedEngine, a_request_that_nothing_may_begin_is_refused) {
  Request r = request({1, 2});
  r.sampling.constraint = std::make_shared<Ascending>(5, 5);
  EXPECT_TRUE(says(sentence([&] { engine()->submit(r); }), "'constraint' allows no token"));
}

TEST_F(ConstrainedEngine, log_probabilities_are_those_without_it) {
  Request r = request({3, 1}, 3);
  r.sampling.logprobs = true;
  r.sampling.constraint = std::make_shared<Ascending>(5);
  r.limits.stop_tokens = {4};
  const Sequence s = decoded({r}).at(0);
  const conformance::TableModel& target = dynamic_cast<const conformance::TableModel&>(*models.target);
  ASSERT_EQ(int(s.logprobs.size()), s.generated());
  for (int i = 0; i < s.generated(); ++i) {
    const auto p = target.distribution(std::span(s.tokens).first(std::size_t(2 + i)), {.temperature = 1});
    EXPECT_NEAR(s.logprobs[std::size_t(i)], std::log(p[std::size_t(s.tokens[std::size_t(2 + i)])]), 1e-5);
  }
}

TEST(ConstrainedSequence, fails_where_a_token_is_accepted_that_may_not_come) {
  Sequence s;
  s.tokens = {0}, s.prompt_length = 1;
  s.sampling.constraint = std::make_shared<Ascending>(5);
  s.tally = Tally({}, {}, {}, s.sampling.constraint);
  const Token emitted[] = {2, 1};
  s.append(emitted);
  EXPECT_EQ(s.finish, Finish::failed);
  EXPECT_TRUE(says(s.failure, "token 1", "not lossy"));
  // A stop rule that cuts it off comes first.
  Sequence cut;
  cut.tokens = {0}, cut.prompt_length = 1;
  cut.tally = Tally({}, {}, {}, std::make_shared<Ascending>(5));
  cut.limits.stop = [](std::span<const Token>, int) { return std::optional(1); };
  cut.append(emitted);
  EXPECT_EQ(cut.finish, Finish::stop_rule);
  EXPECT_EQ(cut.tokens, (std::vector<Token>{0, 2}));
}

}  // namespace
}  // namespace foretoken::test
