// What a report begins with, its sums, and who gets an Error for it.
#include "framework/components/step_report.h"

#include <gtest/gtest.h>

#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

TEST(StepReport, every_phase_is_added) {
  double Phases::* const all[] = {&Phases::schedule,       &Phases::draft_forward, &Phases::draft_other,
                                  &Phases::target_forward, &Phases::verify,        &Phases::deliver,
                                  &Phases::total};
  static_assert(sizeof(Phases) == std::size(all) * sizeof(double));
  Phases sum, step;
  double value = 1;
  for (double Phases::* const phase : all) step.*phase = value, value *= 2;
  sum += step, sum += step;
  value = 2;
  for (double Phases::* const phase : all) {
    EXPECT_EQ(sum.*phase, value);
    value *= 2;
  }
}

TEST(StepReport, a_sequence_that_failed_is_an_error_for_who_needs_all) {
  StepReport report;
  report.rows = 3;
  report.finished.resize(2);
  report.finished[1].id = 7;
  EXPECT_EQ(without_failures(report).rows, 3);
  report.finished[1].fail("no pages");
  EXPECT_EQ(test::sentence_of([&] { without_failures(report); }), "request 7 failed: no pages");
}

// What an engine does not fill in is nothing: reports are summed up by whoever reads them.
TEST(StepReport, begins_with_nothing) {
  const StepReport r;
  EXPECT_TRUE(r.sequences.empty() && r.finished.empty());
  for (const int n :
       {r.rows, r.cut, r.waits, r.recorded, r.unrecorded, r.preempted, r.waiting, r.running, r.pages_in_use})
    EXPECT_EQ(n, 0);
  const Phases& p = r.phases;
  for (const double s : {p.schedule, p.draft_forward, p.draft_other, p.target_forward, p.verify, p.deliver, p.total})
    EXPECT_EQ(s, 0);
  const SequenceReport s;
  EXPECT_EQ(s.id, 0u);
  for (const int n : {s.prompt_rows, s.drafted, s.depth, s.accepted, s.tested()}) EXPECT_EQ(n, 0);
  EXPECT_FALSE(s.judged || s.rejected);
  EXPECT_EQ(s.finish, Finish::running);
  const TestedLevel level;
  EXPECT_EQ(level.children, 0);
  EXPECT_EQ(level.accepted, -1);
}

TEST(StepReport, phases_and_levels_by_hand) {
  Phases p;
  p.draft_forward = 1, p.target_forward = 4, p.total = 12;
  EXPECT_EQ(p.forwards(), 5);
  EXPECT_EQ(p.overhead(), 7);
  SequenceReport s;
  s.accepted = 3;
  EXPECT_EQ(s.tested(), 3) << "every level";
  s.rejected = true;
  EXPECT_EQ(s.tested(), 4) << "the level at which all were rejected counts";
}

}  // namespace
}  // namespace foretoken::test
