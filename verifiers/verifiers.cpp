// The table of contents. A new verifier is one file and one line here (and its declaration).
#include "verifiers/verifiers.h"

namespace foretoken {

void register_verifiers(Registries& registries) {
  registries.verifiers.add("speculative_sampling", speculative_sampling());
  registries.verifiers.add("coupled", coupled());
}

}  // namespace foretoken
