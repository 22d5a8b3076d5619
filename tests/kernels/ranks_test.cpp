// Operations of ranks, of the cpu backend with every instruction set and of the reference. Ranks meet, add up and
// agree, and one that ends wakes the others.
#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "kernels/rank.h"
#include "kernels/reference/reference_backend.h"
#include "tests/support/sentence.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

// f(rank) on a thread for each; the messages of what they threw.
std::vector<std::string> on_threads(int ranks, const std::function<void(int)>& f) {
  std::vector<std::string> why(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&, r] { why[std::size_t(r)] = sentence_of([&] { f(r); }); });
  for (std::thread& t : threads) t.join();
  return why;
}

struct ParityAmongRanks : ::testing::TestWithParam<std::string> {
  std::unique_ptr<HostBackend> cpu = cpu_backend(2, GetParam());
  ReferenceBackend reference;
};

// 1e8 + (-1e8) + 1 and every other order differ in f32.
TEST_P(ParityAmongRanks, all_reduce) {
  constexpr int kRanks = 3, kNumbers = 74;
  const auto group = std::make_shared<RankGroup>(kRanks);
  const auto own = [](int rank, int i) { return (rank == 0 ? 1e8f : rank == 1 ? -1e8f : 1.0f) + float(i) / 8; };
  for (Backend* const b : std::initializer_list<Backend*>{cpu.get(), &reference})
    for (int late = 0; late < kRanks; ++late) {
      std::vector<Tensor> x;
      for (int r = 0; r < kRanks; ++r) {
        x.push_back(Tensor::host({2, kNumbers / 2}, DType::f32));
        for (int i = 0; i < kNumbers; ++i) x.back().data<float>()[i] = own(r, i);
      }
      const auto why = on_threads(kRanks, [&](int r) {
        if (r == late) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        b->all_reduce(x[std::size_t(r)], {group, r});
      });
      for (int r = 0; r < kRanks; ++r) {
        EXPECT_EQ(why[std::size_t(r)], "");
        for (int i = 0; i < kNumbers; ++i)
          ASSERT_EQ(x[std::size_t(r)].data<float>()[i], own(0, i) + own(1, i) + own(2, i)) << r << " " << i;
      }
    }
  EXPECT_TRUE(says(sentence_of([&] { cpu->all_reduce(cpu->allocate({2, 8}, DType::f32).columns(0, 4), {group, 0}); }),
                   "all_reduce", "dense"));
}

TEST_P(ParityAmongRanks, join) {
  const auto group = std::make_shared<RankGroup>(2);
  cpu->join({group, 0});  // nothing is to be prepared in host memory, so nobody is waited for
}

TEST_P(ParityAmongRanks, zeros) {
  const Tensor x = cpu->zeros({3, 5});
  EXPECT_EQ(x.shape(), Shape({3, 5}));
  EXPECT_TRUE(std::ranges::all_of(x.values<float>(), [](float v) { return v == 0; }));
}

TEST_P(ParityAmongRanks, held_experts) {
  Backend& b = *cpu;
  constexpr int kExperts = 6, kUsed = 2, kRows = 5, kWidth = 3;
  const Tensor logits = Tensor::host({kRows, kExperts}, DType::f32);
  for (int i = 0; i < kRows * kExperts; ++i) logits.data<float>()[i] = float(i * 7 % 11);
  const Routing all = b.route(logits, kUsed, true);
  const Tensor y = Tensor::host({kRows * kUsed, kWidth}, DType::f32), whole = b.zeros({kRows, kWidth}),
               parts = b.zeros({kRows, kWidth});
  for (int i = 0; i < y.elements(); ++i) y.data<float>()[i] = float(i % 5);
  b.add_shares(whole, y, all);
  std::int64_t pairs = 0;
  for (const int first : {0, 2, 4}) {
    const Routing own = b.held_experts(all, first, 2);
    pairs += own.offsets.data<std::int32_t>()[2];
    for (int e = 0; e < 2; ++e)
      for (int i = own.offsets.data<std::int32_t>()[e]; i < own.offsets.data<std::int32_t>()[e + 1]; ++i)
        EXPECT_EQ(all.chosen.data<std::int32_t>()[own.pairs.data<std::int32_t>()[i]], first + e);
    b.add_shares(parts, y, own);
  }
  EXPECT_EQ(pairs, all.count());
  for (int i = 0; i < whole.elements(); ++i) EXPECT_NEAR(parts.data<float>()[i], whole.data<float>()[i], 1e-6);
}

TEST(Ranks, AgreeOnWhatRank0Decides) {
  const auto group = std::make_shared<RankGroup>(4);
  const auto why = on_threads(4, [&](int r) {
    for (int round = 0; round < 50; ++round) {
      double numbers[] = {double(r), double(r + round)};
      Rank{group, r}.agree(numbers);
      EXPECT_EQ(numbers[0], 0);
      EXPECT_EQ(numbers[1], round);
    }
  });
  EXPECT_EQ(why, std::vector<std::string>(4));
}

TEST(Ranks, ThatEndWakeTheOthers) {
  const auto group = std::make_shared<RankGroup>(3);
  const auto meet = [&](int r) {
    double number[] = {double(r)};
    Rank{group, r}.agree(number);
  };
  auto why = on_threads(3, [&](int r) {
    if (r == 1)
      group->fail("rank 1 lost its device");
    else
      meet(r);
  });
  EXPECT_EQ(why[0], "rank 1 lost its device");
  EXPECT_EQ(why[2], "rank 1 lost its device");
  EXPECT_EQ(sentence_of([&] { meet(0); }), "rank 1 lost its device");  // later meetings too
  group->restart();
  why = on_threads(3, meet);
  EXPECT_EQ(why[0] + why[1] + why[2], "");
}

TEST(Ranks, ThatBringDifferentThingsAreRefused) {
  const auto group = std::make_shared<RankGroup>(2);
  const auto why = on_threads(2, [&](int r) {
    std::vector<double> numbers(std::size_t(2 + r));
    Rank{group, r}.agree(numbers);
  });
  for (const std::string& sentence : why) EXPECT_TRUE(says(sentence, "went different ways", "decisions of", "clock"));
}

INSTANTIATE_TEST_SUITE_P(Cpu, ParityAmongRanks, ::testing::ValuesIn(cpu_instructions()),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace foretoken::test
