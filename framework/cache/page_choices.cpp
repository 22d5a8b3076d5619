#include "framework/cache/page_choices.h"

#include <algorithm>

namespace foretoken {

PageChoice sinks_and_window(int sinks, int window) {
  return [sinks, window](const Sequence&, int confirmed, int page_rows) {
    const int full = confirmed / page_rows, first = std::min(full, KvCache::pages_of(sinks, page_rows));
    std::vector<int> pages;
    for (int page = 0; page < first; ++page) pages.push_back(page);
    for (int page = std::max(first, (confirmed - window) / page_rows); page < full; ++page) pages.push_back(page);
    return pages;
  };
}

}  // namespace foretoken
