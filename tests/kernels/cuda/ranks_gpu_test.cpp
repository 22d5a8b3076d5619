// Sums over ranks on GPUs: in the order of the ranks, recorded or not, of any size; a rank that ends ends the kernels
// that wait for it. With one GPU both ranks are on it, which shows the sums, not the wires.
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "kernels/reference/reference_backend.h"
#include "tests/support/gpu.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

struct RankedGpus : ::testing::Test {
  static constexpr int kRanks = 2;
  std::shared_ptr<RankGroup> group = std::make_shared<RankGroup>(kRanks);
  std::vector<std::unique_ptr<Backend>> gpus;

  void SetUp() override {
    for (int r = 0; r < kRanks; ++r) gpus.push_back(make_gpu({.device = r % cuda_devices()}));
    each([&](int r) { gpus[std::size_t(r)]->join({group, r}); });
  }
  // Of what must not fail.
  static void each(const std::function<void(int)>& f) {
    for (const std::string& why : on_each(f)) EXPECT_EQ(why, "");
  }
  // The messages of what f(rank) threw.
  static std::vector<std::string> on_each(const std::function<void(int)>& f) {
    std::vector<std::string> why(kRanks);
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; ++r) threads.emplace_back([&, r] { why[std::size_t(r)] = sentence_of([&] { f(r); }); });
    for (std::thread& t : threads) t.join();
    return why;
  }
  void wait_for_others(int rank) {
    double none[] = {0};
    Rank{group, rank}.agree(none);
  }
  static float own(int rank, std::int64_t i) { return float(i % 977) * (rank == 0 ? 1.0f : 1.0f / 3) + float(rank); }
  static Tensor numbers(int rank, Shape shape) {
    const Tensor x = Tensor::host(shape, DType::f32);
    for (std::int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = own(rank, i);
    return x;
  }
  void expect_sum(int rank, const Tensor& x) {
    const Tensor host = Tensor::host(x.shape(), DType::f32);
    gpus[std::size_t(rank)]->copy(x, host);
    for (std::int64_t i = 0; i < host.elements(); ++i)
      ASSERT_EQ(host.data<float>()[i], own(0, i) + own(1, i)) << "rank " << rank << ", number " << i;
  }
};

TEST_F(RankedGpus, add_up_numbers_of_any_size) {
  // Some with a tail, some with several pieces of each block.
  for (const Shape& shape : {Shape{1, 8192}, Shape{64, 8192}, Shape{3, 7}, Shape{1, 1}, Shape{257, 4099}})
    for (int again = 0; again < 20; ++again)
      each([&](int r) {
        Backend& gpu = *gpus[std::size_t(r)];
        const Tensor x = gpu.upload(numbers(r, shape));
        gpu.synchronize();
        wait_for_others(r);  // on one GPU, memory that is allocated may wait for kernels that run
        gpu.all_reduce(x, {group, r});
        gpu.synchronize();
        wait_for_others(r);
        expect_sum(r, x);
      });
}

TEST_F(RankedGpus, add_up_in_bodies_that_are_replayed) {
  if (cuda_devices() < kRanks) GTEST_SKIP() << "needs " << kRanks << " GPUs: what records may wait for what runs";
  each([&](int r) {
    Backend& gpu = *gpus[std::size_t(r)];
    const Tensor from = gpu.upload(numbers(r, {5, 8192})), x = gpu.allocate({5, 8192}, DType::f32);
    const std::int64_t key[] = {1};
    for (int again = 0; again < 50; ++again) {
      gpu.replay(key, [&] {
        gpu.copy(from, x);
        gpu.all_reduce(x, {group, r});
      });
      expect_sum(r, x);
    }
    EXPECT_GT(gpu.recordings(), 0u);
  });
}

TEST_F(RankedGpus, do_not_wait_for_one_that_has_ended) {
  const auto why = on_each([&](int r) {
    Backend& gpu = *gpus[std::size_t(r)];
    if (r == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return group->fail("rank 1 lost its device");
    }
    gpu.all_reduce(gpu.upload(numbers(r, {1, 8192})), {group, r});
    gpu.synchronize();  // returns
    wait_for_others(r);
  });
  EXPECT_EQ(why[0], "rank 1 lost its device");
  // All join again, and begin anew.
  group->restart();
  each([&](int r) {
    Backend& gpu = *gpus[std::size_t(r)];
    const Tensor x = gpu.upload(numbers(r, {2, 8192}));
    gpu.join({group, r});
    gpu.all_reduce(x, {group, r});
    gpu.synchronize();
    wait_for_others(r);
    expect_sum(r, x);
  });
}

// Bars: 6 us for one row, 14 us for 64, with a GPU for each rank.
TEST_F(RankedGpus, take_microseconds) {
  if (cuda_devices() < kRanks) GTEST_SKIP() << "needs " << kRanks << " GPUs";
  for (const auto& [rows, bar] : {std::pair(1, 6.0), std::pair(64, 14.0)}) {
    constexpr int kSums = 200;
    std::vector<double> times(kRanks);
    each([&, rows = rows](int r) {
      Backend& gpu = *gpus[std::size_t(r)];
      const Tensor x = gpu.upload(Tensor::host({rows, 8192}, DType::f32));
      const std::int64_t key[] = {rows};
      const auto sums = [&] {
        for (int i = 0; i < kSums; ++i) gpu.all_reduce(x, {group, r});
      };
      for (int warm = 0; warm < 3; ++warm) gpu.replay(key, sums);
      gpu.synchronize();
      const Mark from = gpu.mark();
      gpu.replay(key, sums);
      const Mark to = gpu.mark();
      gpu.synchronize();
      times[std::size_t(r)] = gpu.seconds(from, to) / kSums * 1e6;
    });
    RecordProperty("us_" + std::to_string(rows), std::to_string(times[0]));
    EXPECT_LT(times[0], bar) << rows << " rows x 8192";
  }
}

TEST_F(RankedGpus, have_the_pairs_of_their_own_experts) {
  ReferenceBackend reference;
  Backend& gpu = *gpus[0];
  for (const int rows : {1, 7, 300}) {
    const Tensor logits = Tensor::host({rows, 12}, DType::f32);
    for (std::int64_t i = 0; i < logits.elements(); ++i) logits.data<float>()[i] = float(i * 7919 % 1009);
    const auto host = [&](const Tensor& t) {
      const Tensor h = Tensor::host(t.shape(), t.dtype());
      gpu.copy(t, h);
      return h;
    };
    for (const int first : {0, 4, 8}) {
      const Routing found = gpu.held_experts(gpu.route(gpu.upload(logits), 3, true), first, 4),
                    want = reference.held_experts(reference.route(logits, 3, true), first, 4);
      for (Tensor Routing::* const of : {&Routing::chosen, &Routing::offsets, &Routing::touched})
        EXPECT_TRUE(std::ranges::equal(host(found.*of).values<std::int32_t>(), (want.*of).values<std::int32_t>()));
      const std::size_t pairs = std::size_t(want.offsets.values<std::int32_t>().back());
      EXPECT_TRUE(std::ranges::equal(host(found.pairs).values<std::int32_t>().first(pairs),
                                     want.pairs.values<std::int32_t>().first(pairs)));
    }
  }
}

}  // namespace
}  // namespace foretoken::test
