#include "framework/decode/draft_tree.h"

namespace foretoken {

const char* name_of(Drawn d) {
  constexpr const char* kNames[] = {"certain", "chain", "independent", "without_replacement", "marginals"};
  return kNames[int(d)];
}

DraftTree DraftTree::rooted(Backend& backend, Token root, int more) {
  DraftTree t;
  t.parents = Tensor::host({more + 1}, DType::i32);
  t.q.drawn = Tensor::host({more + 1}, DType::u8);
  t.tokens = backend.allocate({more + 1}, DType::i32);
  t.parents.data<std::int32_t>()[0] = -1;
  t.q.drawn.data<std::uint8_t>()[0] = std::uint8_t(Drawn::certain);
  backend.copy(Tensor::host_copy<Token>({&root, 1}, DType::i32), t.tokens.rows(0, 1));
  return t;
}

int DraftTree::grow(int parent, Drawn how) {
  assert(parent >= 0 && parent < nodes && nodes < parents.dim(0));
  parents.data<std::int32_t>()[nodes] = parent;
  q.drawn.data<std::uint8_t>()[nodes] = std::uint8_t(how);
  return nodes++;
}

int DraftTree::guess(Backend& backend, int parent, Token token) {
  const int n = grow(parent, Drawn::certain);
  backend.copy(Tensor::host_copy<Token>({&token, 1}, DType::i32), tokens.rows(n, 1));
  return n;
}

}  // namespace foretoken
