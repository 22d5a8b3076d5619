// The target's hidden states and its cache for drafters that a law calls without an engine. This module must not know
// any drafter by name.
#pragma once
#include "experiments/conformance/scenario.h"

namespace foretoken::conformance {

class TargetStates {
 public:
  // Of a drafter's needs. Where it reads nothing of the target, nothing is computed.
  TargetStates(Backend& backend, const Models& models, const Needs& needs);
  // Of all tokens but the last. Valid until the next call for a sequence of this id, or forget().
  HiddenStates of(const Sequence& sequence);
  void forget(const Sequence& sequence);
  KvCache* cache() { return needed_ ? &model_.cache() : nullptr; }

 private:
  bool needed_;
  PagePool pool_;
  CachedModel model_;
};

}  // namespace foretoken::conformance
