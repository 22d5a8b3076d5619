// Sampling options of a request through the engine: log-probabilities, with and without penalties; further samples of a
// prompt.
#include <cmath>

#include <gtest/gtest.h>

#include "experiments/conformance/table_model.h"
#include "tests/framework/engine/engine_scenario.h"

namespace foretoken::test {
namespace {

using conformance::Tokens;

struct SamplingTest : EngineScenario {};

TEST_F(SamplingTest, log_probabilities_are_the_target_distributions) {
  const auto table = std::make_shared<conformance::TableModel>(conformance::TableModel::Options{.vocab = 5, .seed = 3});
  models.target = table;
  for (const bool warped : {false, true}) {
    auto e =
        Engine(*backend, table, registries, configs, options, conformance::table_models({.vocab = 5, .seed = 3}).load);
    Request r = request({1, 2, 3}, 20, 0.7f);
    r.sampling.logprobs = true, r.sampling.warped_logprobs = warped, r.sampling.top_k = 3;
    e.submit(r);
    std::vector<Sequence> done;
    while (!e.idle())
      for (auto& s : e.step().finished) done.push_back(std::move(s));
    const Sequence& s = done.at(0);
    ASSERT_EQ(s.logprobs.size(), 20u);
    for (int i = 0; i < 20; ++i) {
      const std::span<const Token> context(s.tokens.data(), std::size_t(3 + i));
      const double p =
          table->distribution(context, warped ? s.sampling.warp() : Warp{1})[std::size_t(s.tokens[std::size_t(3 + i)])];
      EXPECT_NEAR(s.logprobs[std::size_t(i)], std::log(p), 1e-5) << i;
    }
  }
}

// Raw log-probabilities are the model's own, even where the distribution that is drawn from is adjusted.
TEST_F(SamplingTest, log_probabilities_under_penalties) {
  const auto table = std::make_shared<conformance::TableModel>(conformance::TableModel::Options{.vocab = 5, .seed = 3});
  for (const bool warped : {false, true}) {
    auto e =
        Engine(*backend, table, registries, configs, options, conformance::table_models({.vocab = 5, .seed = 3}).load);
    for (int i = 0; i < 2; ++i) {  // one of them is adjusted
      Request r = request({1, 2, 3}, 20, 0.7f);
      r.sampling.logprobs = true, r.sampling.warped_logprobs = warped;
      if (i == 0)
        r.sampling.repetition_penalty = 1.4f, r.sampling.presence_penalty = 1, r.sampling.logit_bias = {{2, -1}};
      e.submit(r);
    }
    std::vector<Sequence> done;
    while (!e.idle())
      for (auto& s : e.step().finished) done.push_back(std::move(s));
    for (const Sequence& s : done)
      for (int i = 0; i < 20; ++i) {
        const std::span<const Token> context(s.tokens.data(), std::size_t(3 + i));
        const auto p = warped ? conformance::target_distribution(*table, context, 3, s.sampling)
                              : table->distribution(context, Warp{1});
        ASSERT_NEAR(s.logprobs.at(std::size_t(i)), std::log(p[std::size_t(s.tokens[std::size_t(3 + i)])]), 1e-5) << i;
      }
  }
}

// At temperature 100 logits differ little, so a bias of -100 that was only added would not prevent the token.
TEST_F(SamplingTest, a_bias_of_minus_100_forbids_a_token_at_every_temperature) {
  models = conformance::table_models({.vocab = 5, .positions = 512}), options.pages = 512;
  for (const auto& [forbidden, temperature] : {std::pair(2, 100.0f), {0, 1.0f}, {1, 0.0f}}) {
    const auto e = engine();
    Request r = request({1, 2, 3}, 200, temperature);
    for (Token x = 0; x < models.target->info().vocab; ++x)
      r.sampling.logit_bias.push_back({x, x == forbidden ? -100.0f : -99.0f});
    e->submit(r);
    std::vector<Sequence> done;
    while (!e->idle())
      for (auto& s : e->step().finished) done.push_back(std::move(s));
    const std::span<const Token> generated = std::span(done.at(0).tokens).subspan(3);
    EXPECT_EQ(std::ranges::count(generated, forbidden), 0) << "of " << generated.size() << " tokens";
    EXPECT_EQ(generated.size(), 200u);
  }
}

TEST_F(SamplingTest, another_sample_waits_for_the_prompt_and_not_for_an_ended_request) {
  const auto e = engine();
  const SequenceId first = e->submit(request({1, 2, 3, 4, 1}, 8));
  Request more = request({1, 2, 3, 4, 1}, 8);
  more.sample_of = first, more.stream = 1;
  const SequenceId second = e->submit(more), other = e->submit(request({4, 4}, 8));
  StepReport report = e->step();
  ASSERT_EQ(report.sequences.size(), 2u);
  EXPECT_EQ(report.sequences[0].id, first);
  EXPECT_EQ(report.sequences[1].id, other) << "a request that waits for a prompt delays no other";
  report = e->step();
  EXPECT_EQ(report.sequences.back().id, second);
  EXPECT_EQ(report.sequences.back().prompt_rows, 0) << "two full pages are shared, the fifth token is fed";
  const SequenceId gone = e->submit(request({2, 2, 2}, 8));
  more.sample_of = gone;
  const SequenceId orphan = e->submit(more);
  e->cancel(gone);
  EXPECT_EQ(e->step().sequences.back().id, orphan);
  while (!e->idle()) e->step();
  EXPECT_EQ(e->pool().in_use(), 0);
}

}  // namespace
}  // namespace foretoken::test
