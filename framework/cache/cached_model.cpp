#include "framework/cache/cached_model.h"

#include <algorithm>
#include <cassert>

#include "kernels/error.h"

namespace foretoken {
namespace {

std::int64_t address(const void* p) { return std::int64_t(reinterpret_cast<std::uintptr_t>(p)); }

void expect_served(const Segment& s, const std::string& model) {
  if (!s.inputs.empty())
    throw Error("the model " + model +
                " is given features of its rows (Segment::inputs), which are not implemented yet");
  if (s.mutual)
    throw Error("the model " + model +
                " is given rows that attend to one another (Segment::mutual), which are not implemented yet");
}

int rows_in(const Segment& s) { return s.chain + (s.tree ? s.tree->nodes - s.begin : 0); }

}  // namespace

CachedModel::CachedModel(Backend& backend, std::shared_ptr<Model> model, PagePool& pool, bool reuse_prefixes)
    : backend_(backend),
      model_(std::move(model)),
      cache_(pool, model_->info().kv, reuse_prefixes),
      window_(info().kv.window(info().name)),
      pool_(pool),
      memory_(model_->memory(backend)) {}

std::span<const Token> CachedModel::unseen(const Sequence& sequence) {
  return std::span<const Token>(sequence.tokens).subspan(std::size_t(cache_.settle(sequence)));
}

int CachedModel::most_unseen(const Sequence& sequence) {
  return cache_.knows(sequence.id) ? int(unseen(sequence).size()) : sequence.length();
}

Output CachedModel::run(std::span<const Segment> segments) {
  for (const Segment& s : segments) expect_served(s, info().name);
  cache_.compact();
  const Mark start = backend_.mark();
  Output out;
  try {
    feed(segments);
    const Extent e = extent(segments);
    out = forward(stage(segments, e), e);
  } catch (...) {  // a caller that goes on must not find pending rows that were never written
    for (const Segment& s : segments) cache_.fed(s.sequence->id).retract();
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

// Appends the rows to the cache as pending rows.
void CachedModel::feed(std::span<const Segment> segments) {
  fed_.clear(), held_.clear(), wanted_.clear();
  std::int64_t chained = 0;
  for (const Segment& s : segments) chained += s.chain;
  const Tensor chains = chained > 0 ? Tensor::host({chained}, DType::i32) : Tensor();
  int link = 0;  // index into `chains`
  for (const Segment& s : segments) {
    KvCache::Held& held = cache_.fed(s.sequence->id);
    const auto add = [&](int parent, const KvCache::Source& tokens, int at) {
      const int row = held.append(parent, tokens, at);
      fed_.push_back(
          {int(held_.size()), row, held.row_layout(row), *tokens.known.row<Token>(at), held.pending.back().drawn});
      return row;
    };
    int previous = -1;
    std::copy_n(s.sequence->tokens.data() + held.confirmed, s.chain, chains.data<Token>() + link);
    const KvCache::Source chain{chains, {}};
    for (int k = 0; k < s.chain; ++k) previous = add(previous, chain, link++);
    const int root = int(held.pending.size()) - s.begin;  // nodes that were fed before are the last rows
    if (s.tree) {
      const KvCache::Source known{s.tree->known, {}}, drawn{s.tree->known, s.tree->tokens};
      for (int n = s.begin; n < s.tree->nodes; ++n) {
        wanted_.push_back(std::int32_t(fed_.size()));
        (void)add(n == 0 ? previous : root + *s.tree->parents.row<std::int32_t>(n), s.tree->drawn_at(n) ? drawn : known,
                  n);
      }
    }
    assert(cache_.pages_for(held.confirmed + int(held.pending.size())) <= int(held.table.size()));
    held_.push_back(&held);
  }
}

CachedModel::Extent CachedModel::extent(std::span<const Segment> segments) const {
  Extent e{int(fed_.size()), int(segments.size()), 1, 0, int(wanted_.size()), 1, 1, wanted_.size() == fed_.size()};
  for (const KvCache::Held* held : held_) e.width = std::max(e.width, int(held->table.size()));
  for (const Segment& s : segments) e.longest = std::max(e.longest, rows_in(s));
  for (const Fed& f : fed_)
    e.words = std::max(e.words, f.layout.words()), e.deepest = std::max(e.deepest, f.layout.slot + 1);
  const int padding = backend_.padded(e.rows) - e.rows;
  e.rows += padding;
  e.tables = backend_.padded(e.tables + (padding + e.longest - 1) / e.longest);
  e.longest = backend_.padded(e.longest);
  e.width = backend_.padded(e.width), e.deepest = backend_.padded(e.deepest);
  if (e.wanted > 0) e.wanted = backend_.padded(e.wanted);
  return e;
}

CachedModel::Inputs CachedModel::stage(std::span<const Segment> segments, const Extent& e) {
  Staging& staging = memory_->staging;
  const std::int64_t row_bytes = 4 * 6 + 8 + 8 * e.words;
  staging.begin(e.rows * row_bytes + e.tables * (4 * e.width + 4) + 4 + 4 * e.wanted + 13 * Staging::kAlignment);
  Layout host, device;
  const auto array = [&](Tensor Layout::* column, Shape shape, DType dtype) {
    const auto a = staging.array(shape, dtype);
    host.*column = a.host, device.*column = a.device;
  };
  for (Tensor Layout::* column : {&Layout::positions, &Layout::slots, &Layout::owner, &Layout::visible, &Layout::first})
    array(column, {e.rows}, DType::i32);
  array(&Layout::begins, {e.tables + 1}, DType::i32);
  array(&Layout::tables, {e.tables, e.width}, DType::i32);
  array(&Layout::ancestors, {e.rows, e.words}, DType::u64);
  const auto known = staging.array({e.rows}, DType::i32), at = staging.array({e.rows}, DType::u64),
             wanted = staging.array({e.wanted}, DType::i32);
  fill_rows(host, known.host, at.host);
  fill_tables(segments, host);
  std::fill(std::ranges::copy(wanted_, wanted.host.data<std::int32_t>()).out,
            wanted.host.data<std::int32_t>() + e.wanted, 0);
  staging.push();

  device.rows = e.rows, device.sequences = e.tables, device.words = e.words, device.table_width = e.width;
  device.deepest = e.deepest, device.longest = e.longest;
  if (window_ == 0) device.first = {};
  if (e.words == 0) device.ancestors = {};
  return {{{}, device, e.wanted > 0 ? wanted.device : Tensor(), e.all_wanted, {}}, known.device, at.device};
}

// Rows of padding before the padded table `i`. They are spread evenly: if one table had more rows than any sequence,
// kernels would treat single rows like a prompt.
int CachedModel::padding_before(const Layout& l, int i) const {
  const std::int64_t padding = l.positions.dim(0) - std::int64_t(fed_.size()),
                     spare = l.tables.dim(0) - std::int64_t(held_.size());
  return int(padding * i / std::max<std::int64_t>(spare, 1));
}

// Fills the columns of the layout and the tokens: first the fed rows, then padding, which belongs to the tables after
// those of the segments.
void CachedModel::fill_rows(Layout& l, const Tensor& known, const Tensor& at) const {
  const int rows = int(l.positions.dim(0)), words = int(l.ancestors.dim(1)),
            window = window_ > 0 ? window_ : info().positions;
  std::fill_n(l.ancestors.data<std::uint64_t>(), l.ancestors.elements(), 0);
  int spare = 0;  // the padding row's table, counted after those of the segments
  for (int r = 0; r < rows; ++r) {
    const bool real = std::size_t(r) < fed_.size();
    while (!real && r - int(fed_.size()) >= padding_before(l, spare + 1)) ++spare;
    const Fed f = real ? fed_[std::size_t(r)] : Fed{int(held_.size()) + spare, 0, {0, 0, 1}, -1, nullptr};
    const int first = std::max(0, f.layout.position + 1 - window);
    *l.positions.row<std::int32_t>(r) = f.layout.position, *l.slots.row<std::int32_t>(r) = f.layout.slot;
    *l.visible.row<std::int32_t>(r) = f.layout.visible, *l.first.row<std::int32_t>(r) = first,
    *l.owner.row<std::int32_t>(r) = f.segment;
    *known.row<Token>(r) = f.known, *at.row<const Token*>(r) = f.at;
    if (real && words > 0)
      held_[std::size_t(f.segment)]->ancestors(f.pending, first,
                                               {l.ancestors.row<std::uint64_t>(r), std::size_t(words)});
  }
}

// Fills the block tables and the first row of each: those of the segments, then padding, which has the trash page only.
void CachedModel::fill_tables(std::span<const Segment> segments, Layout& l) const {
  const std::int64_t tables = l.tables.dim(0), width = l.tables.dim(1);
  int row = 0;
  for (std::int64_t i = 0; i < tables; ++i) {
    const bool real = std::size_t(i) < segments.size();
    const std::span<const PageId> pages =
        real ? std::span<const PageId>(held_[std::size_t(i)]->table) : std::span<const PageId>();
    std::int32_t* to = l.tables.row<std::int32_t>(i);
    std::fill(std::ranges::copy(pages, to).out, to + width, pool_.trash());
    *l.begins.row<std::int32_t>(i) = real ? row : row + padding_before(l, int(i) - int(held_.size()));
    if (real) row += rows_in(segments[std::size_t(i)]);
  }
  *l.begins.row<std::int32_t>(tables) = std::int32_t(l.positions.dim(0));
}

Output CachedModel::forward(Inputs in, const Extent& e) {
  Output out;
  const auto body = [&] {
    in.rows.tokens = backend_.allocate({e.rows}, DType::i32);
    backend_.pick(in.known, in.at, in.rows.tokens, info().vocab);
    out = model_->forward(backend_, in.rows, cache_.layers());
  };
  const auto without_padding = [&](const Tensor& logits) {
    return logits ? logits.rows(0, std::int64_t(wanted_.size())) : Tensor();
  };
  if (model_->replays()) {
    if (e.wanted > 0) in.rows.logits = logits_memory(e.wanted).rows(0, e.wanted);
    // Everything on which the body depends, so that a later engine with this model and this memory replays what was
    // recorded.
    const std::int64_t key[] = {std::int64_t(model_->serial()),
                                address(pool_.memory().raw()),
                                pool_.pages(),
                                pool_.page_bytes(),
                                address(memory_->staging.device_address()),
                                address(in.rows.logits.raw()),
                                e.rows,
                                e.tables,
                                e.width,
                                e.words,
                                e.wanted,
                                e.deepest,
                                e.longest,
                                e.all_wanted};
    const Tensor logits = without_padding(in.rows.logits);
    backend_.replay(key, body, logits);
    return {logits};
  }
  body();
  return {without_padding(out.logits)};
}

std::int64_t CachedModel::logits_bytes() const {
  std::int64_t bytes = 0;
  for (const Tensor& t : memory_->logits) bytes += t.bytes();
  return bytes;
}

// Memory of at least so many rows for logits to which no other Tensor refers; allocated where there is none.
const Tensor& CachedModel::logits_memory(int rows) {
  std::vector<Tensor>& all = memory_->logits;
  std::size_t i = 0;
  while (i < all.size() && (all[i].dim(0) < rows || all[i].owner().use_count() > 1)) ++i;
  if (i == all.size()) all.push_back(backend_.allocate({std::int64_t(rows), info().vocab}, DType::f32));
  return all[i];
}

}  // namespace foretoken
