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
  double tile[kTile];  // probabilities, then their CDF
  int here, last;      // tiles
  int token, likely;   // of the tile
  alignas(16) unsigned char near[8192];
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
  // f(0) ... f(n - 1) in shared memory while there is room.
  template <class T, class F> __device__ const T* near(int n, const F& f) {
    const int bytes = (n * int(sizeof(T)) + 15) / 16 * 16;
    if (near_ + bytes > int(sizeof room_->near)) return nullptr;
    T* const kept = reinterpret_cast<T*>(room_->near + near_);
    near_ += bytes;
    for (int i = int(threadIdx.x); i < n; i += kCrewThreads) kept[i] = f(i);
    __syncthreads();
    return kept;
  }
  // Whether f(i) holds for all i < n.
  template <class F> __device__ bool every(int n, const F& f) const {
    bool all = true;
    for (int i = int(threadIdx.x); i < n; i += kCrewThreads) all = all && f(i);
    return __syncthreads_and(all);
  }

  __device__ bool accept(double probability, DrawName name) const { return draws_.uniform(name) < probability; }

  // Bytes: 4 * vocab, 8 * vocab with a law q. Operations: about 40 a token. The CDF behind each tile, then behind
  // each token of one tile, is added up by one thread: the order of these sums is part of the answer.
  template <class L> __device__ Token draw(const L& law, DrawName name) {
    const Token certain = only(law);
    if (certain >= 0) return certain;
    const Values<L> values(law);
    const double u = draws_.uniform(name);
    double* const sums = crew_->tile_sums(values);
    const int tile = find_tile(sums, u), i = int(threadIdx.x);
    if (tile < 0) return 0;
    const Token begin = tile * kTile;
    if (i < kTile) room_->tile[i] = begin + i < vocab_ ? along(values, begin + i, 1, 1)(0) : 0;
    __syncthreads();
    return begin + find_in_tile(tile > 0 ? sums[tile - 1] : 0, u);
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

  // The first tile in which the CDF exceeds u, else the last with any mass, else -1. Its sums become the CDF behind each tile.
  __device__ int find_tile(double* sums, double u) {
    const int tiles = crew_->tiles();
    if (threadIdx.x == 0) room_->here = -1, room_->last = -1;
    __syncthreads();
    for (int t = int(threadIdx.x); t < tiles; t += kCrewThreads)
      if (sums[t] > 0) atomicMax(&room_->last, t);
    __syncthreads();
    if (threadIdx.x == 0) running_sum<true>(0, sums, sums, tiles);
    __syncthreads();
    for (int t = int(threadIdx.x); t < tiles; t += kCrewThreads)
      if (sums[t] > u && (t == 0 || sums[t - 1] <= u)) room_->here = t;
    __syncthreads();
    return room_->here >= 0 ? room_->here : room_->last;
  }
  // Of a tile and the CDF before it, the first token at which the CDF exceeds u, else the last with any probability.
  __device__ int find_in_tile(double before, double u) {
    const int i = int(threadIdx.x);
    if (i == 0) room_->token = -1, room_->likely = -1;
    __syncthreads();
    if (i < kTile && room_->tile[i] > 0) atomicMax(&room_->likely, i);
    __syncthreads();
    if (i == 0) running_sum<true>(before, room_->tile, room_->tile, kTile);
    __syncthreads();
    if (i < kTile && room_->here >= 0 && room_->tile[i] > u && (i == 0 || room_->tile[i - 1] <= u)) room_->token = i;
    __syncthreads();
    return room_->token >= 0 ? room_->token : room_->likely;
  }

  Crew* crew_;
  LaneRoom* room_;
  int vocab_;
  Draws draws_;
  int near_ = 0;  // bytes taken
};

template <class F> __global__ void __launch_bounds__(kCrewThreads, 2) run_lanes(const Draws* draws, int vocab, const __grid_constant__ F f) {
  extern __shared__ double sums[];
  __shared__ LaneRoom room;
  begin_crew();
  Crew crew(room.crew, sums, vocab);
  CudaLane lane(crew, room, vocab, draws ? draws[crew.row()] : Draws{});
  f(lane, crew.row());
  crew.sync();
}

// As launch() of kernels/lane.h.
template <class F> void launch_on_device(Backend& backend, int count, const Draws* draws, int vocab, const F& f) {
  static_assert(sizeof(F) <= 32000, "what runs on lanes is handed over as a kernel's argument");
  launch_kernel("lanes", static_cast<cudaStream_t>(backend.stream()), crew_grid(backend, count, vocab, 2), run_lanes<F>, draws, vocab, f);
}

}  // namespace foretoken
