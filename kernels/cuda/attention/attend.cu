// attend and rope_attend: the choice of kernel, number of blocks and tile sizes. The mathematics is in attention.cuh.
#include <algorithm>
#include <bit>

#include "kernels/cuda/attention/decode_rows.cuh"
#include "kernels/cuda/attention/parts.h"
#include "kernels/cuda/attention/routes.h"
#include "kernels/cuda/attention/stream_rows.cuh"
#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

constexpr int kLargestTile = 64, kPromptVectors = 128;  // query vectors of a tile

[[noreturn]] void refuse(const std::string& what) { throw Error("cuda: attend: " + what); }

void expect(const Tensor& q, const KvLayer& kv, const Layout& layout) {
  if (q.dtype() != DType::f32 && q.dtype() != DType::bf16)
    refuse(std::string("queries are f32 or bf16, not ") + name_of(q.dtype()));
  if (kv.dtype != DType::f32 && kv.dtype != DType::bf16 && !has_scales(kv.dtype))
    refuse(std::string("keys and values are f32, bf16, i8 or e4m3, not ") + name_of(kv.dtype) +
           "; choose one of them as the cache's type");
  if (has_scales(kv.dtype) && (kv.key_scales | kv.value_scales) % 4 != 0)
    refuse("the scales of keys and values begin at bytes " + std::to_string(kv.key_scales) + " and " +
           std::to_string(kv.value_scales) + " of a page; both must be multiples of 4");
  if (q.dim(0) != layout.rows)
    refuse("queries " + q.shape().text() + " do not match a layout of " + std::to_string(layout.rows) + " rows");
  if (kv.head_size < 1 || kv.head_size > 512 || q.dim(1) % (std::int64_t(kv.head_size) * kv.kv_heads) != 0)
    refuse("queries " + q.shape().text() + " do not match " + std::to_string(kv.kv_heads) + " heads of " +
           std::to_string(kv.head_size) + " numbers; a head has 512 at most, and queries are whole groups of heads");
  if (!layout.begins || layout.longest < 1)
    refuse("the layout does not say where each table's rows begin (Layout::begins, longest)");
}

// A scale of 0 would make the score of a masked key NaN.
ScoreRules score_rules(const AttentionRules& rules) {
  constexpr float kLog2e = 1.44269504f, kLeast = 1e-30f;
  const float scale = std::max(rules.scale, kLeast), cap = rules.softcap;
  return {cap > 0 ? cap * kLog2e : std::max(scale * kLog2e, kLeast), cap > 0 ? scale / cap : 0,
          rules.sinks ? rules.sinks.data<float>() : nullptr};
}

void expect_sinks(const Tensor& q, const KvLayer& kv, const AttentionRules& rules) {
  const std::int64_t heads = q.dim(1) / kv.head_size;
  if (rules.sinks && (rules.sinks.dtype() != DType::f32 || rules.sinks.shape() != Shape{heads}))
    refuse("sinks are " + std::string(name_of(rules.sinks.dtype())) + " " + rules.sinks.shape().text() +
           ", but must be F32 " + Shape{heads}.text());
}

AttentionWork work_for(const Tensor& q, const Tensor& out, const KvLayer& kv, const Layout& layout,
                       const AttentionRules& rules, const Part& part) {
  AttentionWork w;
  w.q = q.raw(), w.out = out.raw(), w.q_stride = q.row_stride();
  w.q_bf16 = q.dtype() == DType::bf16, w.kv_bf16 = kv.dtype == DType::bf16;
  w.q_aligned = reinterpret_cast<std::uintptr_t>(q.raw()) % 16 == 0 && q.row_stride() % 8 == 0 && kv.head_size % 8 == 0;
  w.pool = kv.pool.data<std::byte>(), w.pages = kv.pool.dim(0), w.page_bytes = kv.pool.row_stride(), w.keys = kv.keys,
  w.values = kv.values;
  w.codes = codes_of(kv.dtype), w.key_scales = kv.key_scales, w.value_scales = kv.value_scales;
  w.page_rows = kv.page_rows,
  w.page_shift = std::has_single_bit(unsigned(kv.page_rows)) ? std::countr_zero(unsigned(kv.page_rows)) : -1;
  w.heads = int(q.dim(1)) / kv.head_size, w.kv_heads = kv.kv_heads, w.group = w.heads / kv.kv_heads,
  w.head_size = kv.head_size;
  w.first_row = part.first_row, w.rows = part.rows, w.sequences = part.sequences, w.words = part.words,
  w.table_width = layout.table_width;
  w.longest = std::min(part.longest, part.rows), w.deepest = std::max(part.deepest, 1);
  w.begins = layout.begins.data<std::int32_t>() + part.first_sequence, w.owner = layout.owner.data<std::int32_t>(),
  w.visible = layout.visible.data<std::int32_t>();
  w.first = layout.first ? layout.first.data<std::int32_t>() : nullptr, w.head_tables = layout.head_tables;
  w.tables = layout.tables.row<std::int32_t>(part.first_sequence * (w.head_tables ? std::int64_t(kv.kv_heads) : 1));
  w.ancestors = part.words > 0 ? layout.ancestors.data<std::uint64_t>() : nullptr;
  expect_sinks(q, kv, rules);
  w.rules = score_rules(rules);
  w.chunks = chunks_of(w.deepest);
  return w;
}

// Whether the fast routes take the cache, of bf16 numbers or of codes.
bool fits_tiles(const AttentionWork& w) {
  return (w.kv_bf16 ? w.head_size % 8 == 0 : w.codes != CacheCodes::none && w.head_size % 16 == 0) &&
         w.head_size <= 256 && (w.page_bytes | w.keys | w.values) % 16 == 0 &&
         reinterpret_cast<std::uintptr_t>(w.pool) % 16 == 0;
}

// Whether the prompt route takes this, where the GPU has its instructions: rows with ancestors, and many others.
bool takes_prompt(const CudaBackend& b, const AttentionWork& w) {
  return w.kv_bf16 && !w.rules.any() && b.warpgroups() && w.head_size <= 128 &&
         prompt_bytes(w.head_size <= 64 ? 64 : 128) <= b.shared_memory() &&
         (w.words > 0 ? w.words <= kMostTreeWords : w.longest * w.group > kLargestTile);
}

// The tile is as many vectors as a sequence has, up to the kernels' limit. In a tree every row adds steps of its own to
// a tile, so a tile is one row or few rows as long as the GPU can run more blocks at once.
void choose_tile(AttentionWork& w, int multiprocessors) {
  const int vectors = w.longest * w.group, most = w.head_size > 128 ? 32 : kLargestTile;
  w.tile = vectors <= 16 ? 16 : vectors <= 32 ? 32 : most;
  if (w.words == 0) return;
  for (int tile = 2 * w.group; tile < w.tile; tile *= 2) {
    if (std::int64_t(tiles_of(w, tile)) * w.kv_heads * w.chunks > 3 * multiprocessors) continue;
    w.tile = tile;
    return;
  }
}

// Memory of the sums of chunks, where blocks share contexts: set in the work, for as long as this lives.
struct Sums {
  Tensor sums, peaks;

  Sums(CudaBackend& b, AttentionWork& w, bool shared) {
    if (!shared) return;
    const std::int64_t pieces = std::int64_t(w.rows) * w.heads * w.chunks;
    sums = b.allocate({pieces, w.head_size}, DType::f32), peaks = b.allocate({pieces, 2}, DType::f32);
    w.sums = sums.data<float>(), w.peaks = peaks.data<float2>();
  }
};

// The route of rows that are neither rotated nor stored. Sets the work's splits and tile, and `coded` where that route
// is taken.
AttendRoute plan_rows(const CudaBackend& b, AttentionWork& w, StreamWork& coded) {
  if (!w.rules.any() && plan_coded_stream(coded, w, b.machine(), b.architecture())) {
    w.splits = coded.of.a.splits;
    return AttendRoute::coded_stream;
  }
  if (takes_prompt(b, w)) {
    const std::int64_t tiles = std::int64_t(tiles_of(w, kPromptVectors)) * w.kv_heads;
    w.splits = prompt_splits(tiles, w.deepest, scratch_of(w), b.multiprocessors());
    return AttendRoute::prompt;
  }
  choose_tile(w, b.multiprocessors());
  w.splits = tile_splits(double(tiles_of(w, w.tile)) * w.kv_heads, w.tile, w.head_size, w.deepest, scratch_of(w),
                         b.multiprocessors());
  return w.codes != CacheCodes::none ? AttendRoute::coded_tiles : AttendRoute::tiles;
}

// Attention by that route.
void attend_rows(CudaBackend& b, AttentionWork w) {
  StreamWork coded;
  const AttendRoute route = plan_rows(b, w, coded);
  const Sums sums(b, w, w.splits > 1);
  if (w.rules.any())
    launch_ruled_tiles(w, b.shared_memory(), b.cuda_stream(), b.reads_early());
  else if (route == AttendRoute::coded_stream)
    coded.of.a = w, launch_stream(coded, b.cuda_stream(), b.reads_early());
  else if (route == AttendRoute::prompt)
    launch_prompt(w, b.cuda_stream(), b.reads_early());
  else if (route == AttendRoute::coded_tiles)
    launch_coded_tiles(w, b.cuda_stream(), b.reads_early());
  else
    launch_tiles(w, b.shared_memory(), b.cuda_stream(), b.reads_early());
  if (w.splits > 1) launch_fold(w, b.cuda_stream(), b.dependent_launch());
}

// True if nearly all rows belong to one sequence: the other block table holds padding (or, where `longest` is padded,
// one or two rows of another sequence).
bool is_one_sequence(const AttentionWork& a) { return a.rows <= a.longest && a.sequences <= 2; }

// The most spans that a decode block may process in sequence (measured: 2 to 3 us each) before the stream route is
// faster. With more query vectors than kFewVectors, decode is faster for 16 rows of one sequence, but not for two
// sequences of 8 rows, nor for 8 rows after a context of 4096.
constexpr int kFewVectors = 16;
int decode_limit(const AttentionWork& a) {
  if (a.longest * a.group > kFewVectors) return is_one_sequence(a) ? 2 : 0;
  return a.sequences * a.kv_heads <= 32 ? 3 : 2;
}

// Whether the decode route takes this: so few rows that the latency of one span dominates. Sets the blocks that share a
// context so that all run at once (except those of a table of padding, which have one span), each with at most
// `most_spans` spans in sequence.
bool plan_decode(DecodeWork& w, const Machine& machine, int most_spans) {
  constexpr int kMostVectors = 64;  // with more, the other routes were not compared with this one
  AttentionWork& a = w.a;
  const int vectors = a.longest * a.group, sequences = is_one_sequence(a) ? 1 : a.sequences;
  if (a.words > 0 || a.head_size > 128 || a.head_size % 16 != 0 || vectors > kMostVectors || a.longest > kDecodeRows ||
      a.group > kDecodeRows || !has_aligned_rows(w))
    return false;
  a.tile = kSetVectors * (vectors <= kSetVectors ? 1 : vectors <= kFewVectors ? 2 : kTeamSets);
  for (w.spans = least_spans(a.deepest, machine.cluster); w.spans <= most_spans; w.spans += span_unit(a.deepest)) {
    a.splits = (a.deepest + w.spans * kSpan - 1) / (w.spans * kSpan);
    const std::int64_t blocks = std::int64_t(sequences) * a.kv_heads * a.splits * decode_blocks(a);
    w.bytes = decode_bytes(w);
    const std::int64_t at_once = std::min<std::int64_t>(
        2, machine.multiprocessor_memory / (w.bytes + kReservedSharedMemory));  // two: the limit set by registers
    if (w.bytes > machine.block_memory || blocks > at_once * machine.multiprocessors) continue;
    if (a.splits == 1) w.bytes = decode_memory(w.bytes, blocks, a.rows, machine);
    return true;
  }
  return false;
}

// The same with sinks, which launch_fold joins to chunks that are in memory.
bool attend_few_ruled(CudaBackend& b, const DecodeWork& w, const Machine& machine) {
  StreamWork stream;
  stream.of = w;
  if (w.a.rules.inner > 0 || !plan_stream(stream, machine) || !stream.apart) return false;
  const Sums sums(b, stream.of.a, true);
  launch_stream(stream, b.cuda_stream(), b.reads_early());
  launch_fold(stream.of.a, b.cuda_stream(), b.dependent_launch());
  return true;
}

// Rotation, storing and attention in one kernel, where a route does that for few rows.
bool attend_few(CudaBackend& b, DecodeWork w, const Machine& machine) {
  if (b.architecture() < 90) return false;
  if (w.a.rules.any()) return attend_few_ruled(b, w, machine);
  if (plan_decode(w, machine, decode_limit(w.a))) return launch_decode(w, b.cuda_stream(), b.reads_early()), true;
  StreamWork stream;
  stream.of = w;
  if (plan_stream(stream, machine)) {
    const Sums sums(b, stream.of.a, stream.apart);
    launch_stream(stream, b.cuda_stream(), b.reads_early());
    if (stream.apart) launch_fold(stream.of.a, b.cuda_stream(), b.dependent_launch());
    return true;
  }
  if (plan_decode(w, machine, 3)) return launch_decode(w, b.cuda_stream(), b.reads_early()), true;
  return false;
}

// The rows of a part, for rope_store: block tables keep their numbers.
Layout rows_of(Layout l, const Part& part) {
  for (Tensor* t : {&l.positions, &l.slots, &l.owner}) *t = t->rows(part.first_row, part.rows);
  l.rows = part.rows;
  return l;
}
Tensor rows_of(const Tensor& t, const Part& part) { return t.rows(part.first_row, part.rows); }

}  // namespace

AttendPlan attend_plan(const Backend& cuda, const Tensor& q, const KvLayer& kv, const Layout& layout) {
  const auto& b = dynamic_cast<const CudaBackend&>(cuda);
  expect(q, kv, layout);
  AttentionWork w = work_for(q, q, kv, layout, 1.0f, whole(layout));
  if (!fits_tiles(w)) return {};
  StreamWork coded;
  const AttendRoute route = plan_rows(b, w, coded);
  return {route, w.splits};
}

CodedStreamPlan coded_stream_plan(const Backend& cuda, const Tensor& q, const KvLayer& kv, const Layout& layout) {
  const auto& b = dynamic_cast<const CudaBackend&>(cuda);
  expect(q, kv, layout);
  const AttentionWork a = work_for(q, q, kv, layout, 1.0f, whole(layout));
  StreamWork w;
  const bool taken = fits_tiles(a) && plan_coded_stream(w, a, b.machine(), b.architecture());
  return {b.architecture(), taken, w.of.a.splits, w.stages / 2};
}

int attention_cluster(std::int64_t shared_memory) {
  return std::min(decode_cluster(shared_memory), stream_cluster(shared_memory));
}

AttentionWork attention_work(const Tensor& q, const KvLayer& kv, const Layout& layout, const AttentionRules& rules) {
  expect(q, kv, layout);
  return work_for(q, q, kv, layout, rules, whole(layout));
}

Tensor CudaBackend::attend(const Tensor& q, const KvLayer& kv, const Layout& layout, const AttentionRules& rules) {
  enter();
  expect(q, kv, layout);
  Tensor out = allocate(q.shape(), q.dtype());
  if (layout.rows == 0) return out;
  const AttentionWork all = work_for(q, out, kv, layout, rules, whole(layout));
  if (!fits_tiles(all)) {
    launch_plain(all, stream_, dependent_launch());
    return out;
  }
  for (const Part& part : parts_of(layout)) attend_rows(*this, work_for(q, out, kv, layout, rules, part));
  return out;
}

Tensor CudaBackend::rope_attend(Tensor q, Tensor k, const Tensor& v, const KvLayer& kv, const Layout& layout,
                                const RotaryRules& rotation, const AttentionRules& rules) {
  enter();
  expect(q, kv, layout);
  const bool half =
      q.dtype() == DType::bf16 && k.dtype() == DType::bf16 && v.dtype() == DType::bf16 && kv.dtype == DType::bf16;
  if (!half || layout.rows == 0 || layout.mutual || !rotates_plainly(rotation, kv.head_size) ||
      !fits_tiles(work_for(q, q, kv, layout, rules, whole(layout))))
    return Backend::rope_attend(q, k, v, kv, layout, rotation, rules);
  const Tensor out = allocate(q.shape(), q.dtype());
  for (const Part& part : parts_of(layout)) {
    DecodeWork work{work_for(q, out, kv, layout, rules, part),
                    k.data<Bf16>(),
                    v.data<Bf16>(),
                    k.row_stride(),
                    v.row_stride(),
                    layout.positions.data<std::int32_t>(),
                    layout.slots.data<std::int32_t>(),
                    rotation.frequencies.data<float>()};
    work.settled = settled(kv);
    if (attend_few(*this, work, machine())) {
      written(kv);
      continue;
    }
    const bool rotates = takes_prompt(*this, work.a) && rotates_queries(work.a);
    rope_store(rotates ? Tensor() : rows_of(q, part), rows_of(k, part), rows_of(v, part), kv, rows_of(layout, part),
               rotation);
    if (rotates) work.a.positions = work.positions, work.a.frequencies = work.frequencies;
    attend_rows(*this, work.a);
  }
  return out;
}

}  // namespace foretoken
