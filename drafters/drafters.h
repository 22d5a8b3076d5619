// The drafters and length policies that come with the project, one file each. They do not know each other, nor
// verifiers.
#pragma once
#include "framework/decode/host.h"
#include "framework/decode/registry.h"

namespace foretoken {

Entry<Drafter> none();
Entry<Drafter> ngram();
Entry<Drafter> draft_model();

Entry<LengthPolicy> fixed();

}  // namespace foretoken
