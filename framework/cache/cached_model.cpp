#include "framework/cache/cached_model.h"

#include <algorithm>
#include <atomic>

namespace foretoken {
namespace {

std::atomic<std::uint64_t> next_serial{0};

int rows_in(const Segment& s) { return s.chain + (s.tree ? s.tree->nodes - s.begin : 0); }

}  // namespace

CachedModel::CachedModel(Backend& backend, std::shared_ptr<Model> model, PagePool& pool, bool reuse_prefixes)
    : backend_(backend), model_(std::move(model)), cache_(backend, pool, model_->info().kv, reuse_prefixes), trash_(pool.trash()), serial_(next_serial++), staging_(backend) {}

std::span<const Token> CachedModel::unseen(const Sequence& sequence) {
  return std::span<const Token>(sequence.tokens).subspan(std::size_t(cache_.settle(sequence)));
}

Output CachedModel::run(std::span<const Segment> segments) {
  const Mark start = backend_.mark();
  Output out;
  try {
    feed(segments);
    const Extent e = extent(segments);
    out = forward(stage(segments, e), e);
  } catch (...) {  // whoever catches it and goes on must not find rows that were never written
    for (const Segment& s : segments) cache_.retract(s.sequence->id);
    throw;
  }
  spans_.emplace_back(start, backend_.mark());
  ++forwards_;
  rows_ += fed_.size();
  return out;
}

double CachedModel::seconds() {
  for (const auto& [from, to] : spans_) seconds_ += backend_.seconds(from, to);
  spans_.clear();
  return seconds_;
}

// Appends the rows to the cache, as pending ones.
void CachedModel::feed(std::span<const Segment> segments) {
  fed_.clear(), wanted_.clear(), segments_ = int(segments.size());
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    const SequenceId id = s.sequence->id;
    int previous = -1;
    if (s.chain > 0) {
      const std::span<const Token> all(s.sequence->tokens);
      const Tensor chain = Tensor::host_copy(all.subspan(std::size_t(cache_.confirmed(id)), std::size_t(s.chain)), DType::i32);
      for (int k = 0; k < s.chain; ++k) {
        previous = cache_.append(id, previous, chain, k);
        fed_.push_back({id, previous, int(i), *chain.row<Token>(k), nullptr});
      }
    }
    if (!s.tree) continue;
    for (int n = s.begin; n < s.tree->nodes; ++n) {
      const int parent = n == 0 ? previous : root_row_.at(id) + *s.tree->parents.row<std::int32_t>(n);
      const int at = cache_.append(id, parent, s.tree->known, n);
      if (n == 0) root_row_[id] = at;
      wanted_.push_back(std::int32_t(fed_.size()));
      fed_.push_back({id, at, int(i), *s.tree->known.row<Token>(n), s.tree->drawn_at(n)});
    }
  }
}

CachedModel::Extent CachedModel::extent(std::span<const Segment> segments) const {
  Extent e{int(fed_.size()), int(segments.size()), 1, 0, int(wanted_.size()), 1, 1, wanted_.size() == fed_.size()};
  for (const Segment& s : segments) {
    e.width = std::max(e.width, int(cache_.table(s.sequence->id).size()));
    e.longest = std::max(e.longest, rows_in(s));
  }
  for (const Fed& f : fed_) {
    e.words = std::max(e.words, cache_.words_needed(f.id, f.pending));
    e.deepest = std::max(e.deepest, int(cache_.place(f.id, f.pending).slot) + 1);
  }
  const int padding = backend_.padded(e.rows) - e.rows;
  e.rows += padding;
  e.tables = backend_.padded(e.tables + (padding + e.longest - 1) / e.longest);
  e.longest = backend_.padded(e.longest);
  e.width = backend_.padded(e.width), e.deepest = backend_.padded(e.deepest);
  if (e.wanted > 0) e.wanted = backend_.padded(e.wanted);
  return e;
}

CachedModel::Inputs CachedModel::stage(std::span<const Segment> segments, const Extent& e) {
  const std::int64_t row_bytes = 4 * 6 + 8 + 8 * e.words;
  staging_.begin(e.rows * row_bytes + e.tables * (4 * e.width + 4) + 4 + 4 * e.wanted + 13 * Staging::kAlignment);
  Layout host, device;
  const auto array = [&](Tensor Layout::*column, Shape shape, DType dtype) {
    const auto a = staging_.array(shape, dtype);
    host.*column = a.host, device.*column = a.device;
  };
  for (Tensor Layout::*column : {&Layout::positions, &Layout::slots, &Layout::owner, &Layout::visible, &Layout::first}) array(column, {e.rows}, DType::i32);
  array(&Layout::begins, {e.tables + 1}, DType::i32);
  array(&Layout::tables, {e.tables, e.width}, DType::i32);
  array(&Layout::ancestors, {e.rows, e.words}, DType::u64);
  const auto known = staging_.array({e.rows}, DType::i32), at = staging_.array({e.rows}, DType::u64), wanted = staging_.array({e.wanted}, DType::i32);
  fill_rows(host, known.host, at.host);
  fill_tables(segments, host);
  std::fill(std::ranges::copy(wanted_, wanted.host.data<std::int32_t>()).out, wanted.host.data<std::int32_t>() + e.wanted, 0);
  staging_.push();

  device.rows = e.rows, device.sequences = e.tables, device.words = e.words, device.table_width = e.width;
  device.deepest = e.deepest, device.longest = e.longest;
  if (info().window == 0) device.first = {};
  if (e.words == 0) device.ancestors = {};
  return {{{}, device, e.wanted > 0 ? wanted.device : Tensor(), e.all_wanted, {}}, known.device, at.device};
}

// Rows of padding before the padded table `i`. They are spread evenly: a table with more rows than any sequence has would make
// kernels take single rows for a prompt.
int CachedModel::padding_before(const Layout& l, int i) const {
  const std::int64_t padding = l.positions.dim(0) - std::int64_t(fed_.size()), spare = l.tables.dim(0) - segments_;
  return int(padding * i / std::max<std::int64_t>(spare, 1));
}

// The columns of the layout, and the tokens: those of the fed rows, then padding, which belongs to the tables behind the segments'.
void CachedModel::fill_rows(Layout& l, const Tensor& known, const Tensor& at) const {
  const int rows = int(l.positions.dim(0)), words = int(l.ancestors.dim(1)), window = info().window > 0 ? info().window : info().positions;
  std::fill_n(l.ancestors.data<std::uint64_t>(), l.ancestors.elements(), 0);
  int spare = 0;  // padded table of the row
  for (int r = 0; r < rows; ++r) {
    const bool real = std::size_t(r) < fed_.size();
    while (!real && r - int(fed_.size()) >= padding_before(l, spare + 1)) ++spare;
    const Fed f = real ? fed_[std::size_t(r)] : Fed{0, 0, segments_ + spare, -1, nullptr};
    const auto place = real ? cache_.place(f.id, f.pending) : KvCache::Place{0, 0, 1};
    const int first = std::max(0, place.position + 1 - window);
    *l.positions.row<std::int32_t>(r) = place.position, *l.slots.row<std::int32_t>(r) = place.slot;
    *l.visible.row<std::int32_t>(r) = place.visible, *l.first.row<std::int32_t>(r) = first, *l.owner.row<std::int32_t>(r) = f.segment;
    *known.row<Token>(r) = f.known, *at.row<const Token*>(r) = f.at;
    if (real && words > 0) cache_.ancestors(f.id, f.pending, first, {l.ancestors.row<std::uint64_t>(r), std::size_t(words)});
  }
}

// Block tables and where their rows begin: those of the segments, then padding, which has the trash page alone.
void CachedModel::fill_tables(std::span<const Segment> segments, Layout& l) const {
  const std::int64_t tables = l.tables.dim(0), width = l.tables.dim(1);
  int row = 0;
  for (std::int64_t i = 0; i < tables; ++i) {
    const bool real = std::size_t(i) < segments.size();
    const std::span<const PageId> pages = real ? cache_.table(segments[std::size_t(i)].sequence->id) : std::span<const PageId>();
    std::int32_t* to = l.tables.row<std::int32_t>(i);
    std::fill(std::ranges::copy(pages, to).out, to + width, trash_);
    *l.begins.row<std::int32_t>(i) = real ? row : row + padding_before(l, int(i) - segments_);
    if (real) row += rows_in(segments[std::size_t(i)]);
  }
  *l.begins.row<std::int32_t>(tables) = std::int32_t(l.positions.dim(0));
}

Output CachedModel::forward(Inputs in, const Extent& e) {
  Output out;
  const auto body = [&] {
    in.rows.tokens = backend_.allocate({e.rows}, DType::i32);
    backend_.pick(in.known, in.at, in.rows.tokens);
    out = model_->forward(backend_, in.rows, cache_.layers());
  };
  if (model_->replays()) {
    const std::size_t memory = e.wanted > 0 ? logits_memory(e.wanted) : 0;
    if (e.wanted > 0) in.rows.logits = logits_[memory].rows(0, e.wanted);
    const std::int64_t key[] = {std::int64_t(serial_), staging_.generation(), std::int64_t(memory), e.rows, e.tables, e.width, e.words, e.wanted, e.deepest, e.longest, e.all_wanted};
    backend_.replay(key, body);
    out.logits = in.rows.logits;
  } else {
    body();
  }
  if (out.logits) out.logits = out.logits.rows(0, std::int64_t(wanted_.size()));
  return out;
}

// Which memory of logits has so many rows and nobody who reads it any more.
std::size_t CachedModel::logits_memory(int rows) {
  std::size_t i = 0;
  while (i < logits_.size() && (logits_[i].dim(0) < rows || logits_[i].owner().use_count() > 1)) ++i;
  if (i == logits_.size()) logits_.push_back(backend_.allocate({std::int64_t(rows), info().vocab}, DType::f32));
  return i;
}

}  // namespace foretoken
