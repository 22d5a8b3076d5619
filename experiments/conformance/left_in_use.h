// Whether lives that should leave nothing behind do. Counts bytes of the process's heap, so nothing else may run.
#pragma once
#include <functional>

#include "experiments/conformance/scenario.h"

namespace foretoken::conformance {

// Calls `live` thousands of times, with 0, 1, 2, ..., and fails where each leaves memory in use, also once every cache
// of a thousand has been filled. `remedy` ends the message.
void expect_nothing_left(const std::function<void(int)>& live, const std::string& remedy, Finding& f);

}  // namespace foretoken::conformance
