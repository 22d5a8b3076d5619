// What models that keep rows of the target's states for confirmed tokens, and for those alone, do at the beginning of a
// round. This module must not know what they draft.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "framework/cache/cached_model.h"
#include "framework/components/drafter.h"

namespace foretoken {

// Makes the model's rows of tokens of which the target has states (`taps`), as far as rows and pages suffice. Returns
// the requests that may be drafted for then, by index: of those for which `drafts` says so, the ones that lack the
// root's row alone.
std::vector<int> read_target(CachedModel& model, std::span<const Tap> taps, std::span<const DraftRequest> requests,
                             const std::function<bool(const DraftRequest&)>& drafts);

}  // namespace foretoken
