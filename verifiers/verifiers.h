// The verifiers that come with the project, one file each. They must not know each other, nor drafters.
#pragma once
#include "framework/components/registry.h"

namespace foretoken {

Entry<Verifier> speculative_sampling();
Entry<Verifier> coupled();

}  // namespace foretoken
