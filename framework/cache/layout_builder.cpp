#include "framework/cache/layout_builder.h"

#include <algorithm>
#include <numeric>

namespace foretoken {
namespace {

// Rows of padding before the i-th table of padding of a part. They are spread evenly: if one table had more rows than
// any sequence, kernels would treat single rows like a prompt.
int padding_before(const LayoutBuilder::Part& part, int i) {
  const std::int64_t padding = part.padded_rows - part.rows, spare = part.padded_tables - part.tables;
  return int(padding * i / std::max<std::int64_t>(spare, 1));
}

}  // namespace

void LayoutBuilder::clear() {
  rows_.clear(), tables_.clear(), wanted_.clear();
  mutual_ = false;
}

void LayoutBuilder::open(std::span<const PageId> pages, std::span<const PageId> candidates, int chosen) {
  tables_.push_back({pages, candidates, chosen, int(rows_.size())});
}

void LayoutBuilder::add(const Row& row) {
  rows_.push_back(row);
  Table& table = tables_.back();
  ++table.rows;
  table.branches |= row.words() > 0;
}

void LayoutBuilder::join(int rows) {
  mutual_ = mutual_ || rows > 0;
  for (int i = 1; i <= rows; ++i) rows_[rows_.size() - std::size_t(i)].visible = rows_.back().slot + 1;
}

// Adds rows and tables of padding.
void LayoutBuilder::pad(Part& part) const {
  part.padded_rows = backend_.padded(part.rows);
  const int padding = part.padded_rows - part.rows;
  part.padded_tables = backend_.padded(part.tables + (padding + part.longest - 1) / part.longest);
  part.longest = backend_.padded(part.longest), part.deepest = backend_.padded(part.deepest);
}

const LayoutBuilder::Extent& LayoutBuilder::arrange() {
  order_.resize(tables_.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto is_straight = [&](int i) { return !tables_[std::size_t(i)].branches; };
  const auto branching = std::stable_partition(order_.begin(), order_.end(), is_straight);
  const bool apart = branching != order_.end();

  Extent e;
  for (auto at = order_.begin(); at != order_.end(); ++at) {
    const Table& table = tables_[std::size_t(*at)];
    Part& part = apart && at < branching ? e.straight : e.rest;
    part.rows += table.rows, ++part.tables, part.longest = std::max(part.longest, table.rows);
    e.width = std::max(e.width, int(table.pages.size()));
    e.candidates = std::max(e.candidates, int(table.candidates.size()));
    for (int r = table.begin; r < table.begin + table.rows; ++r) {
      const Row& row = rows_[std::size_t(r)];
      e.words = std::max(e.words, row.words()), part.deepest = std::max(part.deepest, row.slot + 1);
    }
  }
  if (e.straight.tables > 0) pad(e.straight);
  pad(e.rest);
  e.rows = e.straight.padded_rows + e.rest.padded_rows, e.tables = e.straight.padded_tables + e.rest.padded_tables;
  e.longest = std::max(e.straight.longest, e.rest.longest), e.deepest = std::max(e.straight.deepest, e.rest.deepest);
  e.width = backend_.padded(e.width);
  if (e.candidates > 0) e.candidates = backend_.padded(e.candidates);
  e.wanted = wanted_.empty() ? 0 : backend_.padded(int(wanted_.size()));

  places_.resize(rows_.size());
  std::int32_t place = 0;
  for (auto at = order_.begin(); at != order_.end(); ++at) {
    if (at == branching) place = e.straight.padded_rows;  // behind the padding of the first part
    const Table& table = tables_[std::size_t(*at)];
    for (int r = table.begin; r < table.begin + table.rows; ++r) places_[std::size_t(r)] = place++;
  }
  e.all_wanted = wanted_.size() == rows_.size() && e.wanted == e.rows && e.straight.padded_rows == e.straight.rows &&
                 std::ranges::is_sorted(places_);
  return extent_ = e;
}

LayoutBuilder::Staged LayoutBuilder::stage(Staging& staging, int pieces, const Ancestors& ancestors,
                                           const Ancestors& all) const {
  const Extent& e = extent_;
  const int all_words = all ? e.words : 0;
  const std::int64_t row_bytes = 4 * 6 + 8 + 8 * (e.words + all_words);
  staging.begin(e.rows * (row_bytes + 8 * pieces) + e.tables * (4 * e.width + 4) + 4 + 4 * e.wanted +
                e.tables * (4 * e.candidates + 12) + 19 * Staging::kAlignment);
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
  if (all_words > 0) array(&Layout::all_ancestors, {e.rows, all_words}, DType::u64);
  const auto known = staging.array({e.rows}, DType::i32), at = staging.array({e.rows}, DType::u64),
             wanted = staging.array({e.wanted}, DType::i32);
  if (e.candidates > 0) {
    const auto candidates = staging.array({e.tables, e.candidates}, DType::i32),
               counts = staging.array({e.tables}, DType::i32), chosen = staging.array({e.tables}, DType::i32),
               choosing = staging.array({e.tables}, DType::i32);
    device.selection = {e.candidates, candidates.device, counts.device, chosen.device, choosing.device};
    fill_selection({e.candidates, candidates.host, counts.host, chosen.host, choosing.host});
  }
  Staging::Array features;
  if (pieces > 0) features = staging.array({e.rows, pieces}, DType::u64);
  fill_rows(host, ancestors, all);
  fill_inputs(pieces, known.host, at.host, features.host);
  fill_tables(host);
  fill_wanted(wanted.host);
  staging.push();

  device.rows = e.rows, device.sequences = e.tables, device.words = e.words, device.table_width = e.width;
  device.deepest = e.deepest, device.longest = e.longest, device.mutual = mutual_;
  if (e.straight.tables > 0)
    device.straight = {e.straight.padded_rows, e.straight.padded_tables, e.straight.deepest, e.straight.longest};
  if (!windows_) device.first = {};
  if (e.words == 0) device.ancestors = {};
  return {device, known.device, at.device, e.wanted > 0 ? wanted.device : Tensor(), features.device};
}

// Fills the columns of the layout: in each part first the rows of sequences, then padding, which belongs to the tables
// after theirs.
void LayoutBuilder::fill_rows(const Layout& l, const Ancestors& ancestors, const Ancestors& all) const {
  const Extent& e = extent_;
  const auto fill = [&](std::int64_t r, const Row& row, int owner) {
    *l.positions.row<std::int32_t>(r) = row.position, *l.slots.row<std::int32_t>(r) = row.slot;
    *l.visible.row<std::int32_t>(r) = row.visible, *l.first.row<std::int32_t>(r) = row.first;
    *l.owner.row<std::int32_t>(r) = owner;
  };
  std::fill_n(l.ancestors.data<std::uint64_t>(), l.ancestors.elements(), 0);
  if (l.all_ancestors) std::fill_n(l.all_ancestors.data<std::uint64_t>(), l.all_ancestors.elements(), 0);
  for (int n = 0; n < int(order_.size()); ++n) {
    const int i = order_[std::size_t(n)];
    const Table& table = tables_[std::size_t(i)];
    const int owner = n < e.straight.tables ? n : n + e.straight.padded_tables - e.straight.tables;
    for (int k = 0; k < table.rows; ++k) {
      const Row& row = rows_[std::size_t(table.begin + k)];
      const std::int64_t r = places_[std::size_t(table.begin + k)];
      fill(r, row, owner);
      if (e.words > 0) ancestors(i, k, {l.ancestors.row<std::uint64_t>(r), std::size_t(e.words)});
      if (l.all_ancestors) all(i, k, {l.all_ancestors.row<std::uint64_t>(r), std::size_t(e.words)});
    }
  }
  int begin = 0, owner = 0;  // of the part
  for (const Part& part : {e.straight, e.rest}) {
    for (int n = 0, spare = 0; n < part.padded_rows - part.rows; ++n) {
      while (n >= padding_before(part, spare + 1)) ++spare;
      fill(begin + part.rows + n, {.slot = 0, .position = 0, .visible = 1}, owner + part.tables + spare);
    }
    begin += part.padded_rows, owner += part.padded_tables;
  }
}

// Fills the rows' tokens, and the addresses of their features; padding has none.
void LayoutBuilder::fill_inputs(int pieces, const Tensor& known, const Tensor& at, const Tensor& features) const {
  std::fill_n(known.data<Token>(), known.elements(), Token(-1));
  std::fill_n(at.data<const Token*>(), at.elements(), nullptr);
  if (pieces > 0) std::ranges::fill(features.values<std::uint64_t>(), 0);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::int64_t r = places_[i];
    *known.row<Token>(r) = rows_[i].known, *at.row<const Token*>(r) = rows_[i].at;
    if (pieces > 0) std::copy_n(rows_[i].inputs, pieces, features.row<std::uint64_t>(r));
  }
}

// Fills the block tables and the first row of each: in each part those of the sequences, then padding, which has the
// trash page only.
void LayoutBuilder::fill_tables(const Layout& l) const {
  const std::int64_t width = l.tables.dim(1);
  int table = 0, row = 0, next = 0;
  for (const Part& part : {extent_.straight, extent_.rest}) {
    int begin = row;
    for (int i = 0; i < part.padded_tables; ++i, ++table) {
      const Table* real = i < part.tables ? &tables_[std::size_t(order_[std::size_t(next++)])] : nullptr;
      std::int32_t* to = l.tables.row<std::int32_t>(table);
      std::fill(std::ranges::copy(real ? real->pages : std::span<const PageId>(), to).out, to + width, trash_);
      *l.begins.row<std::int32_t>(table) = real ? begin : begin + padding_before(part, i - part.tables);
      if (real) begin += real->rows;
    }
    row += part.padded_rows;
  }
  *l.begins.row<std::int32_t>(table) = row;
}

// Fills what is selected from, in the order of the block tables; padding selects nothing.
void LayoutBuilder::fill_selection(const PageSelection& s) const {
  int table = 0, next = 0;
  for (const Part& part : {extent_.straight, extent_.rest})
    for (int i = 0; i < part.padded_tables; ++i, ++table) {
      const Table* real = i < part.tables ? &tables_[std::size_t(order_[std::size_t(next++)])] : nullptr;
      const std::span<const PageId> candidates = real ? real->candidates : std::span<const PageId>();
      std::int32_t* const to = s.candidates.row<std::int32_t>(table);
      std::fill(std::ranges::copy(candidates, to).out, to + s.width, trash_);
      *s.counts.row<std::int32_t>(table) = int(candidates.size());
      *s.chosen.row<std::int32_t>(table) = real ? real->chosen : 0;
      *s.choosing.row<std::int32_t>(table) = !real ? 0 : real->choosing < 0 ? real->rows : real->choosing;
    }
}

void LayoutBuilder::fill_wanted(const Tensor& wanted) const {
  std::int32_t* to = wanted.data<std::int32_t>();
  for (const std::int32_t w : wanted_) *to++ = places_[std::size_t(w)];
  std::fill(to, wanted.data<std::int32_t>() + extent_.wanted, 0);
}

}  // namespace foretoken
