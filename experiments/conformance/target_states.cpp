#include "experiments/conformance/target_states.h"

#include <array>

#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

constexpr int kRows = 16, kPages = 512;

}  // namespace

TargetStates::TargetStates(Backend& backend, const Models& models, const Needs& needs)
    : needed_(needs.views_target || !needs.hidden.empty()),
      pool_(backend, with_taps(models.target->info(), needs.hidden, needs.page_bounds).page_bytes(kRows),
            needed_ ? kPages : 1),
      model_(backend, models.target, pool_, false, needs.hidden, needs.page_bounds) {}

HiddenStates TargetStates::of(const Sequence& sequence) {
  if (!needed_) return {};
  const int missing = int(model_.unseen(sequence).size()) - 1;
  if (missing > 0) {
    if (!model_.reserve(sequence, missing)) throw Error("the target's states of a law do not fit into its pages");
    model_.run(std::array{Segment{&sequence, missing}});
    (void)model_.unseen(sequence);  // keeps what was fed
  }
  return model_.hidden(sequence);
}

void TargetStates::forget(const Sequence& sequence) {
  model_.forget(sequence);
  (void)model_.books()->seconds();  // else it keeps the times of all forwards
}

}  // namespace foretoken::conformance
