// A drafter made of another, for tests of components inside components.
#pragma once
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "framework/components/drafter.h"

namespace foretoken::test {

// Forwards every call, within a draw scope of its own.
class Around : public Drafter {
 public:
  explicit Around(std::unique_ptr<Drafter> inner) : inner_(std::move(inner)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftRequest> within(requests.begin(), requests.end());
    for (DraftRequest& r : within) r.draws = r.draws.within(0);
    return inner_->draft(within);
  }
  void observe(std::span<const Outcome> outcomes) override { inner_->observe(outcomes); }
  void observe_step(const StepReport& report) override { inner_->observe_step(report); }
  void forget(const Sequence& s) override { inner_->forget(s); }

 private:
  std::unique_ptr<Drafter> inner_;
};

}  // namespace foretoken::test
