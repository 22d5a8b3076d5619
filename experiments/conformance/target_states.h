// The target's hidden states for drafters that a law calls without an engine. This module must not know any drafter by
// name.
#pragma once
#include "experiments/conformance/scenario.h"

namespace foretoken::conformance {

class TargetStates {
 public:
  // `taps`: none where the drafter needs none; then nothing is computed.
  TargetStates(Backend& backend, const Models& models, std::vector<Tap> taps);
  // Of all tokens but the last. Valid until the next call for a sequence of this id, or forget().
  HiddenStates of(const Sequence& sequence);
  void forget(const Sequence& sequence);

 private:
  PagePool pool_;
  CachedModel model_;
};

}  // namespace foretoken::conformance
