// rank: the k most probable tokens of every row and their probabilities; a crew of blocks for each row.
//
// logits [n, vocab], DistributionRow [n] -> tokens [n, k], q [n, k]. Bytes: 4 * vocab a row from memory once; the k
// passes read a block's share of the row from the nearest caches. A pass finds the greatest logit after the one found
// before, the lowest token among equals.
#include "kernels/cuda/cuda_backend.cuh"
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

// A token in the order of rank: the greater logit first, then the lower token.
struct Ranked {
  std::uint32_t key, token;
  __device__ bool before(const Ranked& other) const {
    return key > other.key || (key == other.key && token < other.token);
  }
};

__global__ void __launch_bounds__(kCrewThreads) rank_rows(const RankTask task) {
  extern __shared__ __align__(16) double sums[];
  __shared__ CrewMemory memory;
  static_assert(sizeof memory <= kMostCrewStaticBytes);
  begin_crew();
  Crew crew(memory, sums, task.vocab);
  const int i = crew.row();
  const Distribution distribution{task.logits + i * task.stride, task.rows[i], task.vocab};
  bool more = distribution.row.greedy >= 0;
  Ranked last{~0u, 0};  // no float has that key
  for (int j = 0; j < task.k; ++j) {
    float p = 0;
    if (more) {
      Ranked best{0, ~0u};
      crew.for_share(distribution.logits, [&](int x, float l) {
        const Ranked mine{key_of(l), std::uint32_t(x)};
        if (last.before(mine) && mine.before(best)) best = mine;
      });
      last = crew.agree(best, [](const Ranked& a, const Ranked& b) { return b.before(a) ? b : a; });
      if (last.token < std::uint32_t(task.vocab)) p = float(distribution(Token(last.token)));
      more = p > 0;  // later tokens have no probability either
    }
    if (crew.leads()) {
      task.tokens[i * task.tokens_stride + j] = more ? Token(last.token) : -1;
      task.q[i * task.q_stride + j] = p;
    }
  }
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
  launch_kernel("rank", stream_, crew_grid(*this, raw.count(), task.vocab), rank_rows, task);
}

}  // namespace foretoken
