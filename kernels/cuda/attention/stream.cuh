// Rotation, storing and attention of a few rows of each of many sequences in one kernel, bound by memory bandwidth: a
// warp computes 8 query vectors of one kv head over whole steps without exchanging data, while another warp fills a
// ring of boxes by TMA. Keys and values are the first factors of products (S^T = K Q^T, O^T = V^T P^T), so that few
// vectors do not waste rows of a product. Where the sequences do not occupy all multiprocessors, several blocks share
// the context of a sequence: a cluster, which folds the chunks, or blocks that write the chunks to memory. The keys and
// values of the rows themselves are not read from global memory. The arithmetic is that of attention.cuh in the order
// of tiles.cuh: the same bits. This header must not know how it is launched.
#pragma once
#include <cooperative_groups.h>

#include "kernels/cuda/attention/stream_rows.cuh"

namespace foretoken {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <int kHead> struct StreamBlock : PageStreamRows<kHead> {
  using Rows = PageStreamRows<kHead>;
  using Rows::all_low, Rows::all_high, Rows::step, Rows::peaks, Rows::sums, Rows::thread, Rows::warp, Rows::lane,
      Rows::threads, Rows::ring, Rows::kStageBytes;
  using Rows::work, Rows::a, Rows::shared, Rows::row, Rows::rows, Rows::vectors, Rows::head, Rows::rank, Rows::begin,
      Rows::chunks, Rows::used, Rows::range, Rows::end;
  static constexpr int kTiles = kHead / 16;  // of 16 numbers of a head

  // Lane l holds vectors 2 (l % 4) + h, h = 0 and 1, of the warp: of 16 keys or numbers of a head those at l / 4 ([h])
  // and l / 4 + 8 ([2 + h]).
  std::uint32_t q[kTiles][2];
  int low[2], high[2];
  // Units that each block folds; the block and unit that receive this warp's first unit.
  int share = 0, receiver = 0, receiver_unit = 0;
  float sum[kTiles][4], mass[4], peak[2];  // of the chunk
  float total[kTiles][4];                  // of the chunks before
  Total totals[2];

  using Rows::Rows;

  // ---- a step ----
  __device__ void scores(int stage, float (&s)[4][4]) const {
    const std::uint32_t keys = shared_address(ring) + unsigned(stage * kStageBytes + (lane & 15) * 128);
#pragma unroll
    for (int t = 0; t < 4; ++t) s[t][0] = s[t][1] = s[t][2] = s[t][3] = 0;
#pragma unroll
    for (int k = 0; k < kTiles; ++k) {
      const std::uint32_t at = keys + unsigned(k / 4 * kStep * 128 + ((k % 4 * 2 + (lane >> 4)) ^ (lane & 7)) * 16);
#pragma unroll
      for (int t = 0; t < 4; ++t) multiply_add(s[t], load_quad(at + unsigned(t * 16 * 128)), q[k][0], q[k][1]);
    }
  }
  __device__ void hide(int from, float (&s)[4][4]) const {
    if (from >= all_low && from + kStep <= all_high) return;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int depth = from + i / 4 * 16 + i / 2 % 2 * 8 + lane / 4, h = i % 2;
      if (depth < low[h] || depth >= high[h]) s[i / 4][i % 4] = kUnseen;
    }
  }
  // Converts scores to weights, the second factors for 16 keys each, and makes the sums relative to the new peak.
  __device__ void weigh(float (&s)[4][4], std::uint32_t (&weights)[4][2]) {
    float most[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      most[h] = fmaxf(s[0][h], s[0][2 + h]);
#pragma unroll
      for (int t = 1; t < 4; ++t) most[h] = fmaxf(most[h], fmaxf(s[t][h], s[t][2 + h]));
    }
#pragma unroll
    for (int i = 4; i < 32; i *= 2) {
      const float left = __shfl_xor_sync(~0u, most[0], i), right = __shfl_xor_sync(~0u, most[1], i);
      most[0] = fmaxf(most[0], left), most[1] = fmaxf(most[1], right);
    }
    const Weigher by[2] = {weigher_of(a.rules, peak[0], most[0]), weigher_of(a.rules, peak[1], most[1])};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      weights[i / 2][i % 2] = transposed(pack_bf16(by[0](s[i / 2][i % 2 * 2]), by[1](s[i / 2][i % 2 * 2 + 1])));
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[m][i] *= by[i % 2].keep;
#pragma unroll
    for (int i = 0; i < 4; ++i) mass[i] *= by[i % 2].keep;
  }
  // kSome: only the tiles of 16 keys in the mask `tiles`; skipping a tile that no row attends to changes no bit.
  template <bool kSome> __device__ void add_values(int stage, const std::uint32_t (&weights)[4][2], unsigned tiles) {
    constexpr Quad kOne = {{kOnes, kOnes, kOnes, kOnes}};
    const std::uint32_t values =
        shared_address(ring) + unsigned(stage * kStageBytes + ((lane & 7) + (lane >> 4) * 8) * 128);
#pragma unroll
    for (int t = 0; t < 4; ++t) multiply_add(mass, kOne, weights[t][0], weights[t][1]);
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      if (kSome && !(tiles >> t & 1)) continue;
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const std::uint32_t at =
            values + unsigned((m / 4 * kStep + t * 16) * 128 + ((m % 4 * 2 + (lane >> 3 & 1)) ^ (lane & 7)) * 16);
        multiply_add(sum[m], load_quad_transposed(at), weights[t][0], weights[t][1]);
      }
    }
  }

  // ---- chunks ----
  __device__ void clear_chunk() {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) sum[m][0] = sum[m][1] = sum[m][2] = sum[m][3] = 0;
    mass[0] = mass[1] = mass[2] = mass[3] = 0, peak[0] = peak[1] = kUnseen;
  }
  __device__ void close_chunk(int chunk) {
    if (work.apart) {
      store_chunk(chunk);
    } else if (work.cluster() > 1) {
      if (chunk == chunk_of(range.begin)) wait_cluster();  // all blocks have started
      send_sums(chunk - begin);
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Fold by = totals[h].fold(a.rules, peak[h], mass[h]);
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
          total[m][h] = folded(total[m][h], sum[m][h], by),
          total[m][2 + h] = folded(total[m][2 + h], sum[m][2 + h], by);
      }
    }
    clear_chunk();
  }
  __device__ void store_chunk(int chunk) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int v = warp * kStreamVectors + lane % 4 * 2 + h, r = v / a.group;
      if (v >= vectors) continue;
      const std::int64_t at = piece_at(a, row + r, head * a.group + v - r * a.group, chunk);
      if (lane < 4) a.peaks[at] = {peak[h], mass[h]};
      float* const to = a.sums + at * kHead + lane / 4;
#pragma unroll
      for (int m = 0; m < kTiles; ++m) to[m * 16] = sum[m][h], to[m * 16 + 8] = sum[m][2 + h];
    }
  }
  // Sends `share` units of this chunk's sums, with their peaks and masses, to each block of the cluster.
  __device__ void send_sums(int chunk) {
    const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    int to = receiver, at = receiver_unit;
    const float4 mine = {peak[0], mass[0], peak[1], mass[1]};
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      if (lane < 4 && (i == 0 || at == 0))
        *reinterpret_cast<float4*>(
            cluster.map_shared_rank(&peaks[(chunk * work.warps + warp) * kStreamVectors + lane * 2], to)) = mine;
      *cluster.map_shared_rank(&sums[(chunk * share + at) * 32 + lane], to) = {sum[i / 2][i % 2 * 2],
                                                                               sum[i / 2][i % 2 * 2 + 1]};
      if (++at == share) at = 0, ++to;
    }
  }
  // Where lane l writes vector l / 4 of a warp: numbers 2 (l % 4) and the next of each eight.
  __device__ Bf16* out_at(int of_warp) const {
    const int v = of_warp * kStreamVectors + lane / 4, r = v / a.group;
    return static_cast<Bf16*>(a.out) + (std::int64_t(row + r) * a.heads + head * a.group + (v - r * a.group)) * kHead +
           lane % 4 * 2;
  }
  // Numbers 8 i + l / 4 of two vectors of a warp.
  __device__ static void put(Bf16* to, bool mine, int i, float left, float right) {
    const std::uint32_t pair = transposed(pack_bf16(left, right));
    if (mine) *reinterpret_cast<std::uint32_t*>(to + i * 8) = pair;
  }
  __device__ void store() const {
    const float inverse[2] = {totals[0].inverse(), totals[1].inverse()};
    Bf16* const to = out_at(warp);
    const bool mine = warp * kStreamVectors + lane / 4 < vectors;
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i)
      put(to, mine, i, total[i / 2][i % 2 * 2] * inverse[0], total[i / 2][i % 2 * 2 + 1] * inverse[1]);
  }

  __device__ void fold_units() const {
    for (int u = warp; u < share && rank * share + u < work.warps * 2 * kTiles; u += work.warps) {
      const int unit = rank * share + u, w = unit / (2 * kTiles);
      Total of[2];
      float result[2] = {};
#pragma unroll 4
      for (int c = 0; c < chunks; ++c) {
        const float4 two =
            *reinterpret_cast<const float4*>(&peaks[(c * work.warps + w) * kStreamVectors + lane % 4 * 2]);
        const float2 of_chunk = sums[(c * share + u) * 32 + lane];
        result[0] = folded(result[0], of_chunk.x, of[0].fold(a.rules, two.x, two.y));
        result[1] = folded(result[1], of_chunk.y, of[1].fold(a.rules, two.z, two.w));
      }
      put(out_at(w), w * kStreamVectors + lane / 4 < vectors, unit % (2 * kTiles), result[0] * of[0].inverse(),
          result[1] * of[1].inverse());
    }
  }

  // ---- all of it ----
  __device__ void start() {
    wait_for_previous_kernels();
    typename Rows::Piece piece = Rows::load_piece(thread);
    Rows::load_queries(q);
    for (int i = thread; i < rows * Rows::kPieces; i += threads) {
      if (i != thread) piece = Rows::load_piece(i);
      Rows::store_piece(i, piece);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int v = warp * kStreamVectors + lane % 4 * 2 + h;
      low[h] = v < vectors ? shared.low[v / a.group] : 0, high[h] = v < vectors ? shared.high[v / a.group] : 0;
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m) total[m][0] = total[m][1] = total[m][2] = total[m][3] = 0;
    clear_chunk();
    Rows::sync_workers();
  }
  __device__ void done(int& stage, int& parity) {
    __syncwarp();
    if (lane == 0) arrive(&shared.empty[stage]);
    if (++stage == work.stages) stage = 0, parity ^= 1;
  }
  __device__ void compute() {
    start();
    for (int at = step, stage = 0, parity = 0; at < end; ++at) {
      const int from = at * kStep;
      float s[4][4];
      std::uint32_t weights[4][2];
      wait_barrier(&shared.full[stage], parity);
      if (Rows::odd(from)) Rows::patch(stage, from, false);
      scores(stage, s);
      a.rules.apply(reinterpret_cast<float(&)[16]>(s));
      done(stage, parity);
      hide(from, s);
      weigh(s, weights);
      wait_barrier(&shared.full[stage], parity);
      if (Rows::odd(from))
        add_values<true>(stage, weights, Rows::patch(stage, from, true));
      else
        add_values<false>(stage, weights, 0);
      done(stage, parity);
      if (at + 1 == end || begins_chunk((at + 1) * kStep)) close_chunk(chunk_of(from));
    }
    if (a.splits == 1) store();
  }
  __device__ void run() {
    if (work.cluster() > 1) {
      arrive_cluster();  // this block has started: others may write to its shared memory
      share = (work.warps * 2 * kTiles + used - 1) / used, receiver = warp * 2 * kTiles / share,
      receiver_unit = warp * 2 * kTiles % share;
    }
    Rows::fill_rotations();
    __syncthreads();
    if (warp < work.warps) {
      compute();
    } else {
      Rows::fill();
      if (work.cluster() > 1) wait_cluster();
    }
    if (work.cluster() == 1) return;
    cooperative_groups::this_cluster().sync();
    if (warp < work.warps) fold_units();
  }
};

#endif

template <int kHead> __global__ void __launch_bounds__(384, 1) attend_stream(const __grid_constant__ StreamWork work) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) std::byte memory[];
  StreamBlock<kHead> block(work, memory);
  let_next_kernel_start();
  if (block.open())
    block.run();
  else
    wait_for_previous_kernels();
#endif
}

}  // namespace foretoken
