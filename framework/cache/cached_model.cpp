#include "framework/cache/cached_model.h"

#include <algorithm>

#include "kernels/error.h"

namespace foretoken {
namespace {

std::int64_t address_of(const void* p) { return std::int64_t(reinterpret_cast<std::uintptr_t>(p)); }

// Where a cache has everything in a page, as a part of the key of a forward. A view has the layout of another model.
std::vector<std::int64_t> layout_of(const KvCache& cache) {
  std::vector<std::int64_t> all{cache.page_rows()};
  for (const KvLayer& l : cache.layers())
    all.insert(all.end(), {l.keys, l.values, l.key_scales, l.value_scales, l.bounds});
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
                         std::vector<Tap> taps, bool bounds)
    : backend_(backend),
      model_(std::move(model)),
      taps_(std::move(taps)),
      read_(model_->vocabulary_map()),
      cache_(pool, with_taps(model_->info(), taps_, bounds), reuse_prefixes, model_->info().skip),
      window_(info().kv.window(info().name)),
      pool_(pool),
      books_(new_books()),
      layout_(layout_of(cache_)),
      builder_(backend, window_ > 0, pool.trash()),
      ids_(model_->vocabulary_map() ? model_->vocabulary_map()->ids() : info().vocab) {
  info().kv.expect_heads(info().name);
}

CachedModel::CachedModel(Backend& backend, std::shared_ptr<Model> part, KvCache& viewed, PageChoice chosen)
    : backend_(backend),
      model_(std::move(part)),
      read_(nullptr),
      cache_(viewed, std::move(chosen)),
      window_(info().kv.window(info().name)),
      pool_(viewed.pool()),
      books_(new_books()),
      layout_(layout_of(cache_)),
      builder_(backend, window_ > 0, pool_.trash()),
      ids_(info().vocab) {
  if (cache_.selects() && window_ > 0)
    throw Error("the model " + info().name + " attends to a window of " + std::to_string(window_) +
                " positions, so there are no pages to select; choose a model that attends to all positions");
}

std::span<const Token> CachedModel::unseen(const Sequence& of) {
  const Sequence& sequence = read_.of(of);
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
  return !cache_.keeps() || cache_.knows(sequence.id) ? int(unseen(sequence).size()) : length(sequence);
}

void CachedModel::forget(const Sequence& sequence) {
  if (cache_.knows(sequence.id)) cache_.forget(read_.of(sequence));
  read_.forget(sequence.id), lacking_.erase(sequence.id);
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
    bound_pages(segments);
    feed(segments);
    out = forward(stage());
  } catch (...) {  // a caller that goes on must not find pending rows that were never written
    for (const Segment& s : segments) cache_.fed(s.sequence->id).retract();
    throw;
  }
  std::int64_t left_out = 0;
  for (const KvCache::Held* held : held_) left_out += held->left_out;
  const std::int64_t read = model_->read_bytes(inputs.pieces > 0) - model_->info().spared_bytes(builder_.rows());
  books_->add(start, builder_.rows(), builder_.wanted(), read, left_out);
  return out;
}

Tensor CachedModel::mass(std::span<const Segment> segments) {
  if (cache_.selects())
    throw Error("masses of the model " + info().name +
                " are asked for in a view that selects pages in each layer, which reads too few; use a view of all");
  struct Asked {
    bool& on;
    explicit Asked(bool& flag) : on(flag) { on = true; }
    ~Asked() { on = false; }
  } const asked(masses_);
  return run(segments).mass;
}

std::shared_ptr<ForwardBooks> CachedModel::new_books() const {
  // What views the target's cache is a part of it, with its weights.
  const UsedWeights weights{model_->serial(), cache_.keeps() ? info().memory() : 0, info().kv.bytes_per_row()};
  return std::make_shared<ForwardBooks>(backend_, model_->memory(backend_), weights);
}

// Once for each page of a sequence: rows of full pages never change.
void CachedModel::bound_pages(std::span<const Segment> segments) {
  if (!cache_.selects()) return;
  std::vector<PageId> pages;
  for (const Segment& s : segments) {
    const std::span<const PageId> fresh = cache_.unbounded(s.sequence->id);
    pages.insert(pages.end(), fresh.begin(), fresh.end());
  }
  if (pages.empty()) return;
  std::ranges::sort(pages);  // sequences may share some
  pages.erase(std::ranges::unique(pages).begin(), pages.end());
  const std::size_t layers = info().kv.layers.size();  // those behind hold taps
  backend_.bound_pages(cache_.layers().first(layers), pages);
  for (const Segment& s : segments) cache_.note_bounded(s.sequence->id);
}

// Appends the rows to the cache as pending rows, and to the layout.
void CachedModel::feed(std::span<const Segment> segments) {
  builder_.clear(), held_.clear(), firsts_.clear();
  // Of another vocabulary the root's token is not the one that a tree names, in the target's ids.
  const auto own_root = [this](const Segment& s) { return read_.translates() && s.tree && s.begin == 0; };
  std::int64_t chained = 0;
  for (const Segment& s : segments) chained += s.chain + own_root(s);
  const Tensor chains = chained > 0 ? Tensor::host({chained}, DType::i32) : Tensor();
  int link = 0;  // index into `chains`
  for (const Segment& s : segments) {
    KvCache::Held& held = cache_.fed(s.sequence->id);
    const std::uint64_t* inputs = s.inputs.data();
    builder_.open(held.table, cache_.candidates(s.sequence->id), int(held.chosen.size()));
    held_.push_back(&held), firsts_.push_back(int(held.pending.size()));
    const auto add = [&](int parent, const KvCache::Source& tokens, int at) {
      const int row = held.append(parent, tokens, at);
      const KvCache::RowLayout l = held.row_layout(row);
      const int first = window_ > 0 ? held.slot_from(first_position(l.position), cache_.page_rows()) : 0;
      builder_.add(
          {l.slot, l.position, l.visible, first, *tokens.known.row<Token>(at), held.pending.back().drawn, inputs});
      inputs += inputs_.pieces;
      return row;
    };
    int previous = held.path - 1;
    const std::vector<Token>& tokens = read_.of(*s.sequence).tokens;
    std::copy_n(tokens.data() + cache_.skip() + held.seen(), s.chain + own_root(s), chains.data<Token>() + link);
    const KvCache::Source chain{chains, {}};
    for (int k = 0; k < s.chain; ++k) previous = add(previous, chain, link++);
    const int root = int(held.pending.size()) - s.begin;  // nodes that were fed before are the last rows
    const KvCache::Source known{s.tree ? s.tree->known : Tensor(), {}},
        drawn{known.known, s.tree ? s.tree->tokens : Tensor()};
    for (int n = s.begin; s.tree && n < s.tree->nodes; ++n) {
      const int parent = n == 0 ? previous : root + *s.tree->parents.row<std::int32_t>(n);
      if (n == 0 && own_root(s))
        (void)add(parent, chain, link++);
      else
        (void)add(parent, s.tree->drawn_at(n) ? drawn : known, n);
      builder_.want();
      // What the nodes below the root are may be judged by what the root's row computes.
      if (n == 0) builder_.end_choice();
      held.pending.back().approximate = s.mutual || n >= s.approximate;
    }
    if (s.mutual) builder_.join(s.tree->nodes);
  }
}

CachedModel::Inputs CachedModel::stage() {
  const auto all_ancestors = [&](int table, int row, std::span<std::uint64_t> words) {
    held_[std::size_t(table)]->ancestors(firsts_[std::size_t(table)] + row, 0, words);
  };
  const auto ancestors = [&](int table, int row, std::span<std::uint64_t> words) {
    const KvCache::Held& held = *held_[std::size_t(table)];
    const int at = firsts_[std::size_t(table)] + row;
    held.ancestors(at, first_position(held.row_layout(at).position), words);
  };
  const LayoutBuilder::Extent& e = builder_.arrange();
  const bool mixed = window_ > 0 && info().kv.has_layers_without_window();
  const LayoutBuilder::Staged s = builder_.stage(books_->memory().staging, inputs_.pieces, ancestors,
                                                 mixed ? all_ancestors : LayoutBuilder::Ancestors());
  return {{{}, s.layout, s.wanted, e.all_wanted, {}, taps_}, s.known, s.at, s.features, e};
}

Output CachedModel::forward(Inputs in) {
  const LayoutBuilder::Extent& e = in.extent;
  Output out;
  ForwardMemory& memory = books_->memory();
  const auto body = [&] {
    in.rows.tokens = backend_.allocate({e.rows}, DType::i32);
    backend_.pick(in.known, in.at, in.rows.tokens, ids_);
    if (in.features) {
      const std::int64_t pieces = inputs_.pieces, width = inputs_.width;
      const Tensor all = backend_.allocate({e.rows * pieces, width}, DType::f32);
      backend_.recall(in.features.reshaped({e.rows * pieces}), all, inputs_.dtype);
      in.rows.inputs = all.reshaped({e.rows, pieces * width});
    }
    out = model_->forward(backend_, in.rows, cache_.layers());
  };
  const auto without_padding = [&](const Tensor& logits) {
    return logits ? logits.rows(0, builder_.wanted()) : Tensor();
  };
  if (masses_) {  // once in many rounds: not recorded
    in.rows.mass = backend_.zeros({e.tables, e.width});
    body();
    return {{}, {}, in.rows.mass.rows(0, std::int64_t(held_.size()))};
  }
  if (model_->replays() && e.rows <= kMostRecordedRows) {
    if (e.wanted > 0 && model_->logits())
      in.rows.logits = free_output(backend_, memory.logits, e.wanted, info().vocab, info().vocab);
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
                                  e.candidates,
                                  e.deepest,
                                  e.longest,
                                  e.straight.padded_rows,
                                  e.straight.padded_tables,
                                  e.straight.deepest,
                                  e.straight.longest,
                                  e.all_wanted,
                                  in.rows.layout.mutual};
    key.insert(key.end(), {address_of(in.rows.features.raw()), inputs_.pieces, inputs_.width, int(inputs_.dtype)});
    key.insert(key.end(), taps_.begin(), taps_.end());
    key.insert(key.end(), layout_.begin(), layout_.end());
    const Tensor logits = without_padding(in.rows.logits), features = without_padding(in.rows.features);
    backend_.replay(key, body, model_->logits() ? logits : features);
    return {logits, features};
  }
  body();
  return {without_padding(out.logits), without_padding(out.features)};
}

}  // namespace foretoken
