// The verifiers that come with the project, one file each. They must not know each other, nor drafters.
#pragma once
#include "framework/components/registry.h"

namespace foretoken {

// Exact.
Entry<Verifier> speculative_sampling();
Entry<Verifier> without_replacement();
Entry<Verifier> k_seq();
Entry<Verifier> block_verification();
Entry<Verifier> traversal_verification();
Entry<Verifier> multi_path_block();
Entry<Verifier> target_match();
Entry<Verifier> coupled();
// Lossy.
Entry<Verifier> typical_acceptance();
Entry<Verifier> threshold();
Entry<Verifier> relaxed_top_k();
Entry<Verifier> big_little();
Entry<Verifier> synthetic();

}  // namespace foretoken
