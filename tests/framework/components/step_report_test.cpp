// Sums of the phases of several steps.
#include "framework/components/step_report.h"

#include <gtest/gtest.h>

namespace foretoken::testing {
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

}  // namespace
}  // namespace foretoken::testing
