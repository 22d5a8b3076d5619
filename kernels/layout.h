// Where the rows of one forward are stored in KV pages, and which slots each row attends to. Pages are equal parts of
// one pool; a page holds `page_rows` positions of every layer of one cache. Prompts, single tokens and trees are all
// rows: there is no prefill or decode mode. This module knows slots and pages; it must not know sequences, trees or
// drafters.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace foretoken {

// Of a quantized cache: numbers are codes of 8 bits, with a scale for each token and head.
inline bool has_scales(DType cache) { return cache == DType::i8 || cache == DType::e4m3; }

// Where one layer's keys and values are in every page: [kv_heads, page_rows, head_size] each, at a byte offset. Codes
// (i8, e4m3) have scales besides: f32 [kv_heads, page_rows], at a multiple of 4 bytes. kernels/cache_codes.h says how a
// row becomes codes, and what they mean.
struct KvLayer {
  Tensor pool;              // u8 [pages, page_bytes]
  std::int64_t keys = 0;    // byte offset in a page
  std::int64_t values = 0;  // byte offset in a page
  int page_rows = 0;
  int kv_heads = 0, head_size = 0;
  DType dtype = DType::f32;                       // f32, bf16, i8, e4m3
  std::int64_t key_scales = 0, value_scales = 0;  // byte offsets in a page; of codes
  std::int64_t bounds = 0;  // byte offset in a page of what bound_pages writes; 0: a page has no room for it
  // > 0: a value is the last so many numbers of its key, with the key's scale, where `values` and `value_scales` say
  // (multi-head latent attention: arXiv 2405.04434). 0: values are stored apart.
  int latent = 0;
  int value_size() const { return latent > 0 ? latent : head_size; }
};
// Of the bounds of its keys, by the type of a cache.
inline DType bounds_type(DType cache) { return cache == DType::f32 ? DType::f32 : DType::bf16; }

// A part of a layer's pages: [kv_heads, page_rows] items of `bytes` each, from byte `begin` of a page on.
struct KvPlane {
  std::int64_t begin = 0, bytes = 0;
};
// Everything that a layer has in a page for each row: keys, values that are apart from them, and the scales of codes.
class KvPlanes {
 public:
  explicit KvPlanes(const KvLayer& kv) {
    const std::int64_t bytes = kv.head_size * size_of(kv.dtype);
    all_[count_++] = {kv.keys, bytes};
    if (kv.latent == 0) all_[count_++] = {kv.values, bytes};
    if (!has_scales(kv.dtype)) return;
    all_[count_++] = {kv.key_scales, 4};
    if (kv.latent == 0) all_[count_++] = {kv.value_scales, 4};
  }
  const KvPlane* begin() const { return all_.data(); }
  const KvPlane* end() const { return all_.data() + count_; }

 private:
  std::array<KvPlane, 4> all_;
  std::size_t count_ = 0;
};

// A row of a page.
struct PageRow {
  std::int32_t page = 0, row = 0;
};

// Rows of one block table that move, in every layer of its cache: KV compaction.
struct Moves {
  struct Row {
    PageRow from, to;
  };
  std::span<const KvLayer> layers;  // of one pool and with equal page_rows
  std::span<const Row> rows;        // in order; no row is read after it was written
};

// Of a forward that selects pages anew in each layer (Backend::select_pages): block table i has, in the place of its
// first chosen[i] pages, as many of its candidates.
struct PageSelection {
  int width = 0;      // of `candidates`; 0: nothing is selected
  Tensor candidates;  // i32 [sequences, width]: full pages
  Tensor counts;      // i32 [sequences]: how many candidates a block table has
  Tensor chosen;      // i32 [sequences]: at most counts[i], and at most table_width
  Tensor choosing;    // i32 [sequences]: by the queries of so many of its first rows; absent: of all its rows
};

constexpr int kMostVisibleApart = 63;  // slots; see Layout

// Rows of all sequences of a forward, one after another. A slot is a position in the sequence's own block table: slot s
// lies in page table[s / page_rows] at row s % page_rows.
//
// Row r attends to the slots [0, visible[r]) and, of the 64 * words slots from visible[r] on, those whose bit is set in
// ancestors[r]. A row of a chain has visible = its own slot + 1 and no bits; a node of a tree has the committed prefix
// (with the trunk of its path) visible, and a bit for each further ancestor and for itself; a row of a block whose rows
// attend to one another in both directions has the slots of all of them visible, and no bits. In one block table,
// `visible` of the rows with bits differs by at most kMostVisibleApart, and no row attends to a slot 64 * words +
// kMostVisibleApart or more behind the least of them. `words` has no bound: a draft model may be fed more nodes than a
// draft tree keeps.
struct Layout {
  // The first `sequences` block tables, with `rows` rows, none of which has ancestors; bounds as below. A device may
  // attend to them apart from the others, as if no tree were in the batch. Zeros: not known.
  struct Straight {
    int rows = 0, sequences = 0, deepest = 0, longest = 0;
  };

  int rows = 0, sequences = 0, words = 0, table_width = 0;
  int deepest = 0;  // no row attends to this slot or a later one: bounds scratch memory and splits of the context
  int longest = 0;  // no block table has more rows than this
  Straight straight;
  bool mutual = false;  // a row may attend to a slot that a later row of this forward writes: all keys are stored
                        // before any row attends
  Tensor positions;     // i32 [rows]: depth in the sequence, for the rotation
  Tensor slots;         // i32 [rows]: the slot to which the row's key and value go
  Tensor owner;         // i32 [rows]: index of the row's block table
  Tensor begins;   // i32 [sequences + 1]: the rows of block table i are [begins[i], begins[i + 1]), as `owner` has them
  Tensor visible;  // i32 [rows]
  Tensor first;    // i32 [rows]: slots before this one are not attended to (sliding window); absent: 0
  Tensor ancestors;  // u64 [rows, words]; absent when words == 0
  // Of a cache whose layers have a window in part: the bits of those before `first` too (without_window). Absent where
  // `ancestors` has them.
  Tensor all_ancestors;
  Tensor tables;  // i32 [sequences, table_width]: page numbers; of head_tables, [sequences * kv_heads, table_width]
  // For Backend::attend alone: each kv head has block tables of its own, which differ in pages, not in slots.
  bool head_tables = false;
  PageSelection selection;
};

// What a layer without a window attends to, of a layout whose `first` is that of layers with one.
inline Layout without_window(Layout l) {
  l.first = {};
  if (l.all_ancestors) l.ancestors = l.all_ancestors;
  return l;
}

// The block table of a kv head, of a layout in host memory.
inline const std::int32_t* table_of(const Layout& l, int sequence, int kv_head, int kv_heads) {
  return l.tables.row<std::int32_t>(l.head_tables ? std::int64_t(sequence) * kv_heads + kv_head : sequence);
}

}  // namespace foretoken
