// attend and rope_attend: the choice of kernel, number of blocks and tile sizes. The mathematics is in attention.cuh.
#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cuda/attention/boxes.cuh"
#include "kernels/cuda/attention/decode_rows.cuh"
#include "kernels/cuda/attention/stream_rows.cuh"
#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

constexpr int kLargestTile = 64;                                // query vectors
constexpr std::int64_t kMostScratch = std::int64_t(512) << 20;  // bytes

[[noreturn]] void refuse(const std::string& what) { throw Error("cuda: attend: " + what); }

void expect(const Tensor& q, const KvLayer& kv, const Layout& layout) {
  if (q.dtype() != DType::f32 && q.dtype() != DType::bf16)
    refuse(std::string("queries are f32 or bf16, not ") + name_of(q.dtype()));
  if (kv.dtype != DType::f32 && kv.dtype != DType::bf16 && !has_scales(kv.dtype))
    refuse(std::string("keys and values are f32, bf16, i8 or e4m3, not ") + name_of(kv.dtype) +
           "; choose one of them as the cache's type");
  if (q.dim(0) != layout.rows)
    refuse("queries " + q.shape().text() + " do not match a layout of " + std::to_string(layout.rows) + " rows");
  if (kv.head_size < 1 || kv.head_size > 512 || q.dim(1) % (std::int64_t(kv.head_size) * kv.kv_heads) != 0)
    refuse("queries " + q.shape().text() + " do not match " + std::to_string(kv.kv_heads) + " heads of " +
           std::to_string(kv.head_size) + " numbers; a head has 512 at most, and queries are whole groups of heads");
  if (!layout.begins || layout.longest < 1)
    refuse("the layout does not say where each table's rows begin (Layout::begins, longest)");
}

AttentionWork work_for(const Tensor& q, const Tensor& out, const KvLayer& kv, const Layout& layout, float scale) {
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
  w.rows = layout.rows, w.sequences = layout.sequences, w.words = layout.words, w.table_width = layout.table_width;
  w.longest = std::min(layout.longest, layout.rows);
  w.begins = layout.begins.data<std::int32_t>(), w.owner = layout.owner.data<std::int32_t>(),
  w.visible = layout.visible.data<std::int32_t>();
  w.first = layout.first ? layout.first.data<std::int32_t>() : nullptr, w.tables = layout.tables.data<std::int32_t>();
  w.ancestors = layout.words > 0 ? layout.ancestors.data<std::uint64_t>() : nullptr;
  w.scale = std::max(scale * 1.44269504f, 1e-30f);  // scale 0 would make the score of a masked key NaN
  w.chunks = w.split_chunks = std::max(1, (layout.deepest + kChunk - 1) / kChunk);
  return w;
}

bool fits_tiles(const AttentionWork& w) {
  return w.kv_bf16 && w.head_size <= 256 && w.head_size % 8 == 0 && w.page_bytes % 16 == 0 && w.keys % 16 == 0 &&
         w.values % 16 == 0 && reinterpret_cast<std::uintptr_t>(w.pool) % 16 == 0;
}

bool fits_coded_tiles(const AttentionWork& w) {
  return w.codes != CacheCodes::none && w.head_size <= 256 && w.head_size % 16 == 0 &&
         (w.page_bytes | w.keys | w.values) % 16 == 0 && reinterpret_cast<std::uintptr_t>(w.pool) % 16 == 0;
}

bool fits_prompt(int head_size, std::int64_t limit) { return prompt_bytes(head_size <= 64 ? 64 : 128) <= limit; }

bool is_prompt(const AttentionWork& w) {
  return w.words == 0 && w.head_size <= 128 && w.longest * w.group > kLargestTile;
}

std::int64_t scratch_bytes(const AttentionWork& w) {
  return std::int64_t(w.rows) * w.heads * w.chunks * (w.head_size + 2) * 4;
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

// Context splits: how many chunks one block takes, so that few long contexts occupy all multiprocessors and many short
// ones do not need the fold. One block takes about 2.5 us for a chunk of heads of 128 (measured); all blocks together
// are bound by the memory bandwidth.
void choose_splits(AttentionWork& w, int multiprocessors) {
  if (w.chunks < 2 || scratch_bytes(w) > kMostScratch) return;
  const double blocks = double(tiles_of(w, w.tile)) * w.kv_heads, at_once = 2.0 * multiprocessors;
  const double chunk = (0.6e-6 + w.head_size * 15e-9) * (w.tile > 32   ? 2
                                                         : w.tile > 16 ? 1.35
                                                                       : 1),
               fold = 2e-6 + double(scratch_bytes(w)) / 0.8e12;
  const double least = blocks * w.chunks * kChunk * w.head_size * 4 / 4.2e12;
  double best = INFINITY;
  for (int splits = 1; splits <= w.chunks; ++splits) {
    const int each = (w.chunks + splits - 1) / splits;
    if ((w.chunks + each - 1) / each != splits) continue;
    const double alone = std::ceil(blocks * splits / at_once) * each * chunk,
                 time = std::max(least, alone) + alone / 2 + (splits > 1 ? fold : 0);
    if (time < best) best = time, w.split_chunks = each, w.splits = splits;
  }
}

// Multiprocessors; the largest cluster in blocks; bytes of shared memory of a block (at most) and of a multiprocessor.
struct DeviceLimits {
  int multiprocessors, cluster;
  std::int64_t block_memory, multiprocessor_memory;
};

bool has_aligned_rows(const DecodeWork& w) {
  return w.a.q_aligned && (reinterpret_cast<std::uintptr_t>(w.k) | reinterpret_cast<std::uintptr_t>(w.v)) % 16 == 0 &&
         (w.k_stride | w.v_stride) % 8 == 0;
}

// True if nearly all rows belong to one sequence: the other block table holds padding (or, where `longest` is padded,
// one or two rows of another sequence).
bool is_one_sequence(const AttentionWork& a) { return a.rows <= a.longest && a.sequences <= 2; }

// The most chunks that a decode block may process in sequence (measured: 2 to 3 us each) before the stream route is
// faster. With more query vectors than a tile, decode is faster for 16 rows of one sequence, but not for two sequences
// of 8 rows, nor for 8 rows after a context of 4096.
int decode_limit(const AttentionWork& a) {
  if (a.longest * a.group > kDecodeTile) return is_one_sequence(a) ? 2 : 0;
  return a.sequences * a.kv_heads <= 32 ? 3 : 2;
}

// Whether the decode route takes this: so few rows that the latency of one chunk dominates. Sets the context splits so
// that all blocks run at once (except those of a table of padding, which have one chunk), each with at most
// `most_chunks` chunks in sequence.
bool plan_decode(DecodeWork& w, const Layout& layout, const DeviceLimits& device, int most_chunks) {
  constexpr int kMostVectors = 64;  // with more, the other routes were not compared with this one
  AttentionWork& a = w.a;
  const int vectors = a.longest * a.group, least = (a.chunks + device.cluster - 1) / device.cluster,
            sequences = is_one_sequence(a) ? 1 : a.sequences;
  if (layout.words > 0 || a.head_size > 128 || a.head_size % 16 != 0 || vectors > kMostVectors ||
      a.longest > kDecodeRows || a.group > kDecodeRows || !has_aligned_rows(w))
    return false;
  a.tile = vectors <= kDecodeTile ? kDecodeTile : 2 * kDecodeTile;
  for (a.split_chunks = least; a.split_chunks <= most_chunks; ++a.split_chunks) {
    a.splits = (a.chunks + a.split_chunks - 1) / a.split_chunks;
    const std::int64_t bytes = decode_bytes(w),
                       blocks = std::int64_t(sequences) * a.kv_heads * a.splits * decode_blocks(a);
    const std::int64_t at_once = std::min<std::int64_t>(
        2, device.multiprocessor_memory / (bytes + kReservedSharedMemory));  // two: the limit set by registers
    if (bytes <= device.block_memory && blocks <= at_once * device.multiprocessors) return true;
  }
  return false;
}

// Whether the pages can be described as TMA boxes.
bool has_boxes(StreamWork& w) {
  const AttentionWork& a = w.of.a;
  w.warps = (a.longest * a.group + kStreamVectors - 1) / kStreamVectors;
  if (!has_aligned_rows(w.of) || a.words > 0 || (a.head_size != 64 && a.head_size != 128) || w.warps > kStreamWarps)
    return false;
  w.box = describe_pages(w.keys, w.values, a);
  return w.box > 0;
}

// Whether the stream route takes this. Sets how many blocks share the chunks of a sequence, and the depth of their
// rings. All blocks run at once: a second wave of clusters costs as much as the first, and a cluster costs about 3 us
// (measured), so sequences that occupy nearly all multiprocessors get one block each.
bool plan_stream(StreamWork& w, const DeviceLimits& device) {
  constexpr int kMostBlocks = 4, kWarps = 12;  // per multiprocessor: bounds from latency and from registers
  // Ring stages that a multiprocessor requests at once: more only queue, and delay the requests of other
  // multiprocessors (measured).
  constexpr int kAtOnce = 8;
  if (!has_boxes(w)) return false;
  AttentionWork& a = w.of.a;
  const int units = a.sequences * a.kv_heads, multiprocessors = device.multiprocessors;
  int blocks = std::clamp(kWarps / (w.warps + 1), 1, kMostBlocks);
  a.split_chunks = a.chunks, a.splits = 1;
  if (10 * units < 9 * multiprocessors) {
    const int most =
        std::clamp(85 * std::min(blocks, 3) * multiprocessors / 100 / units, 1, std::min(device.cluster, a.chunks));
    a.split_chunks = (a.chunks + most - 1) / most, a.splits = (a.chunks + a.split_chunks - 1) / a.split_chunks;
  }
  for (blocks = std::clamp((units * a.splits + multiprocessors - 1) / multiprocessors, 1, blocks);; --blocks) {
    w.stages = kMostStages;
    while (w.stages > 2 && blocks * (stream_bytes(w) + kReservedSharedMemory) > device.multiprocessor_memory)
      --w.stages;
    if (w.stages * a.head_size < 384 && blocks > 1) continue;
    w.stages = std::min(w.stages, std::max(2, (kAtOnce + blocks - 1) / blocks));
    // All shared memory, so that no further block fits on a multiprocessor and blocks are distributed evenly.
    w.bytes = std::max(stream_bytes(w),
                       std::min(device.block_memory, device.multiprocessor_memory / blocks - kReservedSharedMemory));
    return w.bytes <= device.block_memory;
  }
}

}  // namespace

int attention_cluster(std::int64_t shared_memory) {
  return std::min(decode_cluster(shared_memory), stream_cluster(shared_memory));
}

Tensor CudaBackend::attend(const Tensor& q, const KvLayer& kv, const Layout& layout, float scale) {
  enter();
  expect(q, kv, layout);
  Tensor out = allocate(q.shape(), q.dtype());
  if (layout.rows == 0) return out;
  AttentionWork work = work_for(q, out, kv, layout, scale);
  const bool coded = fits_coded_tiles(work);
  if (!coded && !fits_tiles(work)) {
    launch_plain(work, stream_, dependent_launch());
    return out;
  }
  if (!coded && is_prompt(work) && warpgroups() && fits_prompt(work.head_size, shared_memory_)) {
    launch_prompt(work, stream_, reads_early());
    return out;
  }
  choose_tile(work, multiprocessors_);
  choose_splits(work, multiprocessors_);
  Tensor sums, peaks;
  if (work.splits > 1) {
    const std::int64_t pieces = std::int64_t(work.rows) * work.heads * work.chunks;
    sums = allocate({pieces, work.head_size}, DType::f32), peaks = allocate({pieces, 2}, DType::f32);
    work.sums = sums.data<float>(), work.peaks = peaks.data<float2>();
  }
  if (coded)
    launch_coded_tiles(work, stream_, reads_early());
  else
    launch_tiles(work, shared_memory_, stream_, reads_early());
  if (work.splits > 1) launch_fold(work, stream_, dependent_launch());
  return out;
}

Tensor CudaBackend::rope_attend(Tensor q, Tensor k, const Tensor& v, const KvLayer& kv, const Layout& layout,
                                const Tensor& frequencies, float scale) {
  enter();
  expect(q, kv, layout);
  const bool half =
      q.dtype() == DType::bf16 && k.dtype() == DType::bf16 && v.dtype() == DType::bf16 && kv.dtype == DType::bf16;
  if (half && architecture_ >= 90 && layout.rows > 0) {
    const Tensor out = allocate(q.shape(), q.dtype());
    DecodeWork work{work_for(q, out, kv, layout, scale),
                    k.data<Bf16>(),
                    v.data<Bf16>(),
                    k.row_stride(),
                    v.row_stride(),
                    layout.positions.data<std::int32_t>(),
                    layout.slots.data<std::int32_t>(),
                    frequencies.data<float>()};
    work.settled = settled(kv);
    const DeviceLimits device{multiprocessors_, cluster_, shared_memory_, multiprocessor_memory_};
    const auto with = [&](const auto& launch, const auto& what) {
      launch(what, stream_, reads_early());
      written(kv);
      return out;
    };
    if (fits_tiles(work.a) && plan_decode(work, layout, device, decode_limit(work.a))) return with(launch_decode, work);
    StreamWork stream{work, {}, {}};
    if (fits_tiles(work.a) && plan_stream(stream, device)) return with(launch_stream, stream);
    if (fits_tiles(work.a) && plan_decode(work, layout, device, 3)) return with(launch_decode, work);
  }
  if (half && layout.rows > 0 && warpgroups()) {
    const Tensor out = allocate(q.shape(), q.dtype());
    AttentionWork work = work_for(q, out, kv, layout, scale);
    if (fits_tiles(work) && is_prompt(work) && fits_prompt(work.head_size, shared_memory_) && rotates_queries(work)) {
      rope_store({}, k, v, kv, layout, frequencies);
      work.positions = layout.positions.data<std::int32_t>(), work.frequencies = frequencies.data<float>();
      launch_prompt(work, stream_, dependent_launch());
      return out;
    }
  }
  return Backend::rope_attend(q, k, v, kv, layout, frequencies, scale);
}

}  // namespace foretoken
