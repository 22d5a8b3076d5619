// Feeds tokens to a model as one chain in its own pages, and measures how far logits are from golden ones.
#pragma once
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "framework/model/transformer.h"

namespace foretoken::test {

constexpr int kPageRows = 16;

inline Tensor ints(const std::vector<std::int32_t>& values) {
  return Tensor::host_copy<std::int32_t>(values, DType::i32);
}

inline bool same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), std::size_t(a.bytes())) == 0;
}

// One sequence in its own pages, fed as a chain in chunks.
class Chain {
 public:
  Chain(Backend& backend, Model& model, int most_rows) : backend_(backend), model_(model) {
    const KvShape& shape = model.info().kv;
    pages_ = (most_rows + kPageRows - 1) / kPageRows;
    const Tensor pool = Tensor::host({pages_, shape.page_bytes(kPageRows)}, DType::u8);
    std::memset(pool.raw(), 0xff, std::size_t(pool.bytes()));  // NaN, so that a read of an unwritten slot shows
    kv_ = shape.in_pages(backend.upload(pool), kPageRows);
  }

  // Logits of the `last` tokens, or of all, on the host: f32 [last, vocab].
  Tensor feed(std::span<const Token> tokens, int last = -1) {
    const int n = int(tokens.size());
    std::vector<std::int32_t> at, visible, first, table, wanted;
    for (int i = 0; i < n; ++i) {
      at.push_back(fed_ + i);
      visible.push_back(fed_ + i + 1);
      if (last < 0 || i >= n - last) wanted.push_back(i);
    }
    for (int page = 0; page < pages_; ++page) table.push_back(pages_ - 1 - page);  // any order of pages
    fed_ += n;
    Rows rows;
    rows.tokens = Tensor::host_copy<Token>(tokens, DType::i32);
    rows.wanted = ints(wanted);
    Layout& l = rows.layout;
    l.rows = l.longest = n, l.sequences = 1, l.table_width = pages_, l.deepest = fed_;
    l.positions = ints(at), l.slots = ints(at), l.visible = ints(visible);
    if (const int window = model_.info().kv.window(model_.info().name)) {
      for (int i = 0; i < n; ++i) first.push_back(std::max(0, at[std::size_t(i)] + 1 - window));
      l.first = ints(first);
    }
    l.owner = ints(std::vector<std::int32_t>(n, 0)), l.begins = ints({0, n});
    l.tables = ints(table).reshaped({1, pages_});
    for (Tensor* t :
         {&rows.tokens, &rows.wanted, &l.positions, &l.slots, &l.visible, &l.first, &l.owner, &l.begins, &l.tables})
      if (*t) *t = backend_.upload(*t);
    const Tensor logits = model_.forward(backend_, rows, kv_).logits, host = Tensor::host(logits.shape(), DType::f32);
    backend_.copy(logits, host);
    return host;
  }

 private:
  Backend& backend_;
  Model& model_;
  std::vector<KvLayer> kv_;
  int pages_ = 0, fed_ = 0;
};

// max |a - b| / max |b|; infinite where a value is NaN.
inline double relative_error(std::span<const float> a, std::span<const float> b) {
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (!std::isfinite(a[i])) return INFINITY;
    worst = std::max(worst, std::abs(double(a[i]) - double(b[i])));
    scale = std::max(scale, std::abs(double(b[i])));
  }
  return worst / scale;
}

}  // namespace foretoken::test
