#include "framework/components/drafter.h"

#include <algorithm>

#include "kernels/error.h"

namespace foretoken {

void expect_served(const Needs& needs, const std::string& who) {
  if (std::ranges::find(needs.proposes, Drawn::aside) != needs.proposes.end())
    throw Error(who + " names nodes drawn 'aside' in Needs::proposes, which no verifier judges; leave them out there");
  if (needs.ranks < 0)
    throw Error(who + " needs " + std::to_string(needs.ranks) + " ranks (Needs::ranks); it must be 0 or more");
}

std::vector<DraftTree> rooted(Backend& backend, std::span<const DraftRequest> requests) {
  std::vector<DraftTree::Root> roots;
  roots.reserve(requests.size());
  for (const DraftRequest& r : requests)
    roots.push_back({r.sequence->last(), std::max(0, r.budget.or_root().nodes - 1)});
  return DraftTree::rooted(backend, roots);
}

}  // namespace foretoken
