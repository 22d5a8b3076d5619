// A tree drafter to copy: below each token its latest followers in this sequence, the latest first. Every node is a
// guess (Drawn::certain), so the tree may have any shape. Nodes are added best first, by the sum of their ranks from
// the root down, until the budget's nodes or levels are used up. Trees of the followers of each token: Luo et al. 2024
// (Token Recycling, arXiv 2408.08696), which takes them from the target's distributions.
#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_map>

#include <foretoken/plugin.h>

namespace foretoken {
namespace {

// What followed each token of one sequence, the latest first, each once.
struct Table {
  int seen = 1;  // tokens read, of which the first follows nothing
  std::unordered_map<Token, std::vector<Token>> followers;

  void learn(const std::vector<Token>& tokens, int width) {
    for (; seen < int(tokens.size()); ++seen) {
      std::vector<Token>& known = followers[tokens[seen - 1]];
      std::erase(known, tokens[seen]);
      known.insert(known.begin(), tokens[seen]);
      if (int(known.size()) > width) known.pop_back();
    }
  }
};

// A node that could come next: the follower of this rank of the token of `parent`.
struct Candidate {
  int cost, parent, rank, depth;
  Token token;
  bool operator<(const Candidate& o) const { return std::tie(cost, parent) > std::tie(o.cost, o.parent); }
};

class Followers : public Drafter {
 public:
  Followers(Backend& backend, int width) : backend_(backend), width_(width) {}

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      Table& table = tables_[requests[i].sequence->id];
      table.learn(requests[i].sequence->tokens, width_);
      grow(trees[i], requests[i].sequence->last(), requests[i].budget, table);
    }
    return trees;
  }
  void forget(const Sequence& sequence) override { tables_.erase(sequence.id); }

 private:
  static void grow(DraftTree& tree, Token root, const Budget& budget, const Table& table) {
    std::priority_queue<Candidate> open;
    const auto expand = [&](int node, Token token, int cost, int depth) {
      const auto found = table.followers.find(token);
      for (int rank = 0; found != table.followers.end() && rank < int(found->second.size()); ++rank)
        open.push({cost + rank + 1, node, rank, depth, found->second[std::size_t(rank)]});
    };
    if (budget.drafts()) expand(0, root, 0, 1);
    while (tree.nodes < budget.nodes && !open.empty()) {
      const Candidate best = open.top();
      open.pop();
      const int node = tree.guess(best.parent, best.token);
      if (best.depth < budget.depth) expand(node, best.token, best.cost, best.depth + 1);
    }
  }

  Backend& backend_;
  int width_;
  std::unordered_map<SequenceId, Table> tables_;
};

}  // namespace

Entry<Drafter> followers() {
  return {"a tree of the latest followers of each token",
          "arXiv 2408.08696",
          {{"width", "integer", 4, "the most followers of a token, 1 to 32", false, 1, 32}},
          [](const nlohmann::json& o, Host& host) {
            return std::make_unique<Followers>(host.backend(), o.at("width").get<int>());
          },
          [](const nlohmann::json&, const ModelInfo&) { return Needs{.proposes = {Drawn::certain}}; }};
}

}  // namespace foretoken

extern "C" const char* foretoken_abi() { return foretoken::kAbi; }
extern "C" void foretoken_plugin(foretoken::Registries& registries) {
  registries.drafters.add("followers", foretoken::followers());
}
