// A head on the target's last hidden state drafts: one decoder layer reads each token with the state of the position
// before, and drafted tokens with its own output (Li et al. 2024, EAGLE, arXiv 2401.15077; EAGLE-2, 2406.16858, has the
// same heads and grows as "dynamic").
#include "drafters/drafters.h"
#include "drafters/heads/eagle_drafter.h"

namespace foretoken {

Entry<Drafter> eagle() {
  return eagle_entry("eagle", 1, "an EAGLE-1 or EAGLE-2 head on the target's last hidden state",
                     "arXiv 2401.15077, 2406.16858");
}

}  // namespace foretoken
