// The target drafts for itself on the recent pages of its own cache and those that got the most attention so far, its
// heavy hitters (Zhang et al. 2023, H2O, arXiv 2306.14048). Mass is accumulated from the last tokens of the prompt on,
// by reading tokens again, as many at once as are generated between two choices. Unlike H2O it chooses whole pages, one
// set for all layers and heads, and may choose a page again that it left out before: nothing is evicted.
#include "drafters/chosen_pages.h"
#include "drafters/drafters.h"

namespace foretoken {
namespace {

PageBudget h2o_budget(const nlohmann::json& o) {
  return checked({.budget = o.at("budget"),
                  .sinks = 0,
                  .window = o.at("window"),
                  .observed = o.at("observe"),
                  .every = o.at("every"),
                  .accumulates = true},
                 "h2o");
}

}  // namespace

Entry<Drafter> h2o() {
  return {
      "the target itself on the recent pages of its cache and those that got the most attention so far",
      "arXiv 2306.14048",
      with_page_options({{"observe", "integer", 64,
                          "last tokens of the prompt from which on attention to whole pages is added up, over layers "
                          "and heads",
                          false, 1, 1 << 30}}),
      [](const nlohmann::json& o, Host& host) { return chosen_pages_drafter(o, "h2o", h2o_budget(o), host); },
      [](const nlohmann::json& o, const ModelInfo& target) {
        (void)h2o_budget(o);
        return chosen_pages_needs(o, "h2o", target);
      },
      {{{"budget", 4}, {"window", 2}, {"observe", 3}, {"every", 2}, {"temperature", 0.5}},
       {{"budget", 6},
        {"window", 0},
        {"observe", 1},
        {"every", 5},
        {"growth", "tree"},
        {"shape", {2, 1}},
        {"cut", true},
        {"draws", "without_replacement"}},
       {{"budget", 5}, {"window", 1}, {"every", 3}, {"growth", "dynamic"}, {"width", 2}, {"expand", 2}}},
      "",
      {},
      [](const nlohmann::json& o, Host& host) { return chosen_pages_model(h2o_budget(o), host); }};
}

}  // namespace foretoken
