// A head on several hidden states of the target drafts: their combination stands beside each token's embedding in the
// input of its decoder layer, whose output takes its place for drafted tokens (Li et al. 2025, EAGLE-3, arXiv
// 2503.01840; EAGLE-3.1 norms the states, and what it is fed).
#include "drafters/drafters.h"
#include "drafters/heads/eagle_drafter.h"

namespace foretoken {

Entry<Drafter> eagle3() {
  return eagle_entry("eagle3", 3, "an EAGLE-3 head on hidden states of the target's layers", "arXiv 2503.01840");
}

}  // namespace foretoken
