// What a block of attention_stream.cuh works on: its rows and chunks, the ring of boxes that one warp asks for, and how the rows
// themselves are turned and placed, in shared memory and in their pages. This room must not know how a step is summed.
#pragma once
#include "kernels/cuda/attention_decode_rows.cuh"
#include "kernels/cuda/page_boxes.cuh"

namespace foretoken {

constexpr int kStreamVectors = 8, kStreamWarps = 8;  // query vectors of a warp; warps that compute, at most

// A DecodeWork of heads of 64 or 128. A block takes all chunks of a sequence and kv head.
struct StreamWork {
  DecodeWork of;
  CUtensorMap keys, values;
  int box = 0;    // rows of a copy
  int slots = 2;  // of the ring: keys and values of a step by turns
  int warps = 1;  // that compute; one more asks for boxes
};

constexpr int kMostSlots = 16;
struct StreamShared {
  std::uint64_t full[kMostSlots], empty[kMostSlots];
  int low[kStreamVectors * kStreamWarps], high[kStreamVectors * kStreamWarps], slot[kStreamVectors * kStreamWarps];  // of each row: what it sees, where it goes
};

// Bytes of shared memory: Bf16 ring[slots][kHead / 64][kStep][64], StreamShared, Bf16 own[2][longest][kHead],
// Turn turns[longest][kHead / 2].
inline std::size_t stream_bytes(const StreamWork& w) {
  const std::size_t head = std::size_t(w.of.a.head_size);
  return std::size_t(w.slots) * kStep * head * 2 + sizeof(StreamShared) + std::size_t(w.of.a.longest) * head * 8;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <int kHead> struct StreamRows {
  static constexpr int kHalves = kHead / 64, kChunks = kHead / 8, kSlotBytes = kStep * kHead * 2;

  const StreamWork& work;
  const DecodeWork& of;
  const AttentionWork& a;
  std::byte* const ring;
  StreamShared& shared;
  int sequence, head, row, rows, vectors;    // kv head; the first row and how many
  int all_low, all_high, own_low, own_high;  // depths that every row sees; slots of the rows
  int seen_low, seen_high;                   // nobody sees others
  int step, end;
  const std::int32_t* table;
  Bf16* own;
  Turn* turns;
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32, threads;  // threads: those that compute

  __device__ StreamRows(const StreamWork& w, std::byte* memory)
      : work(w), of(w.of), a(w.of.a), ring(memory), shared(*reinterpret_cast<StreamShared*>(memory + w.slots * kSlotBytes)), threads(w.warps * 32) {
    own = reinterpret_cast<Bf16*>(&shared + 1);
    turns = reinterpret_cast<Turn*>(own + 2 * a.longest * kHead);
  }

  // ---- what there is to do; false: nothing ----
  __device__ bool open() {
    sequence = int(blockIdx.x), head = int(blockIdx.y);
    table = a.tables + std::int64_t(sequence) * a.table_width;
    const bool single = a.rows == a.sequences && a.longest == 1;
    row = single ? sequence : a.begins[sequence], rows = single ? 1 : min(a.begins[sequence + 1] - row, a.longest), vectors = rows * a.group;
    if (rows <= 0) return false;
    int least[3] = {INT_MAX, INT_MAX, INT_MAX}, most[3] = {};
    for (int r = lane; r < rows; r += 32) {
      const int visible = a.visible[row + r], from = a.first ? max(a.first[row + r], 0) : 0, slot = of.slots[row + r];
      least[0] = min(least[0], min(from, slot)), least[1] = min(least[1], visible), least[2] = min(least[2], slot);
      most[0] = max(most[0], max(visible, slot + 1)), most[1] = max(most[1], from), most[2] = max(most[2], slot + 1);
      if (warp == 0) shared.low[r] = from, shared.high[r] = visible, shared.slot[r] = slot;
    }
    seen_low = __reduce_min_sync(~0u, least[0]), all_high = __reduce_min_sync(~0u, least[1]), own_low = __reduce_min_sync(~0u, least[2]);
    seen_high = __reduce_max_sync(~0u, most[0]), all_low = __reduce_max_sync(~0u, most[1]), own_high = __reduce_max_sync(~0u, most[2]);
    step = seen_low / kStep, end = (seen_high + kStep - 1) / kStep;
    if (thread < work.slots) open_copies(&shared.full[thread], 1), open_copies(&shared.empty[thread], work.warps);
    show_barriers();
    return true;
  }

  // ---- the ring, of a warp that does nothing else: lane l asks for box l % boxes of half l / boxes ----
  __device__ void fill() {
    const int boxes = kStep / work.box, box = lane % boxes, half = lane / boxes;
    const bool mine = half < kHalves;
    const auto page_of = [&](int of_step) {
      const int depth = of_step * kStep + box * work.box, index = a.page_shift >= 0 ? depth >> a.page_shift : depth / a.page_rows;
      return mine && depth < seen_high && index < a.table_width ? table[index] : 0;
    };
    const std::uint32_t to = shared_address(ring) + unsigned(half * kStep + box * work.box) * 128;
    int page = page_of(step), behind = page_of(step + 1), slot = 0, parity = 1;
    wait_for_earlier();
    for (int of_step = step; of_step < end; ++of_step) {
      const int depth = of_step * kStep + box * work.box, row_in_page = a.page_shift >= 0 ? depth & (a.page_rows - 1) : depth % a.page_rows;
      const bool read = mine && depth < seen_high && depth + work.box > seen_low;
      const int bytes = __popc(__ballot_sync(~0u, read)) * work.box * 128;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        wait_for_boxes(&shared.empty[slot], parity);
        if (lane == 0) expect_copies(&shared.full[slot], bytes);
        __syncwarp();
        if (read) copy_box(to + unsigned(slot * kSlotBytes), i ? work.values : work.keys, half * 64, row_in_page, head, page, &shared.full[slot]);
        if (++slot == work.slots) slot = 0, parity ^= 1;
      }
      page = behind, behind = page_of(of_step + 2);
    }
  }
  __device__ void meet() const {  // of those that compute
    if (threads == 32) __syncwarp();
    else asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
  }

  // ---- the rows themselves ----
  __device__ void turn_table() {
    const int half = kHead / 2;
    for (int i = thread; i < rows * half; i += threads) turns[i] = turn_of(of.positions[row + i / half], of.frequencies[i % half]);
  }
  // Of rows with one slot (padding) the last counts.
  __device__ bool last_of_slot(int r) const {
    for (int other = r + 1; other < rows; ++other)
      if (shared.slot[other] == shared.slot[r]) return false;
    return true;
  }
  // Into `own` and into their pages.
  __device__ void place_rows() {
    constexpr int kPairs = kChunks / 2;
    for (int i = thread; i < rows * (kPairs + kChunks); i += threads) {
      const int r = i / (kPairs + kChunks), c = i % (kPairs + kChunks), slot = shared.slot[r];
      if (!last_of_slot(r)) continue;
      const int number = a.page_shift >= 0 ? slot >> a.page_shift : slot / a.page_rows;
      std::byte* const page = const_cast<std::byte*>(a.pool) + table[number] * a.page_bytes;
      const std::int64_t at = (std::int64_t(head) * a.page_rows + (slot - number * a.page_rows)) * kChunks;
      if (c < kPairs) {
        const uint4* const x = reinterpret_cast<const uint4*>(of.k + (row + r) * of.k_stride + head * kHead);
        uint4 low = x[c], high = x[c + kPairs];
        turn_eight(low, high, turns + r * kHead / 2 + c * 8);
        uint4 *const to = reinterpret_cast<uint4*>(own) + r * kChunks, *const too = reinterpret_cast<uint4*>(page + a.keys) + at;
        to[c] = too[c] = low, to[c + kPairs] = too[c + kPairs] = high;
      } else {
        const uint4 x = reinterpret_cast<const uint4*>(of.v + (row + r) * of.v_stride + head * kHead)[c - kPairs];
        reinterpret_cast<uint4*>(own)[(a.longest + r) * kChunks + c - kPairs] = reinterpret_cast<uint4*>(page + a.values)[at + c - kPairs] = x;
      }
    }
  }
  // This warp's vectors as the second factors of products, turned: lane l holds of vector l / 4 numbers 16 k + 2 (l % 4), the next, and
  // those eight behind them.
  __device__ void load_queries(std::uint32_t (&q)[kHead / 16][2]) const {
    const int v = warp * kStreamVectors + lane / 4, r = min(v, vectors - 1) / a.group;
    const Bf16* const from = static_cast<const Bf16*>(a.q) + (row + r) * a.q_stride + (head * a.group + v % a.group) * kHead + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kHead / 8; ++i) q[i / 2][i % 2] = v < vectors ? *reinterpret_cast<const std::uint32_t*>(from + i * 8) : 0;
    const Turn* const by = turns + r * kHead / 2 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kHead / 16; ++i) {
      std::uint32_t &x = q[i / 2][i % 2], &y = q[i / 2 + kHead / 32][i % 2];
      const float2 left = turned(__uint_as_float(x << 16), __uint_as_float(y << 16), by[i * 8]);
      const float2 right = turned(__uint_as_float(x & 0xffff0000u), __uint_as_float(y & 0xffff0000u), by[i * 8 + 1]);
      x = pack_bf16(left.x, right.x), y = pack_bf16(left.y, right.y);
    }
  }

  // ---- steps that hold the rows themselves, or what somebody does not see ----
  __device__ bool odd(int from) const { return from < all_low || from + kStep > all_high || (from < own_high && from + kStep > own_low); }
  __device__ uint4* line(int slot, int key, int c) const {
    return reinterpret_cast<uint4*>(ring + slot * kSlotBytes + (c / 8 * kStep + key) * 128) + (c % 8 ^ (key & 7));
  }
  __device__ void mend(int slot, int from, bool values) const {
    for (int i = thread; values && i < kStep * kChunks; i += threads) {
      const int key = i / kChunks, depth = from + key;
      bool seen = depth >= all_low && depth < all_high;
      for (int r = 0; r < rows && !seen; ++r) seen = depth >= shared.low[r] && depth < shared.high[r];
      if (!seen) *line(slot, key, i % kChunks) = uint4{};
    }
    meet();
    for (int i = thread; i < rows * kChunks; i += threads) {
      const int r = i / kChunks, key = shared.slot[r] - from;
      if (key >= 0 && key < kStep && last_of_slot(r)) *line(slot, key, i % kChunks) = reinterpret_cast<const uint4*>(own)[(values * a.longest + r) * kChunks + i % kChunks];
    }
    show_to_copies();
    meet();
  }
};

#endif

bool stream_is_built();  // for the architecture of this machine
void launch_stream(const StreamWork& work, cudaStream_t stream);

}  // namespace foretoken
