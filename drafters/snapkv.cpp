// The target drafts for itself on the pages of its own cache that the last tokens attend to most (Li et al. 2024,
// SnapKV, arXiv 2404.14469; as a drafter Chen et al. 2024, MagicDec, 2408.11049), which are chosen after the prompt and
// again every so many tokens, by reading the last `observe` tokens again. Unlike SnapKV it chooses whole pages of the
// cache, without pooling over neighbours, and one set for all layers and heads.
#include "drafters/chosen_pages.h"
#include "drafters/drafters.h"

namespace foretoken {
namespace {

PageBudget snapkv_budget(const nlohmann::json& o) {
  return checked({.budget = o.at("budget"),
                  .sinks = o.at("sinks"),
                  .window = o.at("window"),
                  .observed = o.at("observe"),
                  .every = o.at("every")},
                 "snapkv");
}

}  // namespace

Entry<Drafter> snapkv() {
  return {
      "the target itself on the pages of its cache to which the last tokens attend most",
      "arXiv 2404.14469, 2408.11049",
      with_page_options(
          {{"sinks", "integer", 4, "of them the first ones, always read", false, 0, 1 << 30},
           {"observe", "integer", 32,
            "last tokens whose attention chooses whole pages, by the sum over layers and heads", false, 1, 1 << 30}}),
      [](const nlohmann::json& o, Host& host) { return chosen_pages_drafter(o, "snapkv", snapkv_budget(o), host); },
      [](const nlohmann::json& o, const ModelInfo& target) {
        (void)snapkv_budget(o);
        return chosen_pages_needs(o, "snapkv", target);
      },
      {{{"budget", 4}, {"sinks", 1}, {"window", 2}, {"observe", 3}, {"every", 2}, {"temperature", 0.5}},
       {{"budget", 6},
        {"sinks", 0},
        {"window", 0},
        {"observe", 1},
        {"every", 5},
        {"growth", "tree"},
        {"shape", {2, 1}},
        {"cut", true},
        {"draws", "without_replacement"}},
       {{"budget", 5}, {"sinks", 2}, {"window", 1}, {"every", 3}, {"growth", "dynamic"}, {"width", 2}, {"expand", 2}}},
      "",
      {},
      [](const nlohmann::json& o, Host& host) { return chosen_pages_model(snapkv_budget(o), host); }};
}

}  // namespace foretoken
