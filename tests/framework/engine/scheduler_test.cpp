// The scheduler when memory is short: the newest sequences are preempted, and the plan has no preempted sequence.
#include "framework/engine/scheduler.h"

#include <map>
#include <utility>

#include <gtest/gtest.h>

namespace foretoken::test {
namespace {

using Ids = std::vector<SequenceId>;

// Memory for a number of rows. A sequence keeps its reserved rows until it is released.
class Rows final : public Scheduler::Memory {
 public:
  int free = 0, asked = 0;
  std::map<SequenceId, int> unseen_of, taken;
  std::vector<int> tried, evicting;  // rows that were requested without and with eviction of drafters

  int unseen(const Sequence& sequence) override { return ++asked, unseen_of.at(sequence.id); }
  bool reserve(const Sequence& sequence, int rows, bool evict_drafts) override {
    (evict_drafts ? evicting : tried).push_back(rows);
    if (rows > free) return false;
    free -= rows, taken[sequence.id] += rows;
    return true;
  }
  void release(Sequence& sequence) override { free += std::exchange(taken[sequence.id], 0); }
};

struct SchedulerTest : ::testing::Test {
  Queues queues;
  Rows memory;

  // Running sequences 1, 2, ..., with so many unseen tokens each.
  void running(const std::vector<int>& unseen) {
    for (std::size_t i = 0; i < unseen.size(); ++i) {
      queues.running.push_back(std::make_unique<Active>());
      Sequence& s = queues.running.back()->sequence;
      s.id = i + 1, s.tokens.assign(20, 1), s.prompt_length = 20;
      memory.unseen_of[s.id] = unseen[i];
    }
  }
  static Ids ids(const auto& actives) {
    Ids all;
    for (const auto& a : actives) all.push_back(a->sequence.id);
    return all;
  }
  static Ids planned(const Plan& plan) {
    Ids all;
    for (const Scheduled& s : plan.scheduled) all.push_back(s.active->sequence.id);
    return all;
  }
};

TEST_F(SchedulerTest, reads_unseen_tokens_once_per_sequence_and_schedules_decoding_first) {
  running({5, 1, 7, 1});
  memory.free = 100;
  const Plan plan = Scheduler(4, {16}).next(queues, memory, {3, 2});
  EXPECT_EQ(memory.asked, 4);
  EXPECT_EQ(planned(plan), (Ids{2, 4, 1, 3}));
  EXPECT_EQ(plan.scheduled[0].room, (Budget{3, 2}));
  EXPECT_EQ(plan.scheduled[2].chain, 4);
  EXPECT_TRUE(plan.scheduled[2].root);
  EXPECT_EQ(plan.scheduled[3].chain, 3) << "the remaining rows";
  EXPECT_FALSE(plan.scheduled[3].root);
}

TEST_F(SchedulerTest, a_preempted_sequence_is_not_scheduled_again) {
  running({1, 1, 1, 1});
  memory.free = 2;  // for the first two; the third gets the memory of the fourth, which is preempted
  memory.taken[4] = 1;
  const Plan plan = Scheduler(4, {12}).next(queues, memory, {1, 0});
  EXPECT_EQ(planned(plan), (Ids{1, 2, 3}));
  EXPECT_EQ(plan.preempted, 1);
  EXPECT_EQ(ids(queues.running), (Ids{1, 2, 3}));
  EXPECT_EQ(ids(queues.waiting), (Ids{4}));
}

TEST_F(SchedulerTest, the_newest_preempts_itself) {
  running({1, 1, 1});
  memory.free = 2;
  const Plan plan = Scheduler(3, {12}).next(queues, memory, {1, 0});
  EXPECT_EQ(planned(plan), (Ids{1, 2}));
  EXPECT_EQ(plan.preempted, 1);
  EXPECT_EQ(ids(queues.waiting), (Ids{3}));
}

// The older prompt comes after the newer sequence that decodes, takes its memory and the rows that were planned for it.
TEST_F(SchedulerTest, an_older_prompt_preempts_a_newer_sequence_that_was_planned) {
  running({4, 1});
  memory.free = 3;
  const Plan plan = Scheduler(2, {4}).next(queues, memory, {1, 0});
  EXPECT_EQ(planned(plan), (Ids{1}));
  EXPECT_EQ(plan.preempted, 1);
  EXPECT_EQ(ids(queues.waiting), (Ids{2}));
}

std::vector<Budget> rooms(const Plan& plan) {
  std::vector<Budget> all;
  for (const Scheduled& s : plan.scheduled) all.push_back(s.room);
  return all;
}

TEST_F(SchedulerTest, the_remaining_output_limits_the_depth_of_a_tree_and_not_its_nodes) {
  running({1, 1, 1});
  memory.free = 1000;
  queues.running[1]->sequence.limits.max_new_tokens = 4, queues.running[2]->sequence.limits.max_new_tokens = 1;
  const Plan plan = Scheduler(3, {512}).next(queues, memory, {60, 8});
  EXPECT_EQ(rooms(plan), (std::vector<Budget>{{60, 8}, {60, 3}, {1, 0}}));
}

TEST_F(SchedulerTest, the_rows_of_a_step_are_shared_evenly) {
  running({1, 1, 1, 1});
  memory.free = 1000;
  EXPECT_EQ(rooms(Scheduler(4, {64}).next(queues, memory, {60, 8})), std::vector<Budget>(4, {16, 8}));
  // The rows that the second cannot use go to those after it.
  queues.running[1]->sequence.limits.max_new_tokens = 1;
  EXPECT_EQ(rooms(Scheduler(4, {64}).next(queues, memory, {60, 8})),
            (std::vector<Budget>{{16, 8}, {1, 0}, {24, 8}, {23, 8}}));
}

TEST_F(SchedulerTest, judged_rows_may_be_fewer_than_step_rows) {
  running({1, 1, 30});
  memory.free = 1000;
  const Plan plan = Scheduler(3, {512, 18}).next(queues, memory, {60, 8});
  EXPECT_EQ(rooms(plan), (std::vector<Budget>{{6, 8}, {6, 8}, {6, 8}}));
  EXPECT_EQ(plan.scheduled[2].chain, 29);
}

TEST_F(SchedulerTest, prompts_have_rows_of_their_own_beside_the_trees) {
  running({1, 40, 1, 30, 9});
  memory.free = 1000;
  const Plan plan = Scheduler(5, {64 + 3 * 20, 60, 64}).next(queues, memory, {20, 4});
  EXPECT_EQ(planned(plan), (Ids{1, 3, 2, 4})) << "no row is left for the last prompt";
  EXPECT_EQ(plan.scheduled[2].chain, 39);
  EXPECT_TRUE(plan.scheduled[2].root);
  EXPECT_EQ(plan.scheduled[3].chain, 25) << "64 rows in all";
  EXPECT_FALSE(plan.scheduled[3].root);
  EXPECT_EQ(queues.running.size(), 5u);
}

TEST_F(SchedulerTest, a_root_takes_no_row_of_the_prompts) {
  running({65});
  memory.free = 1000;
  const Plan plan = Scheduler(1, {64 + 1, 1, 64}).next(queues, memory, {1, 0});
  EXPECT_EQ(plan.scheduled.at(0).chain, 64);
  EXPECT_TRUE(plan.scheduled[0].root);
}

TEST_F(SchedulerTest, nobody_is_admitted_without_rows_for_its_prompt) {
  running({33});
  memory.free = 1000;
  queues.waiting.push_back(std::make_unique<Active>());
  queues.waiting.back()->sequence.id = 7, queues.waiting.back()->sequence.tokens.assign(5, 1);
  memory.unseen_of[7] = 5;
  EXPECT_EQ(planned(Scheduler(2, {64, 32, 32}).next(queues, memory, {1, 0})), (Ids{1}));
  EXPECT_EQ(ids(queues.waiting), (Ids{7}));
}

TEST_F(SchedulerTest, a_preempted_prompt_gives_its_rows_back) {
  running({4, 9, 9});
  memory.free = 12, memory.taken[3] = 20;
  const Plan plan = Scheduler(3, {64, 32, 10}).next(queues, memory, {1, 0});
  EXPECT_EQ(planned(plan), (Ids{1, 2}));
  EXPECT_EQ(plan.scheduled[1].chain, 7);
}

TEST_F(SchedulerTest, a_sequence_that_reads_a_prompt_has_a_share_of_the_guesses) {
  running({1, 20, 20});
  memory.free = 1000;
  const Plan plan = Scheduler(3, {120}).next(queues, memory, {60, 8});
  EXPECT_EQ(rooms(plan), (std::vector<Budget>{{40, 8}, {40, 8}, {2, 8}}));
  EXPECT_EQ(plan.scheduled[2].chain, 19) << "the prompt is scheduled before the guesses after it";
}

TEST_F(SchedulerTest, guesses_reserve_without_eviction_and_halve_their_nodes) {
  running({1});
  memory.free = 12;
  EXPECT_EQ(rooms(Scheduler(1, {512}).next(queues, memory, {64, 3})), (std::vector<Budget>{{8, 3}}));
  EXPECT_EQ(memory.tried, (std::vector<int>{64, 32, 16, 8}));
  EXPECT_TRUE(memory.evicting.empty()) << "no drafter is evicted for guesses";
}

TEST_F(SchedulerTest, only_a_bare_root_evicts_drafters) {
  running({1, 1});
  memory.free = 0, memory.taken[2] = 1;
  const Plan plan = Scheduler(2, {512}).next(queues, memory, {9, 5});
  EXPECT_EQ(rooms(plan), (std::vector<Budget>{{1, 5}}));
  memory.tried.resize(3);  // the rest is for the preempted sequence
  EXPECT_EQ(memory.tried, (std::vector<int>{9, 6, 3})) << "a chain of the whole depth is tried before anything smaller";
  EXPECT_EQ(memory.evicting, (std::vector<int>{1, 1}));
  EXPECT_EQ(plan.preempted, 1);
}

TEST(Shares, small_wants_are_met_and_the_rest_is_shared_evenly) {
  const auto of = [](std::vector<int> wanted, int rows) { return shares(wanted, rows); };
  EXPECT_EQ(of({}, 5), std::vector<int>());
  EXPECT_EQ(of({3, 0, 4}, 100), (std::vector<int>{3, 0, 4}));
  EXPECT_EQ(of({100, 2, 100}, 42), (std::vector<int>{20, 2, 20}));
  EXPECT_EQ(of({9, 9, 9}, 8), (std::vector<int>{2, 3, 3}));
  EXPECT_EQ(of({5, 5}, 0), (std::vector<int>{0, 0}));
}

}  // namespace
}  // namespace foretoken::test
