// How a cluster folds the chunks of a context: each block sends the sums of its chunks to the blocks that fold them, in
// units of 16 numbers of the head of one set; a block knows how many bytes it receives, so nothing but the barrier of
// its own shared memory is waited for. Derived from a step (team_step.cuh). This header must not know how steps are
// summed.
#pragma once
#include "kernels/cuda/attention/team_step.cuh"
#include "kernels/cuda/instructions/barriers.cuh"

namespace foretoken {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <class Step> struct TeamFold : Step {
  using Step::a, Step::shared, Step::sums, Step::peaks, Step::peer, Step::thread, Step::lane, Step::rank, Step::sets,
      Step::chunks, Step::sum, Step::mass, Step::peak, Step::set, Step::over;
  using Step::kCodes, Step::kPadded, Step::kHead, Step::kTiles, Step::kMine, Step::kOfTeam, Step::kPeers,
      Step::kWorkers;
  static constexpr int kOther = kCodes ? 1 : 8;  // from the first of a lane's two numbers of a tile to the second
  static constexpr int kUnitBytes = 32 * int(sizeof(float4)), kPeakBytes = kSetVectors * int(sizeof(float2));

  int receiver, share;  // the first block that folds, and units that each does

  using Step::Step;

  // ---- results ----
  // Two numbers of a vector, of a lane's tile.
  __device__ static void put(Bf16* to, float first, float second) {
    if constexpr (kCodes)
      *reinterpret_cast<std::uint32_t*>(to) = pack_bf16(first, second);
    else
      to[0] = __float2bfloat16_rn(first), to[kOther] = __float2bfloat16_rn(second);
  }
  __device__ Bf16* out_at(int of_row, int of_head) const {
    return static_cast<Bf16*>(a.out) + (std::int64_t(of_row) * a.heads + of_head) * (kPadded ? a.head_size : kHead);
  }

  // ---- the cluster ----
  __device__ int units() const { return sets * kTiles; }
  // `blocks` from `from` on have chunks, and share the units.
  __device__ void share_units(int from, int blocks) { receiver = from, share = over(units() + blocks - 1, blocks); }
  // Initializes the barrier of the data that this block receives of every chunk: by one thread.
  __device__ void expect() {
    const int mine = min(units() - (rank - receiver) * share, share);
    init_barrier(&shared.received, 1);
    fence_barriers();
    expect_copies(&shared.received, mine > 0 ? chunks * (mine * kUnitBytes + sets * kPeakBytes) : 0);
  }
  // Writes to the same address in the shared memory of block `to`.
  __device__ void send(int to, float4* address, float4 numbers) const {
    if (a.splits == 1)
      *address = numbers;  // no cluster
    else
      send_to_block(in_block(shared_address(address), to), in_block(shared_address(&shared.received), to), numbers);
  }
  // Peaks and masses [chunks, sets, 8] go to all blocks that fold; sums are [chunks, share, 32 lanes].
  __device__ void send_sums(int chunk) const {
    const int folders = over(units() + share - 1, share);
#pragma unroll
    for (int n = 0; n < kOfTeam; ++n) {
      if (set(n) >= sets) continue;
      if (lane < 4)
        for (int to = peer; to < folders; to += kPeers)
          send(receiver + to, reinterpret_cast<float4*>(peaks + (chunk * sets + set(n)) * kSetVectors) + lane,
               {peak[n][0], mass[n][0], peak[n][1], mass[n][1]});
#pragma unroll
      for (int m = 0; m < kMine; ++m) {
        if (peer * kMine >= kTiles) continue;
        const int unit = set(n) * kTiles + Step::first_tile() + m, to = over(unit, share);
        send(receiver + to, reinterpret_cast<float4*>(sums) + (chunk * share + unit - to * share) * 32 + lane,
             {sum[n][m][0], sum[n][m][1], sum[n][m][2], sum[n][m][3]});
      }
    }
  }
  __device__ void fold_units() const {
    const int before = (rank - receiver) * share;
    for (int u = thread / 32; u < share && before + u < units(); u += kWorkers / 32) {
      const int of_set = (before + u) / kTiles, first = (before + u) % kTiles * 16 + lane / 4;
      const float4* const of_peaks = reinterpret_cast<const float4*>(peaks + of_set * kSetVectors) + lane % 4;
      const float4* const of_sums = reinterpret_cast<const float4*>(sums) + u * 32 + lane;
      Total of[2];
      float4 result = {};
#pragma unroll 3
      for (int c = 0; c < chunks; ++c) {
        const float4 two = of_peaks[c * sets * (kSetVectors / 2)], chunk = of_sums[c * share * 32];
        const Fold left = of[0].fold(a.rules, two.x, two.y), right = of[1].fold(a.rules, two.z, two.w);
        result = {folded(result.x, chunk.x, left), folded(result.y, chunk.y, right), folded(result.z, chunk.z, left),
                  folded(result.w, chunk.w, right)};
      }
      if (kPadded && first >= a.head_size) continue;
      const int v = of_set * kSetVectors + lane % 4 * 2;
      int of_row, of_head;
      if (Step::find(v, of_row, of_head))
        put(out_at(of_row, of_head) + first, result.x * of[0].inverse(), result.z * of[0].inverse());
      if (Step::find(v + 1, of_row, of_head))
        put(out_at(of_row, of_head) + first, result.y * of[1].inverse(), result.w * of[1].inverse());
    }
  }
};

#endif

}  // namespace foretoken
