// The warm-up requests of a run, when a run is measured again, and what alternations are compared by.
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "experiments/sweep/alternation.h"
#include "experiments/sweep/jobs.h"
#include "experiments/sweep/measure.h"
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
  Measured found{{}, {std::move(text)}, {""}};
  found.record.stopped_seconds = stopped;
  found.record.seconds = 10;
  return found;
}

TEST(MeasureKept, says_what_was_thrown_away_and_compares_its_outputs) {
  std::size_t asked = 0, again = 0;
  const std::vector<Measured> all = {measurement(7), measurement(0.5, {1, 3}), measurement(0.1)};
  const Taken taken = measure_kept([&] { return all.at(asked++); }, [&] { ++again; });
  EXPECT_EQ(again, 2u);
  EXPECT_EQ(taken.measured.record.stopped_seconds, 0.1) << "2 % of the time may be lost";
  ASSERT_EQ(taken.thrown_away.size(), 2u);
  const auto expect_thrown = [](const ThrownAway& thrown, double stopped, long differing) {
    EXPECT_EQ(thrown.reason, "the process was stopped");
    EXPECT_EQ(thrown.stopped_seconds, stopped);
    EXPECT_EQ(thrown.seconds, 10);
    EXPECT_EQ(thrown.differing_texts, differing);
  };
  expect_thrown(taken.thrown_away[0], 7, 0);
  expect_thrown(taken.thrown_away[1], 0.5, 1);
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
  EXPECT_EQ(taken.measured.record.stopped_seconds, 9.0);
  EXPECT_TRUE(taken.thrown_away.empty());
}

RequestRecord request_of(long rounds) {
  RequestRecord found;
  found.tokens = 2;
  found.rounds = rounds;
  found.drafted = found.tested = 3;
  found.accepted = 1;
  return found;
}

// "speculative 1: 2": requests that differ in alternation 1.
std::vector<std::string> differing(const SameAgain& same) {
  std::vector<std::string> found;
  for (const Reproduced::Difference& d : same.found().differing)
    found.push_back(d.side + " " + std::to_string(d.repeat) + ": " + std::to_string(d.requests));
  return found;
}

// A plugin with a static store did other rounds in every alternation.
TEST(SameAgain, names_alternations_that_differ) {
  SameAgain same(true), unasked(false);
  const auto add = [&](long rounds, std::vector<Token> text, const char* side, int repeat) {
    Measured now{{}, {{1, 2}, std::move(text)}, {"", ""}};
    now.record.requests = {request_of(rounds), request_of(rounds)};
    for (SameAgain* s : {&same, &unasked}) s->add({now.record, outputs_of(now), {}}, side, repeat);
  };
  add(2, {1, 2}, "baseline", 0), add(5, {1, 2}, "speculative", 0);
  add(2, {1, 2}, "baseline", 1), add(4, {1, 2}, "speculative", 1);
  add(2, {1, 9}, "baseline", 2), add(5, {1, 2}, "speculative", 2);
  EXPECT_EQ(differing(same), (std::vector<std::string>{"speculative 1: 2", "baseline 2: 1"}));
  EXPECT_FALSE(unasked.found().compared);
  EXPECT_TRUE(unasked.found().differing.empty());
}

// Of three jobs: requests of those that a measurement left out are not in its list.
TEST(SameAgain, compares_jobs_also_behind_turns_that_were_left_out) {
  SameAgain same(true);
  const auto add = [&](const std::vector<std::size_t>& left_out, const std::vector<long>& rounds, int repeat) {
    Measured now{{}, {{1}, {2}, {3}}, {"", "", ""}};
    for (const long n : rounds) now.record.requests.push_back(request_of(n));
    for (const std::size_t job : left_out) {
      if (!now.record.left_out) now.record.left_out.emplace();
      now.record.left_out->turns.push_back({.job = long(job)});
      now.outputs[job].clear(), now.failures[job] = "the turn was left out";
    }
    same.add({now.record, outputs_of(now), {}}, "speculative", repeat);
  };
  add({1}, {5, 7}, 0), add({1}, {5, 7}, 1);
  EXPECT_TRUE(differing(same).empty());
  add({1}, {5, 8}, 2), add({}, {5, 6, 7}, 3), add({0}, {6, 7}, 4);
  EXPECT_EQ(differing(same), (std::vector<std::string>{"speculative 2: 1", "speculative 3: 1", "speculative 4: 2"}));
}

// A lossy verifier's side may leave out other turns than the baseline's.
TEST(Agreement, leaves_out_turns_that_one_side_left_out) {
  const Measured plain{{}, {{1}, {2}, {}}, {"", "", "the turn was left out"}},
      lossy{{}, {{1}, {}, {3}}, {"", "the turn was left out", ""}};
  Agreement agreement;
  compare_outputs(outputs_of(plain), outputs_of(lossy), agreement);
  EXPECT_EQ(agreement.compared_texts, 1);
  EXPECT_EQ(agreement.differing_texts, 0);
}

TEST(Agreement, leaves_out_requests_that_failed) {
  const Measured a{{}, {{1, 2}, {3}, {}}, {"", "", ""}}, b{{}, {{1, 2}, {4}, {5}}, {"", "", ""}},
      failed{{}, {{1, 2}, {}, {5}}, {"", "no", ""}};
  Agreement agreement;
  compare_outputs(outputs_of(a), outputs_of(b), agreement);
  EXPECT_EQ(agreement.compared_texts, 3);
  EXPECT_EQ(agreement.differing_texts, 2);
  compare_outputs(outputs_of(b), outputs_of(failed), agreement);
  EXPECT_EQ(agreement.compared_texts, 5);
  EXPECT_EQ(agreement.differing_texts, 2);
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
