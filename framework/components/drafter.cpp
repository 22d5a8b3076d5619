#include "framework/components/drafter.h"

namespace foretoken {

std::vector<DraftTree> rooted(Backend& backend, std::span<const DraftRequest> requests) {
  std::vector<DraftTree::Root> roots;
  roots.reserve(requests.size());
  for (const DraftRequest& r : requests) roots.push_back({r.sequence->last(), r.budget});
  return DraftTree::rooted(backend, roots);
}

}  // namespace foretoken
