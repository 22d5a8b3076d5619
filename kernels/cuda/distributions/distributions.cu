// Distributions of rows of logits and tokens drawn from them; a crew of blocks for each row.
//
// distributions: logits [n, vocab] -> DistributionRow [n]: the greatest logit, the threshold of the warp (cuts.cuh),
// the mass of the kept tokens by the tree of distribution.h. Bytes: 4 * vocab a row from memory once; each further pass
// (the mass, the raw normalizer, cuts) reads a block's share of the row from the nearest caches. Operations: 5 a token
// for the peak, 32 a token for each mass, which takes longer than the memory accesses. Only 40 bytes a row are written.
//
// draw: DistributionRow [n], TokenDraw [n] -> Token [n], by the operations of a CudaLane.
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/distributions/cuda_lane.cuh"
#include "kernels/cuda/distributions/cuts.cuh"

namespace foretoken {
namespace {

// The warps or draws of a launch are passed as kernel arguments, so that no copy is needed: up to this many rows at
// once.
constexpr int kFewRows = 64, kManyRows = 512;

template <int kRows> struct DistributionTask {
  const float* logits;
  std::int64_t stride;
  int vocab;
  DistributionRow* rows;
  Warp warps[kRows];
};

template <int kRows> struct DrawTask {
  const float* logits;
  std::int64_t stride;
  int vocab;
  const DistributionRow* rows;
  int begin;  // number of draws[0]
  Token* to;
  std::int64_t to_stride;
  TokenDraw draws[kRows];

  __device__ void operator()(const CudaLane& lane, int i) const {
    const TokenDraw& draw = draws[i];
    const int row = draw.row < 0 ? begin + i : draw.row;
    const Distribution distribution{logits + row * stride, rows[row], vocab};
    const bool leads = lane.leader(), finite = distribution.row.greedy >= 0;
    Token* const at = draw.to ? draw.to : to + (begin + i) * to_stride;
    CudaLane mine = lane.drawing(draw.draws);
    const auto write = [&](int j, Token token) {
      if (leads) at[j] = token;
    };
    if (!finite)
      for (int j = 0; j < draw.siblings; ++j) write(j, -1);
    else if (draw.siblings > 1 && draw.race)
      mine.race_siblings(distribution, draw.siblings, draw.position, write);
    else if (draw.siblings > 1)
      mine.siblings(distribution, draw.siblings, draw.name, write);
    else
      write(0, draw.race ? mine.race(distribution, draw.position) : mine.draw(distribution, draw.name));
  }
};

template <bool kCuts> struct DistributionMemory {
  CrewMemory crew;
};
template <> struct DistributionMemory<true> {
  CrewMemory crew;
  CutMemory cuts;
};

// The greatest logit with the lowest index among equals, and the least; a NaN is greater than all.
struct Extremes {
  std::uint32_t peak, at, lowest;
};

__device__ Extremes extremes(Crew& crew, const float* logits) {
  float high = -INFINITY, low = INFINITY;
  int at = 0;
  bool nan = false;
  crew.for_share(logits, [&](int x, float l) {
    nan = nan || l != l;
    if (l > high) high = l, at = x;
    low = l < low ? l : low;
  });
  const Extremes mine{nan ? ~0u : key_of(high), std::uint32_t(at), key_of(low)};
  return crew.agree(mine, [](const Extremes& a, const Extremes& b) {
    const bool second = b.peak > a.peak || (b.peak == a.peak && b.at < a.at);
    return Extremes{second ? b.peak : a.peak, second ? b.at : a.at, min(a.lowest, b.lowest)};
  });
}

__host__ __device__ bool cuts(const Warp& warp) {
  return warp.temperature != 0 && (warp.top_k > 0 || warp.top_p < 1 || warp.min_p > 0);
}

// The same row as normalize() of kernels/distribution.cpp.
template <bool kCuts> __device__ DistributionRow distribution_of(Crew& crew, DistributionMemory<kCuts>& memory,
                                                                 const float* logits, int vocab, const Warp& warp) {
  DistributionRow row;
  const Extremes ends = extremes(crew, logits);
  if (ends.peak >= key_of(INFINITY) || ends.peak <= key_of(-INFINITY)) return row;
  row.greedy = Token(ends.at);
  row.peak = logits[ends.at];
  row.threshold = -INFINITY;
  row.inverse_temperature = warp.temperature == 0 ? 1.0f : __fdiv_rn(1.0f, warp.temperature);
  double raw = -1;
  if (warp.raw_normalizer) {
    DistributionRow plain = row;
    plain.inverse_temperature = 1;
    raw = crew.sum(Weights<false>(logits, plain));
    row.raw_log_normalizer = add(double(row.peak), log_exactly(raw));
  }
  if (warp.temperature == 0) {
    row.one_hot = 1;
    return row;
  }
  if constexpr (kCuts) {
    if (cuts(warp)) row.threshold = Cuts(crew, memory.cuts, logits, vocab, row, ends.lowest).threshold(warp);
  }
  row.mass = !cuts(warp) && row.inverse_temperature == 1 && raw >= 0 ? raw : crew.sum(Weights<kCuts>(logits, row));
  return row;
}

// Of the following kernel, on a multiprocessor.
constexpr int resident_blocks(bool cuts) { return cuts ? 2 : 3; }

template <int kRows, bool kCuts> __global__ void __launch_bounds__(kCrewThreads, resident_blocks(kCuts))
    distribution_rows(const __grid_constant__ DistributionTask<kRows> task) {
  extern __shared__ __align__(16) double sums[];
  __shared__ DistributionMemory<kCuts> memory;
  static_assert(sizeof memory <= kMostCrewStaticBytes);
  begin_crew();
  Crew crew(memory.crew, sums, task.vocab);
  const int i = crew.row();
  const DistributionRow row = distribution_of(crew, memory, task.logits + i * task.stride, task.vocab, task.warps[i]);
  if (crew.leads()) {
    task.rows[i] = row;
    // The padding at the end of a row is zeroed, so that equal distributions have equal bytes.
    reinterpret_cast<std::uint32_t*>(task.rows + i)[sizeof(DistributionRow) / 4 - 1] = 0;
  }
  crew.sync();
}

template <int kRows> void queue_distributions(CudaBackend& backend, const Distributions& distributions,
                                              std::span<const Warp> warps, int begin) {
  DistributionTask<kRows> task{distributions.logits.row<float>(begin),
                               distributions.logits.row_stride(),
                               distributions.vocab(),
                               reinterpret_cast<DistributionRow*>(distributions.rows.row<std::uint8_t>(begin)),
                               {}};
  const int n = std::min(kRows, distributions.count() - begin);
  std::copy_n(warps.begin() + begin, n, task.warps);
  const bool any = std::any_of(task.warps, task.warps + n, cuts);
  launch_kernel("distributions", backend.cuda_stream(), crew_grid(backend, n, task.vocab, resident_blocks(any)),
                any ? distribution_rows<kRows, true> : distribution_rows<kRows, false>, task);
}

template <int kRows> void queue_draws(CudaBackend& backend, const Distributions& distributions,
                                      std::span<const TokenDraw> draws, const Tensor& to, int begin) {
  DrawTask<kRows> task{distributions.logits.row<float>(0),
                       distributions.logits.row_stride(),
                       distributions.vocab(),
                       reinterpret_cast<const DistributionRow*>(distributions.rows.row<std::uint8_t>(0)),
                       begin,
                       to ? to.row<Token>(0) : nullptr,
                       to.row_stride(),
                       {}};
  const int n = std::min(kRows, int(draws.size()) - begin);
  std::copy_n(draws.begin() + begin, n, task.draws);
  launch_kernel("draw", backend.cuda_stream(), crew_grid(backend, n, task.vocab), run_lanes<DrawTask<kRows>>, nullptr,
                task.vocab, task);
}

}  // namespace

void enter_device(const Backend& backend) { static_cast<const CudaBackend&>(backend).enter(); }

Grid crew_grid(const Backend& backend, int rows, int vocab, int resident) {
  const auto& cuda = static_cast<const CudaBackend&>(backend);
  const int tiles = (vocab + kTile - 1) / kTile, multiprocessors = cuda.multiprocessors();
  // As many blocks as have work, a tile for every eight threads, and as can run at once: crews that wait for
  // multiprocessors are slow.
  int blocks = 1;
  // Whether twice as many blocks can run at once, and the busiest multiprocessor then has less to do: of a few more
  // rows than multiprocessors, some would get two whole rows.
  const auto better = [&](int twice) {
    const auto most = [&](int n) { return (n * rows + multiprocessors - 1) / multiprocessors; };
    return twice * rows <= multiprocessors ||
           (twice * rows <= resident * multiprocessors && most(twice) < 2 * most(twice / 2));
  };
  while (cuda.architecture() >= 90 && blocks < kMostBlocks && blocks * kCrewThreads / 8 < tiles && better(2 * blocks))
    blocks *= 2;
  return {.blocks = dim3(unsigned(rows * blocks)),
          .threads = kCrewThreads,
          .shared = Crew::bytes(vocab),
          .cluster = blocks,
          .dependent_launch = cuda.dependent_launch()};
}

Distributions CudaBackend::distributions(const Tensor& logits, std::span<const Warp> warps) {
  enter();
  if (logits.rank() != 2 || logits.dtype() != DType::f32 || logits.dim(0) != std::int64_t(warps.size()))
    throw Error("distributions: expected F32 logits [" + std::to_string(warps.size()) +
                ", vocabulary], one row for each warp, got " + name_of(logits.dtype()) + " " + logits.shape().text() +
                "; give one Warp a row");
  const Distributions distributions{logits,
                                    allocate({logits.dim(0), std::int64_t(sizeof(DistributionRow))}, DType::u8)};
  for (int begin = 0; begin < distributions.count();) {
    const bool few = distributions.count() - begin <= kFewRows;
    few ? queue_distributions<kFewRows>(*this, distributions, warps, begin)
        : queue_distributions<kManyRows>(*this, distributions, warps, begin);
    begin += few ? kFewRows : kManyRows;
  }
  return distributions;
}

void CudaBackend::draw(const Distributions& distributions, std::span<const TokenDraw> draws, Tensor to) {
  enter();
  expect_draws(distributions, draws, to);
  for (int begin = 0, n = int(draws.size()); begin < n;) {
    const bool few = n - begin <= kFewRows;
    few ? queue_draws<kFewRows>(*this, distributions, draws, to, begin)
        : queue_draws<kManyRows>(*this, distributions, draws, to, begin);
    begin += few ? kFewRows : kManyRows;
  }
}

}  // namespace foretoken
