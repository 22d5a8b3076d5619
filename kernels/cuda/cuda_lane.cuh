// The Lane of the CUDA device: a crew of thread blocks for each sequence, the whole batch in one launch. Included by kernels/lane.h
// where nvcc compiles, so that a verifier's template becomes a kernel. Knows laws and draws, no verifier.
//
// Every thread of a crew runs the rule and holds its variables; the verbs are collective, so what steers a rule must be the same
// in all threads, as everything is that comes from a trial or from a verb. What is written, the leader writes.
#pragma once
#include "kernels/backend.h"
#include "kernels/cuda/crew.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/residual.h"

namespace foretoken {

struct LaneRoom {
  CrewRoom crew;
  double tile[kTile];
  double before;
  int found;
  Token token;
};

class CudaLane {
 public:
  __device__ CudaLane(Crew& crew, LaneRoom& room, int vocab, const Draws& draws) : crew_(&crew), room_(&room), vocab_(vocab), draws_(draws) {}

  __device__ CudaLane within(std::uint32_t k) const { return {*crew_, *room_, vocab_, draws_.within(k)}; }
  __device__ CudaLane drawing(const Draws& draws) const { return {*crew_, *room_, vocab_, draws}; }

  // One thread of the sequence, which writes down what came out.
  __device__ bool leader() const { return crew_->leads(); }
  // Runs f(0) ... f(n - 1) at once; what they write may be read after the launch.
  template <class F> __device__ void each(int n, const F& f) const {
    if (int(blockIdx.x) % crew_->size() != 0) return;
    for (int i = int(threadIdx.x); i < n; i += kCrewThreads) f(i);
  }
  // Whether f(i) holds for all i < n.
  template <class F> __device__ bool every(int n, const F& f) const {
    bool all = true;
    for (int i = int(threadIdx.x); i < n; i += kCrewThreads) all = all && f(i);
    return __syncthreads_and(all);
  }

  __device__ bool accept(double probability, DrawName name) const { return draws_.uniform(name) < probability; }

  // Bytes: 4 * vocab, 8 * vocab with a law q. Operations: about 40 a token. The tile in which the CDF exceeds u is found by one
  // thread among the tiles' sums, the token by one thread among the tile's: both orders are part of the answer.
  template <class L> __device__ Token draw(const L& law, DrawName name) {
    const Token certain = only(law);
    if (certain >= 0) return certain;
    const Values<L> values(law);
    const double u = draws_.uniform(name);
    const double* const sums = crew_->tile_sums(values);
    if (threadIdx.x == 0) find_tile(sums, u);
    __syncthreads();
    if (room_->found < 0) return 0;
    const Token begin = room_->found * kTile;
    if (int(threadIdx.x) < kTile) {
      const int i = int(threadIdx.x);
      room_->tile[i] = begin + i < vocab_ ? along(values, begin + i, 1, 1)(0) : 0;
    }
    __syncthreads();
    if (threadIdx.x == 0) room_->token = begin + find_in_tile(u);
    __syncthreads();
    return room_->token;
  }

  // Bytes as draw; about 90 operations a token. Four tokens share the noise of a counter.
  template <class L> __device__ Token race(const L& law, std::uint32_t position) {
    const Token certain = only(law);
    if (certain >= 0) return certain;
    const Values<L> values(law);
    Runner best;
    crew_->for_quads([&](Token t) {
      const int n = min(4, vocab_ - t);
      const auto p = along(values, t, 1, n);
      const Philox noise = draws_.noise_block(position, std::uint32_t(t));
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (j < n) best.meet(t + j, p(j), Draws::uniform_from(noise.word[j]));
    });
    best = crew_->agree(best, [](const Runner& a, const Runner& b) { return b.beats(a) ? b : a; });
    return best.token == Runner::kNobody ? 0 : best.token;
  }

  // Of f over the vocabulary.
  template <class F> __device__ double sum(const F& f) { return crew_->sum(f); }

  template <class P, class Q> __device__ Residual<P, Q> open(const P& p, const Q& q) { return {p, q}; }
  template <class P, class Q> __device__ void refuse_draw(Residual<P, Q>& r) {
    r.c = add(r.c, r.mass);
    weigh(r);
  }
  template <class P, class Q> __device__ void refuse_guess(Residual<P, Q>& r, Token guess) {
    r.gone[r.refused++] = guess;
    weigh(r);
  }

 private:
  // Who is first in a race: the least time, the lowest token among equals.
  struct alignas(8) Runner {
    static constexpr Token kNobody = 0x7fffffff;
    double time = INFINITY;
    Token token = kNobody;
    std::int32_t unused = 0;
    __device__ bool beats(const Runner& other) const { return time < other.time || (time == other.time && token < other.token); }
    __device__ void meet(Token x, double p, double u) {
      // -log u >= 1 - u: who is later than the winner by more than any rounding needs no logarithm.
      if (!(p > 0) || (token != kNobody && add(1.0, -u) > mul(mul(time, p), 1 + 1e-9))) return;
      const double mine = -log_exactly(u) / p;
      if (token == kNobody || mine < time) time = mine, token = x;
    }
  };

  // The one token that a law can give, -1 where there may be more.
  template <class L> __device__ static Token only(const L&) { return -1; }
  __device__ static Token only(const Law& law) { return law.row.one_hot ? law.row.greedy : -1; }
  __device__ static Token only(const OneHot& law) { return law.token; }
  template <class Q> __device__ static Token only(const Residual<Law, Q>& r) { return r.p.row.one_hot ? r.p.row.greedy : -1; }

  // As HostLane: nothing left means that the refusal had probability 0 but for rounding.
  template <class P, class Q> __device__ void weigh(Residual<P, Q>& r) {
    const Token certain = only(r.p);
    r.mass = certain >= 0 ? r.above(certain) : crew_->sum(Above<P, Q>(r));
    if (!(r.mass > 0)) r.c = 0, r.refused = 0, r.mass = 1;
  }

  // found: the first tile in which the CDF exceeds u, `before` being the CDF before it; else the last tile with any mass (before
  // = -1: no token of it exceeds u), else -1.
  __device__ void find_tile(const double* sums, double u) {
    double before = 0;
    int last = -1, tile = 0;
#pragma unroll 8
    for (; tile < crew_->tiles(); ++tile) {
      const double sum = sums[tile];
      if (!(sum > 0)) continue;
      last = tile;
      const double after = add(before, sum);
      if (after > u) break;
      before = after;
    }
    room_->found = last;
    room_->before = tile < crew_->tiles() ? before : -1;
  }
  // Of the tile that was found, the first token at which the CDF exceeds u, else the last with any probability.
  __device__ int find_in_tile(double u) const {
    double cdf = room_->before;
    const bool here = cdf >= 0;
    int last = 0;
#pragma unroll 8
    for (int i = 0; i < kTile; ++i) {
      const double p = room_->tile[i];
      cdf = add(cdf, p);
      if (p > 0) {
        last = i;
        if (here && cdf > u) break;
      }
    }
    return last;
  }

  Crew* crew_;
  LaneRoom* room_;
  int vocab_;
  Draws draws_;
};

template <class F> __global__ void __launch_bounds__(kCrewThreads, 2) run_lanes(const Draws* draws, int vocab, const __grid_constant__ F f) {
  extern __shared__ double sums[];
  __shared__ LaneRoom room;
  wait_for_earlier();
  Crew crew(room.crew, sums, vocab);
  CudaLane lane(crew, room, vocab, draws ? draws[crew.row()] : Draws{});
  f(lane, crew.row());
  crew.sync();
}

// As launch() of kernels/lane.h. `draws` may be null where f draws by Draws of its own.
template <class F> void launch_on_device(Backend& backend, int count, const Draws* draws, int vocab, const F& f) {
  static_assert(sizeof(F) <= 32000, "what runs on lanes is handed over as a kernel's argument");
  launch_kernel("lanes", static_cast<cudaStream_t>(backend.stream()), crew_grid(backend, count, vocab), run_lanes<F>, draws, vocab, f);
}

}  // namespace foretoken
