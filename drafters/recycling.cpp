// Token Recycling (Luo et al. 2024, arXiv 2408.08696): remembers for each token the k most probable tokens that the
// target named after it when it was last fed, in accepted and in rejected guesses, and guesses these again: a tree
// whose node of rank r below a token is the r-th of them. A row is 4 k bytes; there are as many as tokens that were
// fed, at most the vocabulary. It has no model and draws nothing: every guess is certain. A node costs a lookup when it
// is guessed, and one when its ranks come.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "drafters/drafters.h"
#include "drafters/shared_index.h"
#include "drafters/tree_shape.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr int kMostRanks = 16;

// The best tokens behind tokens.
class Adjacency {
 public:
  explicit Adjacency(int ranks) : ranks_(ranks) {}
  void set(Token token, const Token* best) {
    if (std::size_t(token) >= rows_.size()) rows_.resize(std::size_t(token) + 1, -1);
    int& row = rows_[std::size_t(token)];
    if (row < 0) row = int(size()), best_.resize(best_.size() + std::size_t(ranks_));
    std::copy_n(best, ranks_, best_.begin() + std::ptrdiff_t(row) * ranks_);
  }
  // [ranks], the most probable first, -1 behind the last; null where the token was never fed.
  const Token* behind(Token token) const {
    const int row = std::size_t(token) < rows_.size() ? rows_[std::size_t(token)] : -1;
    return row < 0 ? nullptr : best_.data() + std::ptrdiff_t(row) * ranks_;
  }
  std::size_t size() const { return best_.size() / std::size_t(ranks_); }

 private:
  int ranks_;
  std::vector<int> rows_;  // by token, up to the greatest that was fed; -1: none
  std::vector<Token> best_;
};

// A tree of a shape, or of the paths of the greatest product of weights: the token of rank r is taken to be right
// (r + 1)^-1.5 as often as the first, which is taken to be right in half of all cases. It has more nodes than a budget,
// in the order in which they are guessed, since some have no token: parents and better siblings come before.
class Order {
 public:
  Order(const nlohmann::json& shape, int ranks, int depth) {
    if (shape.is_null())
      grow(ranks, depth);
    else
      std::ranges::copy_if(TreeShape::read(shape).nodes(), std::back_inserter(nodes_),
                           [&](const TreeShape::Node& n) { return n.depth <= depth; });
  }
  const std::vector<TreeShape::Node>& nodes() const { return nodes_; }

 private:
  struct Open {
    double weight;
    TreeShape::Node node;
    bool operator<(const Open& o) const { return weight < o.weight; }
  };

  void grow(int ranks, int depth) {
    std::vector<Open> open{{1, {}}};
    std::vector<double> weights;
    const auto add = [&](int parent, int rank, int level) {
      if (rank == ranks || level > depth) return;
      open.push_back({weights[std::size_t(parent)] * 0.5 * std::pow(rank + 1, -1.5), {parent, rank, level}});
      std::push_heap(open.begin(), open.end());
    };
    while (int(nodes_.size()) < 2 * kMaxNodes && !open.empty()) {
      std::pop_heap(open.begin(), open.end());
      const Open best = open.back();
      open.pop_back();
      nodes_.push_back(best.node), weights.push_back(best.weight);
      if (best.node.parent >= 0) add(best.node.parent, best.node.rank + 1, best.node.depth);
      add(int(nodes_.size()) - 1, 0, best.node.depth + 1);
    }
  }

  std::vector<TreeShape::Node> nodes_;
};

class Recycling : public Drafter {
 public:
  // `shared`: whether requests have one; else each has its own.
  Recycling(Backend& backend, int ranks, nlohmann::json shape, bool shared)
      : backend_(backend), ranks_(ranks), shape_(std::move(shape)), all_(ranks), shared_(shared) {}

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i) grow(trees[i], requests[i], of(*requests[i].sequence));
    return trees;
  }

  void observe(std::span<const Outcome> outcomes) override {
    for (const Outcome& o : outcomes) {
      Adjacency& to = of(*o.sequence);
      for (int n = 0; n < o.tree->nodes; ++n)
        if (const Token token = *o.tree->known.row<Token>(n); token >= 0) to.set(token, o.ranks.row<Token>(n));
    }
  }

  void forget(const Sequence& sequence) override {
    if (!sequence.running()) own_.erase(sequence.id);  // it takes no pages
  }

 private:
  Adjacency& of(const Sequence& s) { return shared_ ? all_ : own_.try_emplace(s.id, ranks_).first->second; }

  void grow(DraftTree& tree, const DraftRequest& request, const Adjacency& adjacency) {
    const Budget& budget = request.budget;
    if (!budget.drafts()) return;
    const auto& order = orders_.try_emplace(budget.depth, shape_, ranks_, budget.depth).first->second.nodes();
    placed_.resize(std::max(placed_.size(), order.size()));
    placed_[0] = {0, adjacency.behind(request.sequence->last())};
    for (std::size_t i = 1; i < order.size() && tree.nodes < budget.nodes; ++i) {
      const Placed& parent = placed_[std::size_t(order[i].parent)];
      const Token token = parent.behind ? parent.behind[order[i].rank] : -1;
      placed_[i] = token < 0 ? Placed() : Placed{tree.guess(parent.node, token), adjacency.behind(token)};
    }
  }

  Backend& backend_;
  int ranks_;
  nlohmann::json shape_;
  std::map<int, Order> orders_;  // by the depth of the budget
  Adjacency all_;
  bool shared_;
  std::unordered_map<SequenceId, Adjacency> own_;
  struct Placed {
    int node = 0;
    const Token* behind = nullptr;  // null: it is not in the tree, or nothing is known behind it
  };
  std::vector<Placed> placed_;  // of one tree, by place in the order
};

void expect_ranks(const nlohmann::json& shape, int ranks) {
  if (shape.is_null()) return;
  const TreeShape whole = TreeShape::read(shape);
  for (const TreeShape::Node& n : whole.nodes())
    if (n.rank >= ranks)
      throw Error("'shape' of the drafter 'recycling' has nodes of rank " + std::to_string(n.rank) +
                  " (counted from 0), but 'k' is " + std::to_string(ranks) + "; raise 'k', or cut the shape");
}

}  // namespace

Entry<Drafter> recycling() {
  return {
      "what the target found most probable when it last read each token, as a tree: Token Recycling",
      "arXiv 2408.08696",
      {{"k", "integer", 8, "tokens that are remembered behind each token, 1 to 16", false, 1, kMostRanks},
       {"index", "string", "shared", "who remembers them: request (each its own) or shared (all of the engine)"},
       {"shape", "list or name", nullptr,
        "of the tree, as draft_tree has it; recycling_80 is the paper's; null: grown under the budget by rank", true}},
      [](const nlohmann::json& o, Host& host) {
        const int ranks = o.at("k").get<int>();
        expect_ranks(o.at("shape"), ranks);
        return std::make_unique<Recycling>(host.backend(), ranks, o.at("shape"), shares_index(o, "recycling"));
      },
      [](const nlohmann::json& o, const ModelInfo&) {
        return Needs{.proposes = {Drawn::certain}, .learns = true, .ranks = o.at("k").get<int>(), .any_tree = true};
      },
      {{{"k", 3}, {"index", "request"}}, {{"k", 2}, {"shape", {2, 2, 1}}}}};
}

}  // namespace foretoken
