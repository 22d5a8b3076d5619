// The Lane of the CUDA device: a crew of thread blocks for each sequence, all sequences of the batch in one launch.
// Included by kernels/lane.h where nvcc compiles, so that a verifier's template becomes a kernel. Knows distributions
// and draws, no verifier.
//
// Every thread of a crew runs the rule and holds its variables. The operations are collective, so the control flow of a
// rule must be the same in all threads: it may depend only on its input and on results of operations. Only the leader
// writes results.
#pragma once
#include <array>

#include "kernels/backend.h"
#include "kernels/cuda/distributions/crew.cuh"
#include "kernels/cuda/distributions/races.cuh"
#include "kernels/cuda/distributions/values.cuh"
#include "kernels/residual.h"

namespace foretoken {

struct LaneMemory {
  CrewMemory crew;
  alignas(16) double tile[kTile];  // probabilities of one tile, then their CDF
  int here, last;                  // tiles
  int token, likely;               // of the tile
  unsigned bound;                  // bits of a float
  alignas(16) unsigned char near[8192];
  RejectedGuess guesses[kMostGuesses];
};

// How much of the memory the lanes of one sequence have used. Every thread holds its own copy, and all are equal.
struct LaneUse {
  int near = 0, nears = 0;  // bytes, calls
  int guesses = 0;
  bool overflown = false;
};

class CudaLane {
 public:
  __device__ CudaLane(Crew& crew, LaneMemory& memory, LaneUse& use, int vocab, const Draws& draws)
      : crew_(&crew), memory_(&memory), use_(&use), vocab_(vocab), draws_(draws) {}

  __device__ CudaLane within(std::uint32_t k) const { return drawing(draws_.within(k)); }
  __device__ CudaLane drawing(const Draws& draws) const { return {*crew_, *memory_, *use_, vocab_, draws}; }

  // True in one thread of the sequence, which writes the results.
  __device__ bool leader() const { return crew_->leads(); }
  // Runs f(0) ... f(n - 1) in parallel; what they write may be read after the launch.
  template <class F> __device__ void each(int n, const F& f) const {
    if (int(blockIdx.x) % crew_->size() != 0) return;
    for (int i = int(threadIdx.x); i < n; i += kCrewThreads) f(i);
  }
  // f(0) ... f(n - 1) in shared memory, null where it is full. Successive calls use different warps, so that their
  // loads overlap. The values may be read after settle().
  template <class T, class F> __device__ const T* near(int n, const F& f) {
    const int bytes = (n * int(sizeof(T)) + 15) / 16 * 16;
    if (use_->near + bytes > int(sizeof memory_->near)) return nullptr;
    T* const kept = reinterpret_cast<T*>(memory_->near + use_->near);
    use_->near += bytes;
    if (int(threadIdx.x) / 32 == use_->nears++ % kCrewWarps)
      for (int i = int(threadIdx.x) % 32; i < n; i += 32) kept[i] = f(i);
    return kept;
  }
  __device__ void settle() const { __syncthreads(); }
  // Whether f(i) holds for all i < n.
  template <class F> __device__ bool every(int n, const F& f) const {
    bool all = true;
    for (int i = int(threadIdx.x); i < n; i += kCrewThreads) all = all && f(i);
    return __syncthreads_and(all);
  }

  __device__ bool accept(double probability, DrawName name) const { return draws_.uniform(name) < probability; }

  // Bytes: 4 * vocab, 8 * vocab with a distribution q, none where the rejection before it has already computed the
  // sums. Operations: about 40 a token. The CDF after each tile, then after each token of one tile, is summed by one
  // thread, since the order of these sums determines the result.
  template <class L> __device__ Token draw(const L& distribution, DrawName name) {
    const Token certain = only(distribution);
    if (certain >= 0) return certain;
    const Values<L> values(distribution);
    add_up(values, nullptr);
    return find(values, draws_.uniform(name));
  }
  template <class P, class Q> __device__ Token draw(const Residual<P, Q>& r, DrawName name) {
    const Token certain = only(r);
    if (certain >= 0) return certain;
    return with_above(r, [&](const auto& above) {
      if (crew_->running_of != &r) add_up(above, &r);
      return find(above, mul(draws_.uniform(name), r.mass));
    });
  }

  // As HostLane; bytes and operations as draw.
  template <class L> __device__ Token draw_weighted(const L& weights, DrawName name) {
    const Values<L> values(weights);
    const double mass = add_up(values, nullptr);
    return mass > 0 ? find(values, mul(draws_.uniform(name), mass)) : -1;
  }

  // Bytes as draw; about 90 operations a token. Four tokens share the noise of a counter.
  template <class L> __device__ Token race(const L& distribution, std::uint32_t position) {
    const Token certain = only(distribution);
    return certain >= 0 ? certain : race_values(*crew_, draws_, Values<L>(distribution), position);
  }
  __device__ Token race(const Distribution& distribution, std::uint32_t position) {
    if (distribution.row.one_hot) return distribution.row.greedy;
    return race_distribution(*crew_, &memory_->bound, draws_, distribution, position);
  }

  // As HostLane.
  template <class F> __device__ void siblings(const Distribution& distribution, int n, DrawName name, const F& f) {
    for_siblings(distribution, n, f, [&](const auto& rest, int j) {
      return draw(rest, {name.role, name.node + std::uint32_t(j), name.index + std::uint32_t(j)});
    });
  }
  template <class F>
  __device__ void race_siblings(const Distribution& distribution, int n, std::uint32_t position, const F& f) {
    for_siblings(distribution, n, f, [&](const auto& rest, int) {
      return race_values(*crew_, draws_, Unguessed<Distribution>(rest), position);
    });
  }

  // The sum of f over the vocabulary.
  template <class F> __device__ double sum(const F& f) { return crew_->sum(Values<F>(f)); }
  // N <= kMostSums such sums in one pass: f(x) is a std::array<double, N>. Of combined distributions: bytes 8 * vocab,
  // about 90 operations a token and 6 more for each sum, which take longer than the memory accesses.
  template <int N, class F> __device__ std::array<double, N> sums(const F& f) { return crew_->template sums<N>(f); }
  template <int N, class F, class P, class Q> __device__ std::array<double, N> sums(const Combined<F, P, Q>& c) {
    return crew_->template sums<N>(Values<Combined<F, P, Q>>(c));
  }

  template <class P, class Q> __device__ Residual<P, Q> open(const P& p, const Q& q) {
    crew_->running_of = nullptr;  // a residual may have the address of an earlier one
    return {p, q};
  }
  template <class P, class Q> __device__ void reject_draw(Residual<P, Q>& r) {
    r.c = add(r.c, r.mass);
    weigh(r);
  }
  template <class P, class Q> __device__ void reject_guess(Residual<P, Q>& r, Token guess) {
    remember(r, guess);
    weigh(r);
  }
  template <class P, class Q> __device__ void reject_once(Residual<P, Q>& r, Token child, double left) {
    if (left > 0) r.c = add(r.c, r.mass / left);
    reject_guess(r, child);
  }
  __device__ bool overflown() const { return use_->overflown; }

 private:
  // The only token with nonzero probability, -1 where there may be several.
  template <class L> __device__ static Token only(const L&) { return -1; }
  __device__ static Token only(const Distribution& distribution) {
    return distribution.row.one_hot ? distribution.row.greedy : -1;
  }
  __device__ static Token only(const OneHot& distribution) { return distribution.token; }
  template <class Q> __device__ static Token only(const Residual<Distribution, Q>& r) {
    return r.p.row.one_hot ? r.p.row.greedy : -1;
  }

  // Calls f with the unnormalized residual of r in its cheapest form.
  template <class P, class Q, class F> __device__ static auto with_above(const Residual<P, Q>& r, const F& f) {
    if (r.c == 0) return f(Unguessed<P>(r));
    return f(Above<P, Q>(r));
  }

  // As HostLane: no mass left means that the rejection had probability 0 but for rounding.
  template <class P, class Q> __device__ void weigh(Residual<P, Q>& r) {
    const Token certain = only(r.p);
    r.mass = certain >= 0 ? r.above(certain) : with_above(r, [&](const auto& above) { return add_up(above, &r); });
    if (!(r.mass > 0)) r.c = 0, r.rejected = -1, r.mass = r.scale = 1, crew_->running_of = nullptr;
  }
  template <class P, class Q> __device__ void remember(Residual<P, Q>& r, Token guess) {
    if (use_->guesses == kMostGuesses) {
      use_->overflown = true;
      return;
    }
    if (threadIdx.x == 0) memory_->guesses[use_->guesses] = {guess, r.rejected};
    __syncthreads();
    r.guesses = memory_->guesses, r.rejected = use_->guesses++;
  }
  template <class F, class Pick>
  __device__ void for_siblings(const Distribution& distribution, int n, const F& f, const Pick& pick) {
    auto rest = open(distribution, OneHot{-1});
    for (int j = 0; j < n; ++j) {
      const Token x = rest.mass > 0 ? pick(rest, j) : -1;
      f(j, x);
      if (x < 0 || j + 1 == n) continue;
      remember(rest, x);
      const Token certain = only(distribution);
      rest.mass = certain >= 0 ? 0 : add_up(Unguessed<Distribution>(rest), &rest);
    }
  }

  // The sum of f over the vocabulary. The running sums of the tiles are kept in crew_->running(), marked as those of
  // `owner`, and the last tile with nonzero mass in memory_->last.
  template <class F> __device__ double add_up(const F& f, const void* owner) {
    if (threadIdx.x == 0) memory_->here = memory_->last = -1;
    const double* const sums = crew_->tile_sums(f);
    const int tiles = crew_->tiles();
    if (threadIdx.x == 0) running_sum<true>(0, sums, crew_->running(), tiles);
    if (threadIdx.x >= 32) {
      int last = -1;
      for (int t = int(threadIdx.x) - 32; t < tiles; t += kCrewThreads - 32)
        if (sums[t] > 0) last = t;
      last = __reduce_max_sync(~0u, last);
      if (threadIdx.x % 32 == 0) atomicMax(&memory_->last, last);
    }
    __syncthreads();
    crew_->running_of = owner;
    return crew_->running()[tiles - 1];
  }

  // After add_up: the token at which the CDF of `values` exceeds `limit`. It is in the first tile where the CDF does,
  // else in the last with nonzero mass; there it is the first such token, else the last with nonzero probability.
  template <class V> __device__ Token find(const V& values, double limit) {
    const double* const running = crew_->running();
    const int tiles = crew_->tiles(), i = int(threadIdx.x);
    crew_->running_of = nullptr;  // `here` is overwritten below
    if (i == 0) memory_->token = memory_->likely = -1;
    for (int t = i; t < tiles; t += kCrewThreads)
      if (running[t] > limit && (t == 0 || running[t - 1] <= limit)) memory_->here = t;
    __syncthreads();
    const bool exceeds = memory_->here >= 0;
    const int tile = exceeds ? memory_->here : memory_->last;
    if (tile < 0) return 0;
    const Token begin = tile * kTile;
    if (i < kTile) {
      const double p = begin + i < vocab_ ? along(values, begin + i, 1, 1)(0) : 0;
      memory_->tile[i] = p;
      const int likely = __reduce_max_sync(~0u, p > 0 ? i : -1);
      if (i % 32 == 0) atomicMax(&memory_->likely, likely);
    }
    __syncthreads();
    if (i == 0) running_sum<true>(tile > 0 ? running[tile - 1] : 0, memory_->tile, memory_->tile, kTile);
    __syncthreads();
    if (i < kTile && exceeds && memory_->tile[i] > limit && (i == 0 || memory_->tile[i - 1] <= limit))
      memory_->token = i;
    __syncthreads();
    return begin + (memory_->token >= 0 ? memory_->token : memory_->likely);
  }

  Crew* crew_;
  LaneMemory* memory_;
  LaneUse* use_;
  int vocab_;
  Draws draws_;
};

template <class F> __global__ void __launch_bounds__(kCrewThreads, 1)
    run_lanes(const Draws* draws, int vocab, const __grid_constant__ F f) {
  extern __shared__ __align__(16) double sums[];
  __shared__ LaneMemory memory;
  static_assert(sizeof memory <= kMostCrewStaticBytes);
  begin_crew();
  Crew crew(memory.crew, sums, vocab);
  LaneUse use;
  CudaLane lane(crew, memory, use, vocab, draws ? draws[crew.row()] : Draws{});
  f(lane, crew.row());
  crew.sync();
}

// The CUDA part of launch() of kernels/lane.h.
template <class F> void launch_on_device(Backend& backend, int count, const Draws* draws, int vocab, const F& f) {
  static_assert(sizeof(F) <= 32000, "what runs on lanes is handed over as a kernel's argument");
  enter_device(backend);
  launch_kernel("lanes", static_cast<cudaStream_t>(backend.stream()), crew_grid(backend, count, vocab), run_lanes<F>,
                draws, vocab, f);
}

}  // namespace foretoken
