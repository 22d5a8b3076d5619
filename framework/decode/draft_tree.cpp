#include "framework/decode/draft_tree.h"

#include <algorithm>
#include <utility>

#include "kernels/error.h"

namespace foretoken {

const char* name_of(Drawn d) {
  constexpr const char* kNames[] = {"certain", "chain", "independent", "without_replacement", "marginals", "aside"};
  return kNames[int(d)];
}

DraftTree DraftTree::rooted(Backend& backend, Token root, const Budget& budget) {
  return rooted(backend, root, budget.drafts() ? budget.nodes - 1 : 0);
}

DraftTree DraftTree::rooted(Backend& backend, Token root, int more) {
  const Root one{root, more};
  return std::move(rooted(backend, {&one, 1}).front());
}

std::vector<DraftTree> DraftTree::rooted(Backend& backend, std::span<const Root> roots) {
  std::int64_t all = 0;
  for (const Root& r : roots) all += r.more + 1;
  const Tensor parents = Tensor::host({all}, DType::i32), known = Tensor::host({all}, DType::i32),
               drawn = Tensor::host({all}, DType::u8);
  const bool host = backend.device() == Device{} || all == std::int64_t(roots.size());
  const Tensor tokens = host ? known : backend.allocate({all}, DType::i32);
  std::vector<DraftTree> trees(roots.size());
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    DraftTree& t = trees[i];
    const std::int64_t capacity = roots[i].more + 1;
    t.parents = parents.rows(begin, capacity), t.known = known.rows(begin, capacity),
    t.tokens = tokens.rows(begin, capacity), t.q.drawn = drawn.rows(begin, capacity);
    *t.parents.row<std::int32_t>(0) = -1;
    *t.q.drawn.row<std::uint8_t>(0) = std::uint8_t(Drawn::certain);
    *t.known.row<Token>(0) = roots[i].token;
    begin += capacity;
  }
  return trees;
}

int DraftTree::grow(int parent, Drawn how) {
  if (nodes >= parents.dim(0))
    throw Error("a draft tree with capacity for " + std::to_string(parents.dim(0) - 1) +
                " nodes below its root is given another; make it by DraftTree::rooted with the budget");
  *parents.row<std::int32_t>(nodes) = parent;
  *q.drawn.row<std::uint8_t>(nodes) = std::uint8_t(how);
  if (tokens.raw() != known.raw()) *known.row<Token>(nodes) = kUnread;
  return nodes++;
}

int DraftTree::guess(int parent, Token token, Drawn how) {
  const int n = grow(parent, how);
  *known.row<Token>(n) = token;
  return n;
}
int DraftTree::match(int parent, Token token) const {
  int n = parent + 1;
  while (n < nodes && !(*parents.row<std::int32_t>(n) == parent && *known.row<Token>(n) == token && !aside(n))) ++n;
  return n < nodes ? n : -1;
}

namespace {

// The number of nodes that all arrays of the tree can hold.
std::int64_t capacity_of(const DraftTree& tree) {
  const auto rows = [](const Tensor& t) { return t ? t.dim(0) : std::int64_t(0); };
  return std::min({rows(tree.parents), rows(tree.known), rows(tree.tokens), rows(tree.q.drawn)});
}

void expect_node(const DraftTree& tree, int n, const TreeBounds& bounds, const std::string& who) {
  const std::int32_t parent = tree.parents.data<std::int32_t>()[n];
  if (parent < 0 || parent >= n)
    throw Error(who + " returned a tree whose node " + std::to_string(n) + " has the parent " + std::to_string(parent) +
                "; a parent must come before its children");
  const std::uint8_t way = tree.q.drawn.data<std::uint8_t>()[n];
  if (way > std::uint8_t(Drawn::aside))
    throw Error(who + " returned the node " + std::to_string(n) + ", whose Proposal::drawn is " + std::to_string(way) +
                ", which is no Drawn; add nodes with grow or guess");
  const Drawn drawn = Drawn(way);
  const auto refuse = [&](const char* why) {
    throw Error(who + " returned the node " + std::to_string(n) + ", drawn '" + name_of(drawn) + "', " + why);
  };
  const bool aside = drawn == Drawn::aside;  // no verifier sees it
  if (!aside && parent > 0 && tree.aside(parent))
    refuse("below one drawn 'aside', where it would never be judged; let it be drawn 'aside' too");
  if (!aside && std::ranges::find(bounds.proposes, drawn) == bounds.proposes.end())
    refuse("which its Needs::proposes does not name; name it there, and choose a verifier that takes it");
  if (!aside && std::ranges::find(bounds.takes, drawn) == bounds.takes.end())
    refuse("for which the verifier is not sound; choose a verifier that takes it");
  const Token token = tree.known.data<Token>()[n];
  const bool unread = token == DraftTree::kUnread && tree.tokens.raw() != tree.known.raw();
  if (!unread && (token < -1 || token >= bounds.vocab))
    throw Error(who + (tree.random(n) ? " drew" : " guessed") + " the token " + std::to_string(token) + " at node " +
                std::to_string(n) + ", outside the target's vocabulary of " + std::to_string(bounds.vocab) + "; " +
                (tree.random(n) ? "draw" : "guess") + " a token of it, or -1 for none");
}

}  // namespace

namespace {

// Checks the number of levels, and that nodes drawn `chain` have no siblings.
void expect_shape(const DraftTree& tree, const Budget& budget, const std::string& who) {
  std::vector<int> depth(std::size_t(tree.nodes), 0), children(std::size_t(tree.nodes), 0);
  int deepest = 0;
  for (int n = 1; n < tree.nodes; ++n) {
    const auto parent = std::size_t(*tree.parents.row<std::int32_t>(n));
    depth[std::size_t(n)] = depth[parent] + 1;
    if (depth[std::size_t(n)] > depth[std::size_t(deepest)]) deepest = n;
    ++children[parent];
  }
  if (const int levels = depth[std::size_t(deepest)]; levels > budget.or_root().depth)
    throw Error(who + " returned a tree of " + std::to_string(levels) + " levels below the root, down to node " +
                std::to_string(deepest) + ", for a budget of " + std::to_string(budget.or_root().depth) +
                "; no tree may exceed DraftRequest::budget");
  for (int n = 1; n < tree.nodes; ++n)
    if (Drawn(*tree.q.drawn.row<std::uint8_t>(n)) == Drawn::chain &&
        children[std::size_t(*tree.parents.row<std::int32_t>(n))] > 1)
      throw Error(who + " returned the node " + std::to_string(n) +
                  ", drawn 'chain', with siblings; draw siblings as 'independent', or leave it the one child");
}

}  // namespace

void expect_tree(const DraftTree& tree, const TreeBounds& bounds, const std::string& who) {
  if (tree.nodes < 1 || !tree.known || !tree.parents)
    throw Error(who + " returned a tree without a root; begin every tree with DraftTree::rooted");
  const Token* tokens = tree.known.data<Token>();
  if (tokens[0] != bounds.root)
    throw Error(who + " returned a tree with the root " + std::to_string(tokens[0]) +
                " for a sequence whose last token is " + std::to_string(bounds.root) +
                "; begin it with DraftTree::rooted(backend, r.sequence->last(), r.budget)");
  const int most = bounds.budget.or_root().nodes;
  if (tree.nodes > most)
    throw Error(who + " returned a tree of " + std::to_string(tree.nodes) + " nodes for a budget of " +
                std::to_string(most) + ", the root included; no tree may exceed DraftRequest::budget");
  if (const std::int64_t capacity = capacity_of(tree); tree.nodes > capacity)
    throw Error(who + " returned a tree of " + std::to_string(tree.nodes) + " nodes with capacity for " +
                std::to_string(capacity) +
                "; make it by DraftTree::rooted with the budget, and add nodes with grow or guess");
  for (int n = 1; n < tree.nodes; ++n) expect_node(tree, n, bounds, who);
  expect_shape(tree, bounds.budget, who);
}

void expect_tokens(const DraftTree& tree, int vocab, const std::string& who) {
  std::vector<int> last, before;  // of a node: its last child drawn without replacement; the sibling before it
  for (int n = 1; n < tree.nodes; ++n) {
    const Token token = *tree.known.row<Token>(n);
    if (token < -1 || token >= vocab)
      throw Error(who + " drew a token outside the target's vocabulary of " + std::to_string(vocab) + " at node " +
                  std::to_string(n) + "; draw a token of it, or -1 for none");
    if (token < 0 || Drawn(*tree.q.drawn.row<std::uint8_t>(n)) != Drawn::without_replacement) continue;
    if (last.empty()) last.assign(std::size_t(tree.nodes), -1), before = last;
    int& newest = last[std::size_t(*tree.parents.row<std::int32_t>(n))];
    for (int m = newest; m >= 0; m = before[std::size_t(m)])
      if (*tree.known.row<Token>(m) == token)
        throw Error(who + " drew the token " + std::to_string(token) + " at node " + std::to_string(m) +
                    " and at its sibling, node " + std::to_string(n) +
                    ", which were drawn 'without_replacement'; draw such siblings together (TokenDraw::siblings)");
    before[std::size_t(n)] = std::exchange(newest, n);
  }
}

}  // namespace foretoken
