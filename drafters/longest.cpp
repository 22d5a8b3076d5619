// The longest of several drafters' proposals, for each sequence and round anew; among equals that of the drafter listed
// first. All of them draft in every round. A tree whose levels follow from its own draws would be kept where its first
// tokens are those that made it long, so such a tree counts with the levels that its budget allows (Parts::length).
#include "drafters/drafters.h"
#include "drafters/parts.h"

namespace foretoken {
namespace {

class Longest : public Combination {
 public:
  Longest(Host& host, const nlohmann::json& drafters) : Combination(host, drafters) {}

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> best = parts_.draft(0, requests);
    std::vector<int> length(best.size());
    for (std::size_t i = 0; i < best.size(); ++i) {
      length[i] = parts_.length(0, requests[i], best[i]);
      parts_.returns(requests[i], 0, best[i]);
    }
    for (int k = 1; k < parts_.count(); ++k) {
      std::vector<DraftTree> trees = parts_.draft(k, requests);
      for (std::size_t i = 0; i < trees.size(); ++i) {
        const int found = parts_.length(k, requests[i], trees[i]);
        if (found <= length[i]) continue;
        length[i] = found;
        best[i] = std::move(trees[i]);
        parts_.returns(requests[i], k, best[i]);
      }
    }
    parts_.bare_where_pages_lacked(requests, best);
    return best;
  }
};

}  // namespace

Entry<Drafter> longest() {
  const nlohmann::json lookup{{"name", "ngram"}, {"longest", 2}, {"shortest", 1}}, model{{"name", "draft_model"}},
      tree{{"name", "draft_tree"}, {"shape", {2, 1}}};
  return {.summary = "of several drafters' proposals the longest",
          .source = "",
          .options = {drafters_option("all of them draft in every round")},
          .make = [](const nlohmann::json& o, Host& host) { return std::make_unique<Longest>(host, o.at("drafters")); },
          .traits =
              [](const nlohmann::json& o, const ModelInfo&) {
                expect_parts(o);
                return Needs{};
              },
          .examples = {{{"drafters", {lookup, model}}}, {{"drafters", {tree, model}}}},
          .unite = unite_parts};
}

}  // namespace foretoken
