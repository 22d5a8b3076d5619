// Distributions and draws on the GPU: the rows of normalize() bit for bit, as on the cpu backend, and the tokens of
// HostBackend::draw.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/gpu.h"
#include "tests/kernels/scenario.h"

namespace foretoken::test {
namespace {

std::string name_of(const Warp& w) {
  return "T " + std::to_string(w.temperature) + " k " + std::to_string(w.top_k) + " p " + std::to_string(w.top_p) +
         " min_p " + std::to_string(w.min_p);
}

std::vector<Warp> warps_to_try() {
  std::vector<Warp> warps;
  for (const float temperature : {0.0f, 0.3f, 1.0f, 2.0f})
    for (const int top_k : {0, 1, 40, 1 << 20})
      for (const float top_p : {1.0f, 0.9f, 0.1f, 0.0f, 0.99999f})
        for (const float min_p : {0.0f, 0.1f})
          if (temperature > 0 || (top_p == 1 && min_p == 0))
            warps.push_back({temperature, top_k, top_p, min_p, warps.size() % 2 == 0});
  return warps;
}

struct Pair {
  std::unique_ptr<Backend> cuda = make_gpu({}), cpu = make_cpu_backend(4);

  Tensor fetched(const Tensor& t) const {
    Tensor host = Tensor::host(t.shape(), t.dtype());
    cuda->copy(t, host);
    return host;
  }
  // Distributions on both backends; their rows must have the same bytes.
  std::pair<Distributions, Distributions> distributions(const Tensor& logits, const std::vector<Warp>& warps) const {
    const Distributions truth = cpu->distributions(logits, warps),
                        found = cuda->distributions(cuda->upload(logits), warps);
    const Tensor rows = fetched(found.rows);
    for (int r = 0; r < truth.count(); ++r) {
      const DistributionRow a = *reinterpret_cast<const DistributionRow*>(rows.row<std::uint8_t>(r)), b = truth[r].row;
      EXPECT_EQ(std::memcmp(rows.row<std::uint8_t>(r), truth.rows.row<std::uint8_t>(r), sizeof(DistributionRow)), 0)
          << "vocab " << truth.vocab() << " row " << r << ' ' << name_of(warps[std::size_t(r)]) << ": greedy "
          << a.greedy << " / " << b.greedy << ", peak " << a.peak << " / " << b.peak << ", threshold " << a.threshold
          << " / " << b.threshold << ", mass " << a.mass << " / " << b.mass << ", raw " << a.raw_log_normalizer << " / "
          << b.raw_log_normalizer << ", one_hot " << a.one_hot << " / " << b.one_hot;
    }
    return {truth, found};
  }
};

// Dynamic shared memory that needs the opt-in only together with the kernel's static shared memory.
TEST(DistributionsOnTheGpu, rows_of_a_vocabulary_of_400000) {
  const Pair pair;
  const Tensor logits = random_tensor({2, 400000}, 1, 3);
  pair.distributions(logits, {{.temperature = 0.7f, .top_k = 40, .top_p = 0.9f}, {.temperature = 1}});
}

TEST(DistributionsOnTheGpu, rows_have_the_same_bytes) {
  const Pair pair;
  for (const int vocab : {1, 2, 5, 255, 256, 257, 4096, 16385}) {
    const Tensor logits = wicked_logits(vocab, unsigned(vocab));
    for (const Warp& warp : warps_to_try()) pair.distributions(logits, std::vector<Warp>(kWickedRows, warp));
    ASSERT_FALSE(HasFailure());
  }
}

TEST(DistributionsOnTheGpu, rows_of_large_vocabularies_have_the_same_bytes) {
  const Pair pair;
  for (const int vocab : {32000, 128256, 151936}) {
    const Tensor logits = wicked_logits(vocab, unsigned(vocab));
    const auto all = warps_to_try();
    std::vector<Warp> warps(kWickedRows);
    for (std::size_t i = 0; i < all.size(); ++i) {  // every warp is applied to some of the rows
      for (std::size_t r = 0; r < kWickedRows; ++r) warps[r] = all[(i + r * 13) % all.size()];
      if (i % 4 == 0) pair.distributions(logits, warps);
    }
    ASSERT_FALSE(HasFailure());
  }
}

TEST(DistributionsOnTheGpu, many_rows_and_strided_rows) {
  const Pair pair;
  const auto all = warps_to_try();
  const Tensor logits = random_tensor({700, 1000}, 7, 2);
  std::vector<Warp> warps(700);
  for (std::size_t r = 0; r < warps.size(); ++r) warps[r] = all[r % all.size()];
  pair.distributions(logits, warps);
  const Distributions truth = pair.cpu->distributions(logits.columns(3, 777), warps),
                      found = pair.cuda->distributions(pair.cuda->upload(logits).columns(3, 777), warps);
  EXPECT_EQ(std::memcmp(pair.fetched(found.rows).raw(), truth.rows.raw(), std::size_t(truth.rows.bytes())), 0);
}

void expect_same_draws(const Pair& pair, const Tensor& logits, const std::vector<Warp>& warps, int seeds) {
  const auto [truth, found] = pair.distributions(logits, warps);
  const int n = truth.count();
  const Tensor apart = pair.cuda->allocate({n}, DType::i32);
  for (int seed = 0; seed < seeds; ++seed) {
    std::vector<TokenDraw> draws;
    for (int r = 0; r < n; ++r)
      draws.push_back({{std::uint64_t(seed), std::uint64_t(r), 3, 0},
                       {Role::draft, std::uint32_t(r), std::uint32_t(seed)},
                       std::uint32_t(seed * 7 + r),
                       (seed + r) % 2 == 1});
    const Tensor a = Tensor::host({n}, DType::i32),
                 b = pair.cuda->upload(Tensor::host({n, 2}, DType::i32)).columns(1, 1);
    pair.cpu->draw(truth, draws, a);
    for (int r = 0; r < n; r += 3) draws[std::size_t(r)].to = apart.row<Token>(r);
    pair.cuda->draw(found, draws, b);
    const Tensor together = pair.fetched(b), own = pair.fetched(apart);
    for (int r = 0; r < n; ++r)
      EXPECT_EQ(r % 3 == 0 ? own.row<Token>(r)[0] : together.row<Token>(r)[0], a.row<Token>(r)[0])
          << "vocab " << truth.vocab() << " row " << r << " seed " << seed << ' ' << name_of(warps[std::size_t(r)])
          << (draws[std::size_t(r)].race ? " race" : "");
  }
}

TEST(DistributionsOnTheGpu, draws_are_the_hosts) {
  const Pair pair;
  for (const int vocab : {1, 5, 256, 257, 4097, 128256}) {
    const Tensor logits = wicked_logits(vocab, unsigned(vocab));
    for (const Warp& warp : {Warp{}, Warp{1}, Warp{0.7f, 20}, Warp{1.3f, 0, 0.8f}, Warp{1, 0, 1, 0.02f}})
      expect_same_draws(pair, logits, std::vector<Warp>(kWickedRows, warp), vocab > 100000 ? 6 : 20);
    ASSERT_FALSE(HasFailure());
  }
  expect_same_draws(pair, random_tensor({600, 1500}, 3, 2), std::vector<Warp>(600, Warp{1}), 2);
}

// Several draws of one row, each of several tokens without replacement.
TEST(DistributionsOnTheGpu, siblings_are_the_hosts) {
  const Pair pair;
  constexpr int kEach = 5, kDraws = 2 * kWickedRows;
  for (const int vocab : {1, 5, 257, 4097, 128256})
    for (const Warp& warp : {Warp{}, Warp{1}, Warp{0.7f, 20}}) {
      const auto [truth, found] =
          pair.distributions(wicked_logits(vocab, unsigned(vocab)), std::vector<Warp>(kWickedRows, warp));
      const Tensor a = Tensor::host({kDraws * kEach}, DType::i32),
                   b = pair.cuda->allocate({kDraws * kEach}, DType::i32);
      std::vector<TokenDraw> draws;
      for (int i = 0; i < kDraws; ++i)
        draws.push_back({.draws = {5, std::uint64_t(i), 3, 0},
                         .name = {Role::draft, 2, 0},
                         .position = std::uint32_t(i),
                         .race = i % 4 == 1,
                         .siblings = kEach,
                         .row = i / 2,
                         .to = a.row<Token>(i * kEach)});
      pair.cpu->draw(truth, draws, {});
      for (int i = 0; i < kDraws; ++i) draws[std::size_t(i)].to = b.row<Token>(i * kEach);
      pair.cuda->draw(found, draws, {});
      const Tensor drawn = pair.fetched(b);
      for (int i = 0; i < kDraws * kEach; ++i)
        EXPECT_EQ(drawn.data<Token>()[i], a.data<Token>()[i])
            << "vocab " << vocab << " row " << i / kEach / 2 << " sibling " << i % kEach << ' ' << name_of(warp);
      ASSERT_FALSE(HasFailure());
    }
}

void expect_ranks_of_the_host(const Pair& pair, const Tensor& logits, int k) {
  const int rows = int(logits.dim(0)), vocab = int(logits.dim(1));
  const auto [truth, found] = pair.distributions(logits, std::vector<Warp>(std::size_t(rows), Warp{1}));
  const Tensor tokens = Tensor::host({rows, k}, DType::i32), q = Tensor::host({rows, k}, DType::f32),
               there = pair.cuda->allocate(tokens.shape(), DType::i32),
               q_there = pair.cuda->allocate(q.shape(), DType::f32);
  pair.cpu->rank(truth, k, tokens, q);
  pair.cuda->rank(found, k, there, q_there);
  const Tensor ranked = pair.fetched(there), by = pair.fetched(q_there);
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < k; ++j) {
      ASSERT_EQ(ranked.row<Token>(r)[j], tokens.row<Token>(r)[j]) << "vocab " << vocab << " row " << r << ' ' << j;
      ASSERT_EQ(by.row<float>(r)[j], q.row<float>(r)[j]) << "vocab " << vocab << " row " << r << ' ' << j;
    }
}

TEST(DistributionsOnTheGpu, ranks_are_the_hosts) {
  const Pair pair;
  for (const int vocab : {1, 5, 257, 1153, 4097, 128256})
    for (const int k : {1, 2, 9, 255, 257})
      if (k < 16 || vocab < 5000) expect_ranks_of_the_host(pair, wicked_logits(vocab, unsigned(vocab)), k);
}

// Crews of one block and of several, and logits of which more than fit are at least the k-th best of the warps.
TEST(DistributionsOnTheGpu, ranks_are_the_hosts_wherever_the_probable_tokens_lie) {
  const Pair pair;
  for (const int rows : {4, 40, 140}) {
    const Tensor logits = random_tensor({rows, 33000}, unsigned(rows), 3);
    for (int r = 0; r < rows; ++r)
      for (int x = 0; x < 33000; ++x) {
        float& l = logits.row<float>(r)[x];
        if (r % 4 == 1) l = float(x) * 1e-4f;
        if (r % 4 == 2 && x % 2048 < 256) l += 20;
        if (r % 4 == 3) l = std::round(l);
      }
    for (const int k : {10, 100}) expect_ranks_of_the_host(pair, logits, k);
  }
}

TEST(DistributionsOnTheGpu, rows_are_recalled_from_their_addresses) {
  const Pair pair;
  for (const DType type : {DType::f32, DType::bf16}) {
    const Tensor store = pair.cuda->upload(random_tensor({9, 70}, 3));
    const Tensor view = Tensor(store.owner(), store.raw(), {9, 70 * 4 / size_of(type)}, type, store.device());
    const Tensor at = Tensor::host({4}, DType::u64), to = pair.cuda->allocate({4, view.dim(1)}, type);
    const int rows[] = {8, -1, 0, 8};
    for (int i = 0; i < 4; ++i)
      *at.row<std::uint64_t>(i) =
          rows[i] < 0 ? 0 : reinterpret_cast<std::uint64_t>(store.raw()) + std::uint64_t(rows[i]) * 280;
    pair.cuda->recall(pair.cuda->upload(at), to, to.dtype());
    const Tensor found = pair.fetched(to), truth = pair.fetched(store);
    const std::vector<char> zeros(280, 0);
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(std::memcmp(static_cast<const char*>(found.raw()) + i * 280,
                            rows[i] < 0 ? zeros.data() : static_cast<const char*>(truth.raw()) + rows[i] * 280, 280),
                0);
  }
}

// Columns without a token are left out, tokens without one become -1: of a model of another vocabulary.
TEST(DistributionsOnTheGpu, columns_and_tokens_change_vocabularies_as_on_the_host) {
  const Pair pair;
  const int columns = 700, vocab = 1000;
  const Tensor from = random_tensor({3, columns}, 5), ids = Tensor::host({columns}, DType::i32),
               tokens = Tensor::host({900}, DType::i32);
  for (int j = 0; j < columns; ++j) ids.data<std::int32_t>()[j] = j % 3 == 0 ? -1 : (j * 7) % vocab;
  for (int i = 0; i < 900; ++i) tokens.data<std::int32_t>()[i] = i - 3;
  const auto both = [&](Backend& b) {
    const Tensor to = b.allocate({3, vocab}, DType::f32), there = b.upload(ids);
    b.spread(b.upload(from), there, to);
    return std::pair(to, b.translate(b.upload(tokens), there));
  };
  const auto host = make_reference_backend();
  const auto [logits, translated] = both(*host);
  const auto [on_gpu, translated_on_gpu] = both(*pair.cuda);
  const Tensor found = pair.fetched(on_gpu), found_tokens = pair.fetched(translated_on_gpu);
  EXPECT_EQ(std::memcmp(found.raw(), logits.raw(), std::size_t(logits.bytes())), 0);
  EXPECT_EQ(std::memcmp(found_tokens.raw(), translated.raw(), std::size_t(translated.bytes())), 0);
}

}  // namespace
}  // namespace foretoken::test
