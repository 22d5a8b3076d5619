// Attention of one tile of queries over a bf16 cache: the steps of tile_step.cuh, chunk by chunk, and what becomes of
// their sums. This header must not know how many blocks there are.
#pragma once
#include "kernels/cuda/attention/tile_step.cuh"

namespace foretoken {

template <int kHead, int kGroups, int kStages> struct TileBlock : TileStep<kHead, kGroups, kStages> {
  using Step = TileStep<kHead, kGroups, kStages>;
  using Step::thread, Step::warp, Step::lane, Step::sum, Step::mass, Step::peak, Step::total, Step::total_mass,
      Step::total_peak, Step::q_held, Step::kRows, Step::kChunks, Step::kColumns, Step::kHold;
  using Step::work, Step::shared, Step::place, Step::bounds, Step::fetched, Step::head, Step::part, Step::end_chunk;
  using typename Step::Cursor;

  using Step::Step;

  // ---- chunks ----
  __device__ void clear_chunk() {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[g][n][i] = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) mass[g][i] = 0;
      peak[g][0] = peak[g][1] = kUnseen;
    }
  }
  __device__ std::int64_t vector_at(int v) const {  // row * heads + head
    const int at = place.vector + v;
    return std::int64_t(place.row + at / work.group) * work.heads + head * work.group + at % work.group;
  }

  __device__ void close_chunk(int chunk) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int v = g * 16 + h * 8 + lane / 4;
        const Fold by = fold(total_peak[g][h], peak[g][h], work.scale);
        total_mass[g][h] = folded(total_mass[g][h], mass[g][h * 2], by);
#pragma unroll
        for (int n = 0; n < kColumns; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) total[g][n][h * 2 + i] = folded(total[g][n][h * 2 + i], sum[g][n][h * 2 + i], by);
        if (v < place.vectors && shared.sights.sole[v] < 0) leave_chunk(chunk, g, h, v);
      }
    }
    clear_chunk();
  }

  // Of every chunk that the vector sees, whatever its scores are: fold_chunks reads them all.
  __device__ void leave_chunk(int chunk, int g, int h, int v) const {
    if (chunk < shared.sights.first[v] / kChunk || chunk * kChunk >= shared.sights.end[v]) return;
    const std::int64_t at = vector_at(v) * work.chunks + chunk;
    if (warp == 0 && lane % 4 == 0) work.peaks[at] = {peak[g][h], mass[g][h * 2]};
    float* to = work.sums + at * work.head_size;
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const int column = (warp * kColumns + n) * 8 + lane % 4 * 2;
      if (column < work.head_size) *reinterpret_cast<float2*>(to + column) = {sum[g][n][h * 2], sum[g][n][h * 2 + 1]};
    }
  }

  __device__ void store() const {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int v = g * 16 + h * 8 + lane / 4;
        if (v >= place.vectors || shared.sights.sole[v] != part) continue;
        const float inverse = inverse_mass(total_mass[g][h]);
        const std::int64_t at = vector_at(v) * work.head_size;
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
          const int column = (warp * kColumns + n) * 8 + lane % 4 * 2;
          if (column >= work.head_size) continue;
          const float low = total[g][n][h * 2] * inverse, high = total[g][n][h * 2 + 1] * inverse;
          if (work.q_bf16)
            *reinterpret_cast<std::uint32_t*>(static_cast<Bf16*>(work.out) + at + column) = pack_bf16(low, high);
          else
            *reinterpret_cast<float2*>(static_cast<float*>(work.out) + at + column) = {low, high};
        }
      }
    }
  }

  // ---- all of it ----
  // False: there is nothing to do.
  __device__ bool open() {
    place = find_tile(work, int(gridDim.x - 1 - blockIdx.x), work.tile);
    if (place.sequence < 0) return false;
    head = int(blockIdx.y), part = int(blockIdx.z);
    shared.sights.fill(work, place, thread);
    __syncthreads();
    bounds = TileBounds::of(shared.sights, place.vectors);
    end_chunk = min((part + 1) * work.part, (bounds.end + kChunk - 1) / kChunk);
    return part == 0 || max(bounds.low / kChunk, part * work.part) < end_chunk;
  }

  // Until the step in `stage` is there for all warps; asks for the one that the stage before it has room for.
  __device__ void bring(int stage) {
    if constexpr (kStages == 1) {
      __syncthreads();  // all warps have read the step before
      Step::fetch(0);
      wait_copies<0>();
      __syncthreads();
    } else {
      wait_copies<kStages - 2>();
      __syncthreads();
      Step::fetch(stage == 0 ? kStages - 1 : stage - 1);
    }
  }

  __device__ void run() {
    Cursor at;
    at.start(max(bounds.low / kChunk, part * work.part), shared.sights, bounds, place, work.group, end_chunk);
    fetched = at;
    Step::look_up();
    wait_for_earlier();
    for (int i = 0; i < kStages - 1; ++i) Step::fetch(i);
    load_queries<kChunks>(work, place, head, 0, kRows, reinterpret_cast<std::byte*>(shared.q), thread,
                          swizzled<kChunks>);
    clear_chunk();
    for (int g = 0; g < kGroups; ++g) total_peak[g][0] = total_peak[g][1] = kUnseen;
    __syncthreads();
    if constexpr (kHold)
      for (int k = 0; k < kHead / 16; ++k) q_held[k] = Step::q_quad(0, k);
    for (int stage = 0; !at.done(end_chunk); stage = stage + 1 == kStages ? 0 : stage + 1) {
      bring(stage);
      float s[kGroups][2][4];
      Step::scores(stage, s);
      Step::hide(at, s);
      Step::offer_peaks(s);
      __syncthreads();
      Step::weigh(s);
      __syncthreads();
      Step::add_values(stage);
      const int chunk = at.chunk;
      at.advance(shared.sights, bounds, place, work.group, end_chunk);
      if (at.done(end_chunk) || at.chunk != chunk) close_chunk(chunk);
    }
    wait_copies<0>();
    store();
  }
};

template <int kHead, int kGroups, int kStages> __global__ void __launch_bounds__(kTileThreads, kHead >= 256 ? 1 : 2)
    attend_tiles(const __grid_constant__ AttentionWork work) {
  extern __shared__ __align__(128) std::byte memory[];
  TileBlock<kHead, kGroups, kStages> block(work, *reinterpret_cast<TileShared<kHead, kGroups, kStages>*>(memory));
  let_later_start();
  if (block.open())
    block.run();
  else
    wait_for_earlier();
}

}  // namespace foretoken
