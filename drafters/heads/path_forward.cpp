#include "drafters/heads/path_forward.h"

#include <algorithm>

namespace foretoken {
namespace {

template <class T> void fill_padded(const Tensor& to, const std::vector<T>& from, T padding) {
  T* const all = to.data<T>();
  std::fill(std::ranges::copy(from, all).out, all + to.elements(), padding);
}

}  // namespace

void PathRows::add_path(const DraftTree& tree, int node) {
  const std::size_t begin = known.size();
  for (int n = node; n >= 0; n = *tree.parents.row<std::int32_t>(n))
    known.push_back(*tree.known.row<Token>(n)), drawn.push_back(tree.drawn_at(n));
  std::reverse(known.begin() + std::ptrdiff_t(begin), known.end());
  std::reverse(drawn.begin() + std::ptrdiff_t(begin), drawn.end());
}

Tensor PathForward::run(const PathRows& rows, std::int64_t width, std::vector<std::int64_t> key,
                        std::int64_t weight_bytes, const Body& body) {
  const Mark begin = backend_.mark();
  const int count = rows.rows(), padded = backend_.padded(count);
  const Shape pieces{std::int64_t(padded) * rows.form.pieces}, tokens{std::int64_t(padded) * rows.path};
  Staging& staging = books_->memory().staging;
  staging.begin(8 * pieces.elements() + 12 * tokens.elements() + 3 * Staging::kAlignment);
  const auto features = staging.array(pieces, DType::u64), at = staging.array(tokens, DType::u64),
             known = staging.array(tokens, DType::i32);
  fill_padded(features.host, rows.features, std::uint64_t(0));
  fill_padded<const Token*>(at.host, rows.drawn, nullptr);
  fill_padded(known.host, rows.known, Token(-1));
  staging.push();
  const Tensor all = free_output(backend_, books_->memory().logits, padded, width, most_), logits = all.rows(0, count);
  const auto whole = [&] {
    const Tensor x = backend_.allocate({pieces.elements(), rows.form.width}, DType::f32);
    backend_.recall(features.device, x, rows.form.dtype);
    const Tensor ids = rows.path > 0 ? backend_.allocate(tokens, DType::i32) : Tensor();
    if (ids) backend_.pick(known.device, at.device, ids, vocab_);
    body(x.reshaped({padded, rows.form.pieces * rows.form.width}), ids, all);
  };
  for (const void* p : {staging.device_address(), static_cast<const void*>(all.raw())})
    key.push_back(std::int64_t(reinterpret_cast<std::uintptr_t>(p)));
  key.insert(key.end(), {padded, width, rows.form.pieces, rows.form.width, int(rows.form.dtype), rows.path});
  if (padded > kMostRecordedRows)
    whole();
  else
    backend_.replay(key, whole, logits);
  books_->add(begin, count, count, weight_bytes);
  return logits;
}

}  // namespace foretoken
