#include "framework/cache/cached_model.h"

#include <algorithm>
#include <numeric>

#include "kernels/error.h"

namespace foretoken {
namespace {

std::int64_t address_of(const void* p) { return std::int64_t(reinterpret_cast<std::uintptr_t>(p)); }

// Where a cache has everything in a page, as a part of the key of a forward. A view has the layout of another model.
std::vector<std::int64_t> layout_of(const KvCache& cache) {
  std::vector<std::int64_t> all{cache.page_rows()};
  for (const KvLayer& l : cache.layers()) all.insert(all.end(), {l.keys, l.values, l.key_scales, l.value_scales});
  return all;
}

int rows_in(const Segment& s) { return s.chain + (s.tree ? s.tree->nodes - s.begin : 0); }

void expect_served(const Segment& s, const RowInputs& inputs, const std::string& model) {
  if (int(s.inputs.size()) != rows_in(s) * inputs.pieces)
    throw Error("a segment of the model " + model + " has " + std::to_string(rows_in(s)) + " rows of " +
                std::to_string(inputs.pieces) + " features, but " + std::to_string(s.inputs.size()) +
                " addresses of features (Segment::inputs); give one for each");
}

bool is_chain(const DraftTree& tree) {
  for (int n = 0; n < tree.nodes; ++n)
    if (*tree.parents.row<std::int32_t>(n) != n - 1) return false;
  return true;
}

void expect_mutual(const Segment& s, int window, const std::string& model) {
  if (!s.mutual) return;
  if (window > 0)
    throw Error("the model " + model + " attends to a window of " + std::to_string(window) +
                " positions, so its rows cannot attend to one another (Segment::mutual); feed them as a chain");
  if (!s.tree || s.begin > 0 || !is_chain(*s.tree))
    throw Error("the model " + model +
                " is given rows that attend to one another (Segment::mutual), which must be a whole tree that is a "
                "chain; feed its root and every node below it");
}

}  // namespace

std::uint64_t HiddenStates::address(int position, Tap tap, int half) const {
  const auto at = std::ranges::find(taps_, tap);
  if (at == taps_.end() || position < 0 || position >= rows_)
    throw Error("the hidden state at point " + std::to_string(tap) + " of position " + std::to_string(position) +
                " is asked for, which is not kept; let Needs::hidden name the point, and read positions below " +
                std::to_string(rows_));
  const KvLayer& l = layers_[std::size_t(at - taps_.begin())];
  const std::int64_t page = table_[std::size_t(position / l.page_rows)], row = position % l.page_rows;
  return std::uint64_t(address_of(l.pool.raw())) + std::uint64_t(page * l.pool.dim(1)) +
         std::uint64_t((half == 0 ? l.keys : l.values) + row * l.head_size * size_of(l.dtype));
}

void HiddenStates::append(int position, std::span<const Tap> taps, std::vector<std::uint64_t>& addresses) const {
  for (const Tap t : taps)
    for (const int half : {0, 1}) addresses.push_back(address(position, t, half));
}

CachedModel::CachedModel(Backend& backend, std::shared_ptr<Model> model, PagePool& pool, bool reuse_prefixes,
                         std::vector<Tap> taps)
    : backend_(backend),
      model_(std::move(model)),
      taps_(std::move(taps)),
      cache_(pool, with_taps(model_->info(), taps_), reuse_prefixes, model_->info().skip),
      window_(info().kv.window(info().name)),
      pool_(pool),
      books_(new_books()),
      layout_(layout_of(cache_)) {
  info().kv.expect_heads(info().name);
}

CachedModel::CachedModel(Backend& backend, std::shared_ptr<Model> part, KvCache& viewed)
    : backend_(backend),
      model_(std::move(part)),
      cache_(viewed),
      window_(info().kv.window(info().name)),
      pool_(viewed.pool()),
      books_(new_books()),
      layout_(layout_of(cache_)) {}

std::span<const Token> CachedModel::unseen(const Sequence& sequence) {
  const std::size_t seen = std::size_t(cache_.settle(sequence) + cache_.skip());
  return std::span<const Token>(sequence.tokens).subspan(std::min(seen, sequence.tokens.size()));
}

bool CachedModel::reserve(const Sequence& sequence, int rows) {
  const bool reserved = cache_.reserve(sequence, rows);
  if (reserved)
    lacking_.erase(sequence.id);
  else
    lacking_.insert(sequence.id);
  return reserved;
}

int CachedModel::most_unseen(const Sequence& sequence) {
  return !cache_.keeps() || cache_.knows(sequence.id) ? int(unseen(sequence).size()) : sequence.length();
}

HiddenStates CachedModel::hidden(const Sequence& sequence) const {
  if (taps_.empty() || !cache_.knows(sequence.id)) return {};
  const KvCache::Held& held = cache_.held(sequence.id);
  return {taps_, cache_.layers().last(taps_.size()), held.table, held.confirmed};
}

Output CachedModel::run(std::span<const Segment> segments, const RowInputs& inputs) {
  for (const Segment& s : segments)
    expect_served(s, inputs, info().name), expect_mutual(s, window_, info().name),
        cache_.expect_reserved(s.sequence->id, rows_in(s), info().name);
  inputs_ = inputs;
  cache_.compact();
  const Mark start = backend_.mark();
  Output out;
  try {
    feed(segments);
    order(segments);
    const Extent e = extent(segments);
    out = forward(stage(segments, e), e);
  } catch (...) {  // a caller that goes on must not find pending rows that were never written
    for (const Segment& s : segments) cache_.fed(s.sequence->id).retract();
    throw;
  }
  books_->add(start, int(fed_.size()), int(wanted_.size()), model_->read_bytes(inputs.pieces > 0));
  return out;
}

std::shared_ptr<ForwardBooks> CachedModel::new_books() const {
  const UsedWeights weights{model_->serial(), info().memory(), info().kv.bytes_per_row()};
  return std::make_shared<ForwardBooks>(backend_, model_->memory(backend_), weights);
}

// Appends the rows to the cache as pending rows.
void CachedModel::feed(std::span<const Segment> segments) {
  unordered_.clear(), held_.clear(), wanted_.clear();
  std::int64_t chained = 0;
  for (const Segment& s : segments) chained += s.chain;
  const Tensor chains = chained > 0 ? Tensor::host({chained}, DType::i32) : Tensor();
  int link = 0;  // index into `chains`
  for (const Segment& s : segments) {
    KvCache::Held& held = cache_.fed(s.sequence->id);
    const std::uint64_t* inputs = s.inputs.data();
    const auto add = [&](int parent, const KvCache::Source& tokens, int at) {
      const int row = held.append(parent, tokens, at);
      unordered_.push_back({int(held_.size()), row, held.row_layout(row), *tokens.known.row<Token>(at),
                            held.pending.back().drawn, inputs});
      inputs += inputs_.pieces;
      return row;
    };
    int previous = -1;
    std::copy_n(s.sequence->tokens.data() + cache_.skip() + held.confirmed, s.chain, chains.data<Token>() + link);
    const KvCache::Source chain{chains, {}};
    for (int k = 0; k < s.chain; ++k) previous = add(previous, chain, link++);
    const int root = int(held.pending.size()) - s.begin;  // nodes that were fed before are the last rows
    const KvCache::Source known{s.tree ? s.tree->known : Tensor(), {}},
        drawn{known.known, s.tree ? s.tree->tokens : Tensor()};
    for (int n = s.begin; s.tree && n < s.tree->nodes; ++n) {
      wanted_.push_back(std::int32_t(unordered_.size()));
      const int parent = n == 0 ? previous : root + *s.tree->parents.row<std::int32_t>(n);
      (void)add(parent, s.tree->drawn_at(n) ? drawn : known, n);
      held.pending.back().approximate = s.mutual || n >= s.approximate;
    }
    for (int n = 0; s.mutual && n < s.tree->nodes; ++n)  // all of them see the last one's slot
      unordered_[unordered_.size() - 1 - std::size_t(n)].layout.visible = unordered_.back().layout.slot + 1;
    held_.push_back(&held);
  }
}

// Orders the rows: those of sequences whose tree branches come last, so that a device may attend to the others apart.
void CachedModel::order(std::span<const Segment> segments) {
  std::vector<int> begins(segments.size() + 1, 0), places(unordered_.size());
  std::vector<char> branches(segments.size(), 0);
  for (std::size_t i = 0; i < segments.size(); ++i) begins[i + 1] = begins[i] + rows_in(segments[i]);
  for (const Fed& f : unordered_) branches[std::size_t(f.segment)] |= char(f.layout.words() > 0);
  tables_.resize(segments.size());
  std::iota(tables_.begin(), tables_.end(), 0);
  const auto is_straight = [&](int i) { return !branches[std::size_t(i)]; };
  straight_ = int(std::stable_partition(tables_.begin(), tables_.end(), is_straight) - tables_.begin());
  fed_.clear();
  for (const int i : tables_)
    for (int r = begins[std::size_t(i)]; r < begins[std::size_t(i) + 1]; ++r)
      places[std::size_t(r)] = int(fed_.size()), fed_.push_back(unordered_[std::size_t(r)]);
  for (std::int32_t& w : wanted_) w = places[std::size_t(w)];
}

// Adds rows and tables of padding.
void CachedModel::pad(Part& part) const {
  part.padded_rows = backend_.padded(part.rows);
  const int padding = part.padded_rows - part.rows;
  part.padded_tables = backend_.padded(part.tables + (padding + part.longest - 1) / part.longest);
  part.longest = backend_.padded(part.longest), part.deepest = backend_.padded(part.deepest);
}

CachedModel::Extent CachedModel::extent(std::span<const Segment> segments) const {
  Extent e{};
  e.width = 1, e.wanted = int(wanted_.size());
  for (const KvCache::Held* held : held_) e.width = std::max(e.width, int(held->table.size()));
  const int tables = int(tables_.size());
  int row = 0;
  for (int i = 0; i < tables; ++i) {
    Part& part = i < straight_ && straight_ < tables ? e.straight : e.rest;
    const int rows = rows_in(segments[std::size_t(tables_[std::size_t(i)])]);
    part.rows += rows, ++part.tables, part.longest = std::max(part.longest, rows);
    for (const int end = row + rows; row < end; ++row) {
      const KvCache::RowLayout& l = fed_[std::size_t(row)].layout;
      e.words = std::max(e.words, l.words()), part.deepest = std::max(part.deepest, l.slot + 1);
    }
  }
  if (e.straight.tables > 0) pad(e.straight);
  pad(e.rest);
  e.rows = e.straight.padded_rows + e.rest.padded_rows, e.tables = e.straight.padded_tables + e.rest.padded_tables;
  e.longest = std::max(e.straight.longest, e.rest.longest), e.deepest = std::max(e.straight.deepest, e.rest.deepest);
  e.width = backend_.padded(e.width);
  if (e.wanted > 0) e.wanted = backend_.padded(e.wanted);
  e.all_wanted = wanted_.size() == fed_.size() && e.wanted == e.rows &&  // parts are padded one by one
                 e.straight.padded_rows == e.straight.rows && std::ranges::is_sorted(wanted_);
  e.mutual = std::ranges::any_of(segments, &Segment::mutual);
  return e;
}

CachedModel::Inputs CachedModel::stage(std::span<const Segment> segments, const Extent& e) {
  Staging& staging = books_->memory().staging;
  const std::int64_t row_bytes = 4 * 6 + 8 + 8 * e.words;
  staging.begin(e.rows * (row_bytes + 8 * inputs_.pieces) + e.tables * (4 * e.width + 4) + 4 + 4 * e.wanted +
                14 * Staging::kAlignment);
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
  Tensor features;
  if (inputs_.pieces > 0) {
    const auto a = staging.array({e.rows, inputs_.pieces}, DType::u64);
    fill_inputs(e, a.host), features = a.device;
  }
  fill_rows(host, e, known.host, at.host);
  fill_tables(segments, e, host);
  std::int32_t* to = wanted.host.data<std::int32_t>();
  for (const std::int32_t w : wanted_) *to++ = w + (w < e.straight.rows ? 0 : e.straight.padded_rows - e.straight.rows);
  std::fill(to, wanted.host.data<std::int32_t>() + e.wanted, 0);
  staging.push();

  device.rows = e.rows, device.sequences = e.tables, device.words = e.words, device.table_width = e.width;
  device.deepest = e.deepest, device.longest = e.longest, device.mutual = e.mutual;
  if (e.straight.tables > 0)
    device.straight = {e.straight.padded_rows, e.straight.padded_tables, e.straight.deepest, e.straight.longest};
  if (window_ == 0) device.first = {};
  if (e.words == 0) device.ancestors = {};
  return {{{}, device, e.wanted > 0 ? wanted.device : Tensor(), e.all_wanted, {}, taps_},
          known.device,
          at.device,
          features};
}

// Rows of padding before the i-th table of padding of a part. They are spread evenly: if one table had more rows than
// any sequence, kernels would treat single rows like a prompt.
int CachedModel::padding_before(const Part& part, int i) {
  const std::int64_t padding = part.padded_rows - part.rows, spare = part.padded_tables - part.tables;
  return int(padding * i / std::max<std::int64_t>(spare, 1));
}

// Fills the columns of the layout and the tokens: in each part first the fed rows, then padding, which belongs to the
// tables after those of the segments.
void CachedModel::fill_rows(Layout& l, const Extent& e, const Tensor& known, const Tensor& at) const {
  const int words = e.words, window = window_ > 0 ? window_ : info().positions;
  std::fill_n(l.ancestors.data<std::uint64_t>(), l.ancestors.elements(), 0);
  std::vector<int> table_of(tables_.size());
  for (int i = 0; i < int(tables_.size()); ++i)
    table_of[std::size_t(tables_[std::size_t(i)])] =
        i < e.straight.tables ? i : i + e.straight.padded_tables - e.straight.tables;
  std::size_t next = 0;
  int r = 0, table = 0;  // the part's first table
  for (const Part& part : {e.straight, e.rest}) {
    int spare = 0;  // the padding row's table, counted after those of the segments
    for (int n = 0; n < part.padded_rows; ++n, ++r) {
      const bool real = n < part.rows;
      while (!real && n - part.rows >= padding_before(part, spare + 1)) ++spare;
      const Fed f = real ? fed_[next++] : Fed{-1, 0, {0, 0, 1}, -1, nullptr};
      const int first = std::max(0, f.layout.position + 1 - window);
      *l.positions.row<std::int32_t>(r) = f.layout.position, *l.slots.row<std::int32_t>(r) = f.layout.slot;
      *l.visible.row<std::int32_t>(r) = f.layout.visible, *l.first.row<std::int32_t>(r) = first;
      *l.owner.row<std::int32_t>(r) = real ? table_of[std::size_t(f.segment)] : table + part.tables + spare;
      *known.row<Token>(r) = f.known, *at.row<const Token*>(r) = f.at;
      if (real && words > 0)
        held_[std::size_t(f.segment)]->ancestors(f.pending, first,
                                                 {l.ancestors.row<std::uint64_t>(r), std::size_t(words)});
    }
    table += part.padded_tables;
  }
}

// Fills the addresses of the rows' features; padding has none.
void CachedModel::fill_inputs(const Extent& e, const Tensor& inputs) const {
  std::ranges::fill(inputs.values<std::uint64_t>(), 0);
  for (int i = 0; i < int(fed_.size()); ++i) {
    const int row = i < e.straight.rows ? i : i + e.straight.padded_rows - e.straight.rows;
    std::copy_n(fed_[std::size_t(i)].inputs, inputs_.pieces, inputs.row<std::uint64_t>(row));
  }
}

// Fills the block tables and the first row of each: in each part those of the segments, then padding, which has the
// trash page only.
void CachedModel::fill_tables(std::span<const Segment> segments, const Extent& e, Layout& l) const {
  const std::int64_t width = l.tables.dim(1);
  int table = 0, row = 0, next = 0;
  for (const Part& part : {e.straight, e.rest}) {
    int begin = row;
    for (int i = 0; i < part.padded_tables; ++i, ++table) {
      const bool real = i < part.tables;
      const int segment = real ? tables_[std::size_t(next++)] : 0;
      const std::span<const PageId> pages =
          real ? std::span<const PageId>(held_[std::size_t(segment)]->table) : std::span<const PageId>();
      std::int32_t* to = l.tables.row<std::int32_t>(table);
      std::fill(std::ranges::copy(pages, to).out, to + width, pool_.trash());
      *l.begins.row<std::int32_t>(table) = real ? begin : begin + padding_before(part, i - part.tables);
      if (real) begin += rows_in(segments[std::size_t(segment)]);
    }
    row += part.padded_rows;
  }
  *l.begins.row<std::int32_t>(table) = row;
}

Output CachedModel::forward(Inputs in, const Extent& e) {
  Output out;
  ForwardMemory& memory = books_->memory();
  const auto body = [&] {
    in.rows.tokens = backend_.allocate({e.rows}, DType::i32);
    backend_.pick(in.known, in.at, in.rows.tokens, info().vocab);
    if (in.features) {
      const std::int64_t pieces = inputs_.pieces, width = inputs_.width;
      const Tensor all = backend_.allocate({e.rows * pieces, width}, DType::f32);
      backend_.recall(in.features.reshaped({e.rows * pieces}), all, inputs_.dtype);
      in.rows.inputs = all.reshaped({e.rows, pieces * width});
    }
    out = model_->forward(backend_, in.rows, cache_.layers());
  };
  const auto without_padding = [&](const Tensor& logits) {
    return logits ? logits.rows(0, std::int64_t(wanted_.size())) : Tensor();
  };
  if (model_->replays() && e.replays()) {
    if (e.wanted > 0) in.rows.logits = free_output(backend_, memory.logits, e.wanted, info().vocab, info().vocab);
    if (e.wanted > 0 && model_->features())
      in.rows.features = free_output(backend_, memory.features, e.wanted, info().width, info().width);
    // Everything on which the body depends, so that a later engine with this model and this memory replays what was
    // recorded.
    std::vector<std::int64_t> key{std::int64_t(model_->serial()),
                                  address_of(pool_.memory().raw()),
                                  pool_.pages(),
                                  pool_.page_bytes(),
                                  address_of(memory.staging.device_address()),
                                  address_of(in.rows.logits.raw()),
                                  e.rows,
                                  e.tables,
                                  e.width,
                                  e.words,
                                  e.wanted,
                                  e.deepest,
                                  e.longest,
                                  e.straight.padded_rows,
                                  e.straight.padded_tables,
                                  e.straight.deepest,
                                  e.straight.longest,
                                  e.all_wanted,
                                  e.mutual};
    key.insert(key.end(), {address_of(in.rows.features.raw()), inputs_.pieces, inputs_.width, int(inputs_.dtype)});
    key.insert(key.end(), taps_.begin(), taps_.end());
    key.insert(key.end(), layout_.begin(), layout_.end());
    const Tensor logits = without_padding(in.rows.logits);
    backend_.replay(key, body, logits);
    return {logits, without_padding(in.rows.features)};
  }
  body();
  return {without_padding(out.logits), without_padding(out.features)};
}

}  // namespace foretoken
