// The table of contents. A new drafter is one file and one line here (and its declaration).
#include "drafters/drafters.h"

namespace foretoken {

void register_drafters(Registries& registries) {
  registries.drafters.add("none", none());
  registries.drafters.add("ngram", ngram());
  registries.drafters.add("draft_model", draft_model());

  registries.policies.add("fixed", fixed());
}

}  // namespace foretoken
