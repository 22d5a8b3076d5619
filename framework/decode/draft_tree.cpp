#include "framework/decode/draft_tree.h"

#include <algorithm>

#include "kernels/error.h"

namespace foretoken {

const char* name_of(Drawn d) {
  constexpr const char* kNames[] = {"certain", "chain", "independent", "without_replacement", "marginals"};
  return kNames[int(d)];
}

DraftTree DraftTree::rooted(Backend& backend, Token root, int more) {
  DraftTree t;
  t.parents = Tensor::host({more + 1}, DType::i32);
  t.q.drawn = Tensor::host({more + 1}, DType::u8);
  t.known = Tensor::host({more + 1}, DType::i32);
  t.tokens = backend.device() == Device{} ? t.known : backend.allocate({more + 1}, DType::i32);
  *t.parents.row<std::int32_t>(0) = -1;
  *t.q.drawn.row<std::uint8_t>(0) = std::uint8_t(Drawn::certain);
  *t.known.row<Token>(0) = root;
  return t;
}

int DraftTree::grow(int parent, Drawn how) {
  assert(parent >= 0 && parent < nodes && nodes < parents.dim(0));
  *parents.row<std::int32_t>(nodes) = parent;
  *q.drawn.row<std::uint8_t>(nodes) = std::uint8_t(how);
  if (tokens.raw() != known.raw()) *known.row<Token>(nodes) = kUnread;
  return nodes++;
}

int DraftTree::guess(int parent, Token token) {
  const int n = grow(parent, Drawn::certain);
  *known.row<Token>(n) = token;
  return n;
}

void expect_tree(const DraftTree& tree, int budget, std::span<const Drawn> takes, const std::string& who) {
  if (tree.nodes < 1) throw Error(who + " returned a tree without a root; begin every tree with DraftTree::rooted");
  if (tree.nodes - 1 > budget)
    throw Error(who + " returned " + std::to_string(tree.nodes - 1) + " nodes below the root for a budget of " + std::to_string(budget) + "; no tree may exceed DraftRequest::budget");
  for (int n = 1; n < tree.nodes; ++n) {
    const std::int32_t parent = tree.parents.data<std::int32_t>()[n];
    if (parent < 0 || parent >= n)
      throw Error(who + " returned a tree whose node " + std::to_string(n) + " has the parent " + std::to_string(parent) + "; a parent must come before its children");
    const Drawn drawn = Drawn(tree.q.drawn.data<std::uint8_t>()[n]);
    if (std::ranges::find(takes, drawn) == takes.end())
      throw Error(who + " returned a node drawn '" + name_of(drawn) + "', for which the verifier is not sound; name it in Needs::proposes, and choose a verifier that takes it");
  }
}

}  // namespace foretoken
