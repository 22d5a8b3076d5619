#include "framework/cache/cached_model.h"

#include <algorithm>
#include <chrono>

namespace foretoken {
namespace {

int rows_in(const Segment& s) { return s.chain + (s.tree ? s.tree->nodes - s.begin : 0); }

}  // namespace

CachedModel::CachedModel(Backend& backend, std::shared_ptr<Model> model, PagePool& pool, bool reuse_prefixes)
    : backend_(backend), model_(std::move(model)), cache_(backend, pool, model_->info().kv, reuse_prefixes) {}

std::span<const Token> CachedModel::unseen(const Sequence& sequence) {
  return std::span<const Token>(sequence.tokens).subspan(std::size_t(cache_.settle(sequence)));
}

Output CachedModel::run(std::span<const Segment> segments) {
  const auto start = std::chrono::steady_clock::now();
  Rows rows;
  Output out;
  try {
    rows = rows_of(segments);
    out = model_->forward(backend_, rows, cache_.layers());
  } catch (...) {  // whoever catches it and goes on must not find rows that were never written
    for (const Segment& s : segments) cache_.retract(s.sequence->id);
    throw;
  }
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ++forwards_;
  rows_ += std::uint64_t(rows.layout.rows);
  return out;
}

Rows CachedModel::rows_of(std::span<const Segment> segments) {
  int rows = 0;
  for (const Segment& s : segments) rows += rows_in(s);
  Rows out;
  out.tokens = backend_.allocate({rows}, DType::i32);
  std::vector<int> first(segments.size());  // pending number of each segment's first row
  std::vector<std::int32_t> wanted;
  int row = 0;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    const SequenceId id = s.sequence->id;
    int previous = -1;
    if (s.chain > 0) {
      const std::span<const Token> all(s.sequence->tokens);
      const Tensor chain = Tensor::host_copy(all.subspan(std::size_t(cache_.confirmed(id)), std::size_t(s.chain)), DType::i32);
      backend_.copy(chain, out.tokens.rows(row, s.chain));
      for (int k = 0; k < s.chain; ++k) {
        previous = cache_.append(id, previous, chain, k);
        if (k == 0) first[i] = previous;
      }
      row += s.chain;
    }
    if (!s.tree) continue;
    const int nodes = s.tree->nodes - s.begin;
    backend_.copy(s.tree->tokens.rows(s.begin, nodes), out.tokens.rows(row, nodes));
    for (int n = s.begin; n < s.tree->nodes; ++n) {
      const int parent = n == 0 ? previous : root_row_.at(id) + s.tree->parents.row<std::int32_t>(0)[n];
      const int at = cache_.append(id, parent, s.tree->tokens, n);
      if (n == 0) root_row_[id] = at;
      if (n == s.begin && s.chain == 0) first[i] = at;
      wanted.push_back(row++);
    }
  }
  out.layout = layout_of(segments, first, rows);
  if (!wanted.empty()) out.wanted = backend_.upload(Tensor::host_copy<std::int32_t>(wanted, DType::i32));
  return out;
}

Layout CachedModel::layout_of(std::span<const Segment> segments, std::span<const int> first, int rows) {
  Layout l;
  l.rows = rows, l.sequences = int(segments.size());
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const SequenceId id = segments[i].sequence->id;
    l.table_width = std::max(l.table_width, int(cache_.table(id).size()));
    for (int k = 0; k < rows_in(segments[i]); ++k) l.words = std::max(l.words, cache_.words_needed(id, first[i] + k));
  }
  const auto column = [&](int n) { return Tensor::host({n}, DType::i32); };
  l.positions = column(rows), l.slots = column(rows), l.owner = column(rows), l.visible = column(rows);
  l.tables = Tensor::host({l.sequences, l.table_width}, DType::i32);
  if (l.words > 0) {
    l.ancestors = Tensor::host({rows, l.words}, DType::u64);
    std::fill_n(l.ancestors.data<std::uint64_t>(), rows * l.words, 0);
  }
  int row = 0;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const SequenceId id = segments[i].sequence->id;
    std::ranges::copy(cache_.table(id), l.tables.row<std::int32_t>(std::int64_t(i)));
    for (int k = 0; k < rows_in(segments[i]); ++k, ++row) {
      const auto place = cache_.place(id, first[i] + k);
      l.slots.data<std::int32_t>()[row] = place.slot;
      l.positions.data<std::int32_t>()[row] = place.position;
      l.visible.data<std::int32_t>()[row] = place.visible;
      l.owner.data<std::int32_t>()[row] = std::int32_t(i);
      l.deepest = std::max(l.deepest, place.slot + 1);
      if (l.words > 0) cache_.ancestors(id, first[i] + k, {l.ancestors.row<std::uint64_t>(row), std::size_t(l.words)});
    }
  }
  for (Tensor* t : {&l.positions, &l.slots, &l.owner, &l.visible, &l.tables}) *t = backend_.upload(*t);
  if (l.ancestors) l.ancestors = backend_.upload(l.ancestors);
  return l;
}

}  // namespace foretoken
