// rank: the k most probable tokens of every row and their probabilities; a crew of blocks for each row.
//
// logits [n, vocab], DistributionRow [n] -> tokens [n, k], q [n, k]. Bytes: 4 * vocab a row from memory once, and the
// shares of about k of the crew's threads once more. Operations: 4 a token. The best tokens of k threads are a bound:
// no token before the k-th of them can be left out, and few tokens are (for k = 10 and independent logits about k).
// They are collected and put in order. Where there are more than fit, or k is too large, the row is read k times: a
// pass finds the greatest logit after the one found before.
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/distributions/crew.cuh"
#include "kernels/cuda/distributions/cuts.cuh"

namespace foretoken {
namespace {

struct RankTask {
  const float* logits;
  std::int64_t stride;
  int vocab, k;
  const DistributionRow* rows;
  Token* tokens;
  std::int64_t tokens_stride;
  float* q;
  std::int64_t q_stride;
};

// A token in the order of rank, the greater number first: by logit, then the lower token. 0: none.
using Ranked = unsigned long long;
__device__ Ranked ranked(int token, float logit) {
  return logit > -INFINITY ? Ranked(key_of(logit)) << 32 | ~std::uint32_t(token) : 0;
}
__device__ Token token_of(Ranked r) { return Token(~std::uint32_t(r)); }

// The greatest of a warp.
__device__ Ranked greatest(Ranked r) {
  const std::uint32_t high = __reduce_max_sync(~0u, std::uint32_t(r >> 32));
  const std::uint32_t low = __reduce_max_sync(~0u, std::uint32_t(r >> 32) == high ? std::uint32_t(r) : 0);
  return Ranked(high) << 32 | low;
}

constexpr int kMostAtOnce = 256;      // ranks that need no passes
constexpr int kMostCollected = 2048;  // tokens
constexpr int kMostOfWarps = kMostAtOnce + kMostBlocks * kCrewWarps;
static_assert(kMostOfWarps <= kCrewThreads);

struct RankMemory {
  CrewMemory crew;
  Ranked of_warps[kMostOfWarps];     // the best tokens of each warp of the crew
  Ranked collected[kMostCollected];  // in the first block
  Ranked bound;                      // every token that is wanted is at least this
  int count;                         // of collected tokens, those that did not fit among them; in the first block
};

class Ranking {
 public:
  __device__ Ranking(Crew& crew, RankMemory& memory, const RankTask& task)
      : crew_(crew),
        memory_(memory),
        task_(task),
        distribution_{task.logits + crew.row() * task.stride, task.rows[crew.row()], task.vocab} {}

  __device__ void run() {
    if (distribution_.row.greedy < 0) return write_none(0);
    if (task_.k > 1 && task_.k <= kMostAtOnce && at_once()) return;
    in_passes();
  }

 private:
  // False where more tokens would have to be collected than fit.
  __device__ bool at_once() {
    Ranked best = 0;
    {
      float high = -INFINITY;
      int at = 0;
      crew_.for_share(distribution_.logits, [&](int x, float l) {
        if (l > high) high = l, at = x;
      });
      best = ranked(at, high);
    }
    const Ranked bound = bound_of(best);
    collect(best, bound);
    const int n = *crew_.at(&memory_.count, 0);
    if (n > kMostCollected) return false;
    if (crew_.rank() == 0) put_in_order(n);
    write_none(n);
    return true;
  }

  // From the best token of each thread: the k-th of the best tokens of the warps, each of which gives equally many; 0
  // where these are fewer than k.
  __device__ Ranked bound_of(Ranked best) {
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    const int warps = crew_.size() * kCrewWarps, each = (task_.k + warps - 1) / warps;
    if (threadIdx.x == 0) memory_.bound = 0, memory_.count = 0;
    for (int j = 0; j < each; ++j) {
      const Ranked next = greatest(best);
      if (lane < crew_.size()) *crew_.at(&memory_.of_warps[(crew_.rank() * kCrewWarps + warp) * each + j], lane) = next;
      if (best == next) best = 0;
    }
    crew_.sync();
    if (int(threadIdx.x) < warps * each) {
      const Ranked mine = memory_.of_warps[threadIdx.x];
      int before = 0;
      for (int i = 0; i < warps * each; ++i) before += memory_.of_warps[i] > mine;
      if (mine > 0 && before == task_.k - 1) memory_.bound = mine;
    }
    __syncthreads();
    return memory_.bound;
  }

  // The tokens from the bound on, in the first block. They belong to threads whose best token is one of them; a warp
  // reads the share of each such thread together.
  __device__ void collect(Ranked best, Ranked bound) {
    const int lane = int(threadIdx.x) % 32, first = int(threadIdx.x) - lane;
    int* const count = crew_.at(&memory_.count, 0);
    Ranked* const collected = crew_.at(memory_.collected, 0);
    for (unsigned some = __ballot_sync(~0u, best > 0 && best >= bound); some != 0; some &= some - 1)
      crew_.for_share_of(first + __ffs(int(some)) - 1, lane, 32, distribution_.logits, [&](int x, float l) {
        const Ranked one = ranked(x, l);
        if (one == 0 || one < bound) return;
        const int place = atomicAdd(count, 1);
        if (place < kMostCollected) collected[place] = one;
      });
    crew_.sync();
  }

  __device__ void put_in_order(int n) const {
    for (int i = int(threadIdx.x); i < n; i += kCrewThreads) {
      const Ranked mine = memory_.collected[i];
      int before = 0;
      for (int other = 0; other < n; ++other) before += memory_.collected[other] > mine;
      if (before < task_.k) write(before, token_of(mine), float(distribution_(token_of(mine))));
    }
  }

  __device__ void in_passes() const {
    Ranked last = ~Ranked(0);
    for (int j = 0; j < task_.k; ++j) {
      Ranked best = 0;
      crew_.for_share(distribution_.logits, [&](int x, float l) {
        const Ranked mine = ranked(x, l);
        if (mine < last && mine > best) best = mine;
      });
      last = crew_.agree(best, [](Ranked a, Ranked b) { return b > a ? b : a; });
      const float p = last > 0 ? float(distribution_(token_of(last))) : 0;
      if (!(p > 0)) return write_none(j);  // later tokens have no probability either
      if (crew_.leads()) write(j, token_of(last), p);
    }
  }

  // A token without probability is none.
  __device__ void write(int j, Token token, float p) const {
    const int i = crew_.row();
    task_.tokens[i * task_.tokens_stride + j] = p > 0 ? token : -1;
    task_.q[i * task_.q_stride + j] = p;
  }
  // None from rank n on.
  __device__ void write_none(int n) const {
    if (crew_.rank() != 0) return;
    for (int j = n + int(threadIdx.x); j < task_.k; j += kCrewThreads) write(j, -1, 0);
  }

  Crew& crew_;
  RankMemory& memory_;
  const RankTask& task_;
  const Distribution distribution_;
};

constexpr int kResident = 3;  // blocks of this kernel on a multiprocessor
__global__ void __launch_bounds__(kCrewThreads, kResident) rank_rows(const __grid_constant__ RankTask task) {
  extern __shared__ __align__(16) double sums[];
  __shared__ RankMemory memory;
  static_assert(sizeof memory <= kMostCrewStaticBytes);
  begin_crew();
  Crew crew(memory.crew, sums, task.vocab);
  Ranking(crew, memory, task).run();
  crew.sync();
}

}  // namespace

void CudaBackend::rank(const Distributions& raw, int k, Tensor tokens, Tensor q) {
  enter();
  expect_ranks(raw, k, tokens, q);
  const RankTask task{raw.logits.row<float>(0),
                      raw.logits.row_stride(),
                      raw.vocab(),
                      k,
                      reinterpret_cast<const DistributionRow*>(raw.rows.row<std::uint8_t>(0)),
                      tokens.row<Token>(0),
                      tokens.row_stride(),
                      q.row<float>(0),
                      q.row_stride()};
  launch_kernel("rank", stream_, crew_grid(*this, raw.count(), task.vocab, kResident), rank_rows, task);
}

}  // namespace foretoken
