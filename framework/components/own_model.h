// The model of a drafter, for one that draws its own tokens from it (Entry::model), as `cascade` does. This module must
// not know who uses it.
#pragma once
#include <functional>
#include <memory>
#include <span>

#include "framework/components/drafter.h"

namespace foretoken {

// It reads below a path that is not verified (Sequence::verified), several times in a step. A row's logits depend on
// the sequence up to that row, on what is verified of it, and on where the tree's root is: not on nodes beside or below
// the row, which are judged by these logits.
struct OwnModel {
  std::shared_ptr<CachedModel> model;  // made by the host that it is asked of
  // Before a step's first use of `model` for these requests, each of a sequence that is verified. Sets the rows of
  // those to 0 for which it cannot be used in this step. Empty: there is nothing to prepare.
  std::function<void(std::span<DraftRequest>)> prepare = {};
  std::function<void(const Sequence&)> forget_prepared = {};  // what prepare() holds of a sequence

  void before(std::span<DraftRequest> requests) const {
    if (prepare) prepare(requests);
  }
  void forget(const Sequence& sequence) const {
    model->forget(sequence);
    if (forget_prepared) forget_prepared(sequence);
  }
};

}  // namespace foretoken
