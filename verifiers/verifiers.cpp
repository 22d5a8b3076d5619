// Registers the verifiers. A new one is one file, its declaration, and one line here.
#include "verifiers/verifiers.h"

namespace foretoken {

void register_verifiers(Registries& registries) {
  registries.verifiers.add("speculative_sampling", speculative_sampling());
  registries.verifiers.add("without_replacement", without_replacement());
  registries.verifiers.add("k_seq", k_seq());
  registries.verifiers.add("block_verification", block_verification());
  registries.verifiers.add("traversal_verification", traversal_verification());
  registries.verifiers.add("multi_path_block", multi_path_block());
  registries.verifiers.add("target_match", target_match());
  registries.verifiers.add("coupled", coupled());
  registries.verifiers.add("typical_acceptance", typical_acceptance());
  registries.verifiers.add("threshold", threshold());
  registries.verifiers.add("relaxed_top_k", relaxed_top_k());
  registries.verifiers.add("big_little", big_little());
  registries.verifiers.add("synthetic", synthetic());
}

}  // namespace foretoken
