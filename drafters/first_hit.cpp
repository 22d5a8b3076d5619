// Drafters in turn: the proposal of the first one that finds at least `least` tokens. The next one, dearer as a rule,
// is asked for the sequences alone for which those before it found fewer. A lookup before a model so costs the model's
// forwards only where the lookup fails. Where nobody finds enough, it is the longest of all.
#include <algorithm>

#include "drafters/drafters.h"
#include "drafters/parts.h"

namespace foretoken {
namespace {

class FirstHit : public Combination {
 public:
  FirstHit(Host& host, const nlohmann::json& drafters, int least) : Combination(host, drafters), least_(least) {}

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees(requests.size()), found(requests.size());
    std::vector<int> length(requests.size(), -1);
    auto [open, reading] = apart(requests);
    for (int k = 0; k < parts_.count(); ++k) {
      std::vector<int> asked = open;
      std::ranges::copy(reading, std::back_inserter(asked));
      parts_.draft(k, requests, asked, found);
      for (const int i : asked) keep_longer(k, requests[std::size_t(i)], found[std::size_t(i)], i, trees, length);
      std::erase_if(open, [&](int i) {
        return length[std::size_t(i)] >= std::min(least_, requests[std::size_t(i)].budget.chain());
      });
    }
    parts_.bare_where_pages_lacked(requests, trees);
    return trees;
  }

 private:
  void keep_longer(int k, const DraftRequest& r, DraftTree& found, int i, std::span<DraftTree> trees,
                   std::span<int> length) {
    const int now = parts_.length(k, r, found);
    if (now <= length[std::size_t(i)]) return;
    length[std::size_t(i)] = now;
    trees[std::size_t(i)] = std::move(found);
    parts_.returns(r, k, trees[std::size_t(i)]);
  }

  int least_;
};

}  // namespace

Entry<Drafter> first_hit() {
  const nlohmann::json lookup{{"name", "ngram"}, {"longest", 2}, {"shortest", 1}}, model{{"name", "draft_model"}},
      tree{{"name", "draft_tree"}, {"shape", {2, 1}}};
  return {
      .summary = "lookups first: each drafter only where those before it found too little",
      .source = "",
      .options = {drafters_option("each is asked where those before it proposed fewer than 'least' tokens"),
                  {"least", "integer", 1, "levels below the root that are enough", false, 1, kMaxPath}},
      .make = [](const nlohmann::json& o,
                 Host& host) { return std::make_unique<FirstHit>(host, o.at("drafters"), o.at("least").get<int>()); },
      .traits =
          [](const nlohmann::json& o, const ModelInfo&) {
            expect_parts(o);
            return Needs{};
          },
      .examples = {{{"drafters", {lookup, model}}}, {{"drafters", {lookup, tree}}, {"least", 2}}},
      .unite = unite_parts};
}

}  // namespace foretoken
