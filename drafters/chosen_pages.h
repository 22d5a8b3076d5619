// Drafters whose model is the target on those pages of its own cache that got the most attention: what they share. They
// choose whole pages (of 16 rows, as the engine has them; SnapKV and H2O choose single rows), and one set of pages for
// all layers and heads, by the sum of their mass. A choice depends on the tokens of its sequence alone, so it can be
// made again at any time. This module must not know other drafters.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "drafters/target_part.h"

namespace foretoken {

// Of each sequence, in positions; pages that have any of them are read as a whole. What is newer than the choice is
// read besides, so up to `every` positions and a page more than the budget.
struct PageBudget {
  int budget = 0;            // all that is chosen, sinks and window among them
  int sinks = 0;             // the first positions, always chosen
  int window = 0;            // the last positions before the choice, always chosen
  int observed = 0;          // the last tokens of the prompt whose queries count, or the last ones before each choice
  int every = 0;             // generated tokens between two choices, the first of which is behind the prompt
  bool accumulates = false;  // queries of all tokens from those of the prompt on count, not only the last ones
};

// The options "budget", "window", "every", and those that `more` adds, beside those of growth.
std::vector<Option> with_page_options(std::vector<Option> more);
// An Error that names `drafter` where the budget is below sinks and window.
PageBudget checked(const PageBudget& budget, const std::string& drafter);

Needs chosen_pages_needs(const nlohmann::json& options, const std::string& drafter, const ModelInfo& target);
OwnModel chosen_pages_model(const PageBudget& budget, Host& host);
std::unique_ptr<Drafter> chosen_pages_drafter(const nlohmann::json& options, const std::string& drafter,
                                              const PageBudget& budget, Host& host);

}  // namespace foretoken
