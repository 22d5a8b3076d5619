// The warm-up requests of a run, when a run is measured again, and what alternations are compared by.
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "experiments/sweep/jobs.h"
#include "experiments/sweep/kept.h"
#include "experiments/sweep/nothing_recorded.h"
#include "kernels/reference/reference_backend.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

// Each running request emits a token a step; the next request starts when one ends.
std::set<std::size_t> sizes_met(const std::vector<Job>& jobs, std::size_t batch, bool& mixed) {
  std::set<std::size_t> met;
  std::vector<int> left;
  std::size_t next = 0;
  for (bool first = true; next < jobs.size() || !left.empty(); first = false) {
    const std::size_t decoding = left.size();
    while (left.size() < batch && next < jobs.size()) left.push_back(jobs[next++].request.limits.max_new_tokens);
    mixed |= !first && decoding > 0 && left.size() > decoding;
    met.insert(left.size());
    for (int& n : left) --n;
    std::erase(left, 0);
  }
  return met;
}

TEST(WarmUp, meets_every_size_of_a_batch_and_prompts_among_decoding) {
  for (std::size_t batch = 1; batch <= 64; ++batch) {
    std::vector<Job> jobs(4 * batch);
    for (std::size_t i = 0; i < jobs.size(); ++i) jobs[i].request.limits.max_new_tokens = 32 + int(i * 37 % 33);
    bool mixed = false;
    const auto met = sizes_met(warm_up_jobs(jobs, batch), batch, mixed);
    for (std::size_t size = 1; size <= batch; ++size) {
      const auto near = met.lower_bound(size);
      ASSERT_NE(near, met.end()) << batch;
      EXPECT_LT(*near - size, (batch + 15) / 16) << size << " of " << batch;
    }
    EXPECT_EQ(mixed, batch > 1) << batch;
  }
}

TEST(NothingRecorded, lasts_as_long_as_it_lives_where_the_run_was_warmed_up) {
  struct Device : ReferenceBackend {
    void record_new(bool on) override { records_new = on; }
    bool records_new = true;
  } device;
  for (const bool warmed_up : {true, false}) {
    {
      const NothingRecorded settled(device, warmed_up);
      EXPECT_EQ(device.records_new, !warmed_up);
    }
    EXPECT_TRUE(device.records_new);
  }
}

// A measurement of one request that generated `text`.
Measured measurement(double stopped, std::vector<Token> text = {1, 2}) {
  return {{{"stopped_seconds", stopped}, {"seconds", 10.0}}, {std::move(text)}, {""}};
}

TEST(MeasureKept, says_what_was_thrown_away_and_compares_its_outputs) {
  std::size_t asked = 0, again = 0;
  const std::vector<Measured> all = {measurement(7), measurement(0.5, {1, 3}), measurement(0.1)};
  const Taken taken = measure_kept([&] { return all.at(asked++); }, [&] { ++again; });
  EXPECT_EQ(again, 2u);
  EXPECT_EQ(taken.measured.measure["stopped_seconds"], 0.1) << "2 % of the time may be lost";
  ASSERT_EQ(taken.thrown_away.size(), 2u);
  const auto thrown = [](double stopped, int differing) {
    return nlohmann::json({{"reason", "the process was stopped"},
                           {"stopped_seconds", stopped},
                           {"seconds", 10.0},
                           {"differing_texts", differing}});
  };
  EXPECT_EQ(taken.thrown_away[0], thrown(7, 0));
  EXPECT_EQ(taken.thrown_away[1], thrown(0.5, 1));
}

TEST(MeasureKept, a_process_that_is_always_stopped_measures_nothing) {
  const auto stopped = [] { return measure_kept([] { return measurement(4); }, [] {}); };
  EXPECT_TRUE(says(sentence_of([&] { stopped(); }), "in each of three measurements", "4 of 10 s"));
}

TEST(MeasureKept, takes_the_first_measurement_where_a_busy_machine_is_accepted) {
  int measured = 0;
  const auto measure = [&] {
    ++measured;
    return measurement(9);
  };
  const Taken taken = measure_kept(measure, [] { FAIL(); }, true);
  EXPECT_EQ(measured, 1);
  EXPECT_EQ(taken.measured.measure["stopped_seconds"], 9.0);
  EXPECT_TRUE(taken.thrown_away.empty());
}

// A plugin with a static store did other rounds in every alternation.
TEST(SameAgain, names_alternations_that_differ) {
  SameAgain same(true), unasked(false);
  const auto add = [&](long rounds, std::vector<Token> text, const char* side, int repeat) {
    const nlohmann::json request = {{"tokens", 2}, {"rounds", rounds}, {"drafted", 3}, {"tested", 3}, {"accepted", 1}};
    const Measured now{{{"requests", {request, request}}}, {{1, 2}, std::move(text)}, {"", ""}};
    for (SameAgain* s : {&same, &unasked}) s->add(now.measure, outputs_of(now), side, repeat);
  };
  add(2, {1, 2}, "baseline", 0), add(5, {1, 2}, "speculative", 0);
  add(2, {1, 2}, "baseline", 1), add(4, {1, 2}, "speculative", 1);
  add(2, {1, 9}, "baseline", 2), add(5, {1, 2}, "speculative", 2);
  EXPECT_EQ(same.as_json()["differing"], nlohmann::json({{{"side", "speculative"}, {"repeat", 1}, {"requests", 2}},
                                                         {{"side", "baseline"}, {"repeat", 2}, {"requests", 1}}}));
  EXPECT_EQ(unasked.as_json(), nlohmann::json({{"compared", false}, {"differing", nlohmann::json::array()}}));
}

// Of three jobs: requests of those that a measurement left out are not in its list.
TEST(SameAgain, compares_jobs_also_behind_turns_that_were_left_out) {
  SameAgain same(true);
  const auto add = [&](const std::vector<std::size_t>& left_out, std::vector<long> rounds, int repeat) {
    nlohmann::json measure{{"requests", nlohmann::json::array()}};
    for (const long n : rounds)
      measure["requests"].push_back({{"tokens", 2}, {"rounds", n}, {"drafted", 3}, {"tested", 3}, {"accepted", 1}});
    Measured now{{}, {{1}, {2}, {3}}, {"", "", ""}};
    for (const std::size_t job : left_out) {
      measure["left_out"]["turns"].push_back({{"job", job}});
      now.texts[job].clear(), now.failures[job] = "the turn was left out";
    }
    same.add(measure, outputs_of(now), "speculative", repeat);
  };
  add({1}, {5, 7}, 0), add({1}, {5, 7}, 1);
  EXPECT_TRUE(same.as_json()["differing"].empty());
  add({1}, {5, 8}, 2), add({}, {5, 6, 7}, 3), add({0}, {6, 7}, 4);
  const nlohmann::json want{{{"side", "speculative"}, {"repeat", 2}, {"requests", 1}},
                            {{"side", "speculative"}, {"repeat", 3}, {"requests", 1}},
                            {{"side", "speculative"}, {"repeat", 4}, {"requests", 2}}};
  EXPECT_EQ(same.as_json()["differing"], want);
}

// A lossy verifier's side may leave out other turns than the baseline's.
TEST(Agreement, leaves_out_turns_that_one_side_left_out) {
  const Measured plain{{}, {{1}, {2}, {}}, {"", "", "the turn was left out"}},
      lossy{{}, {{1}, {}, {3}}, {"", "the turn was left out", ""}};
  Agreement agreement;
  agreement.add(outputs_of(plain), outputs_of(lossy));
  EXPECT_EQ(agreement.compared, 1);
  EXPECT_EQ(agreement.different, 0);
}

TEST(Agreement, leaves_out_requests_that_failed) {
  const Measured a{{}, {{1, 2}, {3}, {}}, {"", "", ""}}, b{{}, {{1, 2}, {4}, {5}}, {"", "", ""}},
      failed{{}, {{1, 2}, {}, {5}}, {"", "no", ""}};
  Agreement agreement;
  agreement.add(outputs_of(a), outputs_of(b));
  EXPECT_EQ(agreement.compared, 3);
  EXPECT_EQ(agreement.different, 2);
  agreement.add(outputs_of(b), outputs_of(failed));
  EXPECT_EQ(agreement.compared, 5);
  EXPECT_EQ(agreement.different, 2);
}

TEST(WarmUp, asks_for_no_more_than_the_run) {
  std::vector<Job> jobs(3);
  for (Job& j : jobs) j.request.limits.max_new_tokens = 5;
  const auto few = warm_up_jobs(jobs, 8);
  ASSERT_EQ(few.size(), 3u);
  for (const Job& j : few) EXPECT_TRUE(j.request.limits.max_new_tokens >= 1 && j.request.limits.max_new_tokens <= 5);
}

}  // namespace
}  // namespace foretoken::test
