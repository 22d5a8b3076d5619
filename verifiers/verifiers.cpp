// Registers the verifiers. A new one is one file, its declaration, and one line here.
#include "verifiers/verifiers.h"

namespace foretoken {

void register_verifiers(Registries& registries) {
  registries.verifiers.add("speculative_sampling", speculative_sampling());
  registries.verifiers.add("coupled", coupled());
}

}  // namespace foretoken
