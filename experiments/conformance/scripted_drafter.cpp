#include <algorithm>

#include "experiments/conformance/components.h"

namespace foretoken::conformance {
namespace {

using nlohmann::json;

class RandomTree : public Drafter {
 public:
  RandomTree(Host& host, const json& o)
      : backend_(host.backend()),
        own_({.vocab = host.target().vocab, .order = 2, .seed = 900, .spread = 1.5}),
        seed_(o.at("seed").get<std::uint64_t>()),
        kinds_(o.at("kinds").get<std::string>()),
        peeks_(o.at("peeks").get<bool>()) {}

  static std::vector<Drawn> proposes(const std::string& kinds) {
    if (kinds == "certain") return {Drawn::certain};
    if (kinds == "mixed") return {Drawn::certain, Drawn::independent};
    return {drawn(kinds)};
  }

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees;
    for (const auto& r : requests) trees.push_back(grow(r));
    return trees;
  }

 private:
  // How nodes are drawn that are no guesses.
  static Drawn drawn(const std::string& kinds) {
    for (const Drawn d : {Drawn::chain, Drawn::without_replacement, Drawn::marginals})
      if (kinds == name_of(d)) return d;
    return Drawn::independent;
  }
  Drawn drawn() const { return drawn(kinds_); }

  // A random choice of the shape, never of a token.
  int choose(int ways, const DraftRequest& r, int node, int what) const {
    const Draws shape{seed_, 0, std::uint32_t(r.sequence->length()), 0};
    return int(shape.uniform({Role::draft, std::uint32_t(node), std::uint32_t(what)}) * ways);
  }

  DraftTree grow(const DraftRequest& r) {
    DraftTree tree = DraftTree::rooted(backend_, r.sequence->last(), r.budget);
    std::vector<Tokens> paths{r.sequence->tokens};
    tree.q.distributions.resize(std::size_t(r.budget.nodes));
    if (drawn() == Drawn::without_replacement) return with_families(r, std::move(tree), std::move(paths));
    for (int step = 1; step < r.budget.nodes; ++step) {
      int parent = drawn() == Drawn::chain ? tree.nodes - 1 : choose(tree.nodes, r, step, 0);
      if (drawn() == Drawn::chain && step > r.budget.depth) break;
      while (int(paths[std::size_t(parent)].size()) - r.sequence->length() >= r.budget.depth)
        parent = *tree.parents.row<std::int32_t>(parent);
      Tokens path = paths[std::size_t(parent)];
      if (choose(8, r, step, 1) == 0)
        grow_absent(r, tree, parent, path);
      else if (kinds_ == "certain" || (kinds_ == "mixed" && choose(2, r, step, 2) == 0)) {
        path.push_back(choose(own_.info().vocab, r, step, 3));
        tree.guess(parent, path.back());
      } else if (!draw(r, tree, parent, path)) {
        continue;
      }
      paths.push_back(path);
    }
    return tree;
  }

  // A node without a token, of a kind that is proposed.
  void grow_absent(const DraftRequest& r, DraftTree& tree, int parent, Tokens& path) {
    if (kinds_ == "certain" || kinds_ == "mixed") {
      tree.guess(parent, -1);
    } else {
      (void)distribution_after(r, tree, parent, path);
      *tree.tokens.row<Token>(tree.nodes) = -1;
      tree.grow(parent, drawn());
    }
    path.push_back(-1);
  }

  // Two or three siblings below a node that has no children yet, as many as there is room for, until there is none.
  DraftTree with_families(const DraftRequest& r, DraftTree tree, std::vector<Tokens> paths) {
    for (int parent = 0; parent < tree.nodes && tree.nodes < r.budget.nodes; ++parent) {
      const Tokens path = paths[std::size_t(parent)];
      const int depth = int(path.size()) - r.sequence->length() + 1,
                siblings = std::min(2 + choose(2, r, parent, 0), r.budget.nodes - tree.nodes);
      if (depth > r.budget.depth || (parent > 0 && parent + 1 < tree.nodes && choose(3, r, parent, 1) == 0)) continue;
      TokenDraw family = r.draw(tree.nodes, depth);
      family.siblings = std::uint8_t(siblings), family.to = tree.tokens.row<Token>(tree.nodes);
      backend_.draw(distribution_after(r, tree, parent, path), {&family, 1}, {});
      for (int i = 0; i < siblings; ++i) {
        paths.push_back(path);
        paths.back().push_back(*tree.tokens.row<Token>(tree.nodes));
        tree.grow(parent, Drawn::without_replacement);
      }
    }
    return tree;
  }

  // The law after a node, as the tree's proposal keeps it. Marginals see that there are tokens before it, not which.
  const Distributions& distribution_after(const DraftRequest& r, DraftTree& tree, int node, Tokens path) {
    Distributions& q = tree.q.distributions[std::size_t(node)];
    if (q) return q;
    if (drawn() == Drawn::marginals) std::fill(path.begin() + r.sequence->length(), path.end(), -1);
    const Warp warp = r.sequence->sampling.warp();
    const Tensor logits = Tensor::host_copy(own_.logits(path), DType::f32).reshaped({1, own_.info().vocab});
    return q = backend_.distributions(backend_.upload(logits), {&warp, 1});
  }

  bool draw(const DraftRequest& r, DraftTree& tree, int parent, Tokens& path) {
    const int depth = int(path.size()) - r.sequence->length() + 1;
    const Distributions& q = distribution_after(r, tree, parent, path);
    const TokenDraw one = r.draw(tree.nodes, depth);
    backend_.draw(kinds_ == "repeatless" ? without_siblings(r, tree, parent, path) : q, {&one, 1},
                  tree.tokens.rows(tree.nodes, 1));
    path.push_back(*tree.tokens.row<Token>(tree.nodes));
    if (peeks_ && q[0](path.back()) < 0.4) return false;
    tree.grow(parent, drawn());
    return true;
  }

  // The distribution after `path` without the tokens of the children that `parent` already has; unchanged if nothing
  // would be left.
  Distributions without_siblings(const DraftRequest& r, const DraftTree& tree, int parent, const Tokens& path) {
    const Warp warp = r.sequence->sampling.warp();
    std::vector<float> logits(own_.logits(path).begin(), own_.logits(path).end());
    for (int n = 1; n < tree.nodes; ++n)
      if (*tree.parents.row<std::int32_t>(n) == parent && *tree.tokens.row<Token>(n) >= 0)
        logits[std::size_t(*tree.tokens.row<Token>(n))] = -1e4f;
    return backend_.distributions(Tensor::host_copy<float>(logits, DType::f32).reshaped({1, own_.info().vocab}),
                                  {&warp, 1});
  }

  Backend& backend_;
  TableModel own_;
  std::uint64_t seed_;
  std::string kinds_;
  bool peeks_;
};

}  // namespace

Registries with_scripted(Registries registries) {
  registries.drafters.add(
      "random_tree",
      {"a tree of random shape",
       "",
       {{"seed", "integer", 1, "of the shape"},
        {"kinds", "string", "mixed", "of nodes"},
        {"peeks", "boolean", false, "removes nodes by their own q"}},
       [](const json& o, Host& host) { return std::make_unique<RandomTree>(host, o); },
       [](const json& o, const ModelInfo&) { return Needs{.proposes = RandomTree::proposes(o.at("kinds"))}; }});
  return registries;
}

json random_tree(int seed, const std::string& kinds, bool peeks) {
  return {{"name", "random_tree"}, {"seed", seed}, {"kinds", kinds}, {"peeks", peeks}};
}

}  // namespace foretoken::conformance
