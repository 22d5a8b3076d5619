// A verifier that accepts nothing: every round emits the target's own next token, drawn as plain decoding draws it. So
// drafts are seen at every position of plain decoding's output. This module must not know what is done with them.
#pragma once
#include <memory>

#include "framework/components/verifier.h"

namespace foretoken {

// `race`: the token is the winner of the race at its position, as for a verifier with Soundness::race.
std::unique_ptr<Verifier> one_token(bool race);

}  // namespace foretoken
