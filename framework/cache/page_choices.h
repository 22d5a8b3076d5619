// Which pages of a cache a reader of fewer pages sees. This module must not know whether that is a draft or a target.
#pragma once
#include "framework/cache/kv_cache.h"

namespace foretoken {

// The pages that have any of the first `sinks` or of the last `window` of the confirmed rows; whole pages, so some
// more.
PageChoice sinks_and_window(int sinks, int window);

}  // namespace foretoken
