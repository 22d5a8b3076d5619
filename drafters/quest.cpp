// The target drafts for itself on those pages of its own cache whose keys may match its queries best (Tang et al. 2024,
// Quest, arXiv 2406.10774), chosen anew in every forward by each layer and kv head: a page is scored by the least and
// the greatest of its keys, number by number, which the target's pages keep. The rows of a forward choose together, as
// do the query heads of a kv head. As the retrieval cache of Sun et al. 2024, TriForce (2404.11912), but that this
// chooses again for every draft token.
#include <algorithm>
#include <numeric>

#include "drafters/drafters.h"
#include "drafters/target_part.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

Needs quest_needs(const nlohmann::json& o, const ModelInfo& target) {
  if (const int window = target.kv.window(target.name); window > 0)
    throw Error("the drafter 'quest' selects pages of the whole context, but the target " + target.name +
                " attends to its last " + std::to_string(window) + " positions" +
                (target.kv.has_layers_without_window() ? " in some layers" : "") + "; choose another drafter");
  Needs needs = part_needs(o, "quest", target);
  needs.page_bounds = true;
  return needs;
}

// As many pages as hold the budget; which, each layer says.
PageChoice selected(int budget) {
  const auto number = [budget](const Sequence&, int confirmed, int page_rows) {
    std::vector<int> pages(std::size_t(std::min(confirmed / page_rows, KvCache::pages_of(budget, page_rows))));
    std::iota(pages.begin(), pages.end(), 0);
    return pages;
  };
  return {number, true};
}

}  // namespace

Entry<Drafter> quest() {
  return {
      "the target itself on the pages of its cache whose keys may match each query best",
      "arXiv 2406.10774, 2404.11912",
      with_growth_options({{"budget", "integer", 1024,
                            "positions that each layer and kv head reads, in whole pages, and what is newer than "
                            "the last whole page",
                            false, 1, 1 << 30}}),
      [](const nlohmann::json& o, Host& host) { return part_drafter(o, "quest", {}, host, selected(o.at("budget"))); },
      quest_needs,
      {{{"budget", 2}, {"temperature", 0.5}},
       {{"budget", 4}, {"growth", "tree"}, {"shape", {2, 1}}, {"cut", true}, {"draws", "without_replacement"}},
       {{"budget", 5}, {"growth", "dynamic"}, {"width", 2}, {"expand", 2}}},
      "",
      {},
      [](const nlohmann::json& o, Host& host) { return part_model({}, host, selected(o.at("budget"))); }};
}

}  // namespace foretoken
