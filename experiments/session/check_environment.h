// Where the laws of correctness are tested on this machine: on every device that it has, and on the demo models where
// they are. This module must not know what is tested.
#pragma once
#include "experiments/conformance/law_table.h"

namespace foretoken {

// To be called in a process that may use a GPU (conformance::check).
conformance::Environment check_environment();

}  // namespace foretoken
