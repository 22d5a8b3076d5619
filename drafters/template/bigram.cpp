// A drafter to copy: a bigram table of what this sequence has said so far. Each guess is the most frequent follower of
// the token before it (the latest of equals), so a draft is a walk through the table: no model, no draw. Adaptive
// n-gram drafting: Ou et al. 2024 (arXiv 2404.08698).
#include <unordered_map>

#include "framework/components/host.h"
#include "framework/components/plugin.h"

namespace foretoken {
namespace {

// What followed each token of one sequence.
struct Table {
  int seen = 1;  // tokens read, of which the first follows nothing
  std::unordered_map<Token, std::unordered_map<Token, int>> counts;
  std::unordered_map<Token, Token> best;

  void learn(const std::vector<Token>& tokens) {
    for (; seen < int(tokens.size()); ++seen) {
      const Token before = tokens[seen - 1], now = tokens[seen];
      auto& followers = counts[before];
      if (++followers[now] >= followers[best.emplace(before, now).first->second]) best[before] = now;
    }
  }
};

class Bigram : public Drafter {
 public:
  explicit Bigram(Backend& backend) : backend_(backend) {}
  Needs needs() const override { return {.proposes = {Drawn::certain}, .learns = false}; }

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees;
    for (const DraftRequest& r : requests) {
      Table& table = tables_[r.sequence->id];
      table.learn(r.sequence->tokens);
      DraftTree tree = DraftTree::rooted(backend_, r.sequence->last(), r.budget);
      for (auto next = table.best.find(r.sequence->last()); tree.nodes <= r.budget && next != table.best.end();
           next = table.best.find(next->second))
        tree.guess(tree.nodes - 1, next->second);
      trees.push_back(std::move(tree));
    }
    return trees;
  }
  void forget(const Sequence& sequence) override { tables_.erase(sequence.id); }

 private:
  Backend& backend_;
  std::unordered_map<SequenceId, Table> tables_;
};

}  // namespace

Entry<Drafter> bigram() {
  return {"the most frequent follower of each token", "arXiv 2404.08698", {}, [](const nlohmann::json&, Host& host) {
            return std::make_unique<Bigram>(host.backend());
          }};
}
}  // namespace foretoken

extern "C" const char* foretoken_abi() { return foretoken::kAbi; }
extern "C" void foretoken_plugin(foretoken::Registries& registries) {
  registries.drafters.add("bigram", foretoken::bigram());
}
