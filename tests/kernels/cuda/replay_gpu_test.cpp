// Bodies that the CUDA backend records and replays.
#include <tuple>

#include <gtest/gtest.h>

#include "kernels/error.h"
#include "tests/kernels/cuda/cuda_scenario.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

class Replays : public Cuda {};

TEST(CudaReplays, one_that_is_not_its_body_any_more_is_an_error) {
  const auto cuda = make_gpu({.compare_replays = true});
  const Weight w = cuda->prepare(random_weight(96, 64, DType::bf16, 3));
  const Tensor x = cuda->upload(random_tensor({4, 64}, 1)), other = cuda->upload(random_tensor({4, 64}, 2)),
               y = cuda->allocate({4, 96}, DType::f32);
  constexpr std::array<std::int64_t, 1> kBody{1};
  bool changed = false;
  const auto replay = [&] { cuda->replay(kBody, [&] { cuda->linear_to(y, changed ? other : x, w); }, y); };
  for (int i = 0; i < 4; ++i) EXPECT_NO_THROW(replay()) << i;
  changed = true;
  EXPECT_TRUE(test::says(test::sentence_of(replay), "other numbers"));
  changed = false;
  EXPECT_NO_THROW(replay());
}

TEST_P(Replays, a_body_is_run_recorded_and_replayed_with_what_lies_in_mirrors) {
  const Weight w = cuda->prepare(random_weight(96, 64, DType::bf16, 3));
  const Mirror m = cuda->mirror(4 * 64 * 4);
  const Tensor x(m.device.owner(), m.device.raw(), {4, 64}, DType::f32, m.device.device());
  const Tensor y = cuda->allocate({4, 96}, DType::f32);
  constexpr std::array<std::int64_t, 1> kBody{1};
  int runs = 0;
  const std::uint64_t before = cuda->recordings();
  for (int i = 0; i < 6; ++i) {
    const Tensor values = random_tensor({4, 64}, unsigned(i));
    std::memcpy(m.host.raw(), values.raw(), std::size_t(values.bytes()));
    cuda->push(m, values.bytes());
    cuda->replay(kBody, [&] {
      ++runs;
      cuda->linear_to(y, x, w);
      cuda->add(y, y);
    });
    Tensor plain = down(cuda->linear(up(values), w));
    reference.add(plain, copy_of(plain));
    EXPECT_TRUE(same_bits(down(y), plain)) << i;
  }
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(cuda->recordings(), before + 1);
}

TEST(CudaReplays, the_one_that_was_not_used_for_longest_goes) {
  const auto cuda = make_gpu({.most_replays = 3});
  const Tensor y = cuda->upload(random_tensor({4, 96}, 1));
  const auto recorded = [&](std::int64_t body) {
    const std::uint64_t before = cuda->recordings();
    cuda->replay(std::array{body}, [&] { cuda->add(y, y); });
    return cuda->recordings() - before;
  };
  for (std::int64_t body : {1, 2, 3}) EXPECT_EQ(recorded(body), 1u);
  for (std::int64_t body : {1, 3, 2, 1}) EXPECT_EQ(recorded(body), 0u);
  EXPECT_EQ(recorded(4), 1u);  // replaces 3
  for (std::int64_t body : {1, 2, 4}) EXPECT_EQ(recorded(body), 0u);
  EXPECT_EQ(recorded(3), 1u);
  EXPECT_NO_THROW(cuda->synchronize());
}

TEST(CudaReplays, what_is_new_is_not_recorded_where_it_is_not_to_be) {
  const auto cuda = make_gpu({});
  const Tensor y = cuda->upload(random_tensor({4, 96}, 1));
  int runs = 0;
  const auto counted = [&](std::int64_t body) {
    cuda->replay(std::array{body}, [&] {
      ++runs;
      cuda->add(y, y);
    });
    return std::tuple(runs, cuda->recordings(), cuda->unrecorded());
  };
  EXPECT_EQ(counted(1), std::tuple(2, 1u, 0u)) << "run, then recorded";
  cuda->record_new(false);
  EXPECT_EQ(counted(1), std::tuple(2, 1u, 0u)) << "replayed";
  EXPECT_EQ(counted(2), std::tuple(3, 1u, 1u));
  EXPECT_EQ(counted(2), std::tuple(4, 1u, 2u));
  cuda->record_new(true);
  EXPECT_EQ(counted(2), std::tuple(6, 2u, 2u));
  EXPECT_NO_THROW(cuda->synchronize());
}

// What a body holds while it runs is in the peak whether it is run, recorded or replayed, and whatever other bodies
// were recorded before.
TEST(CudaReplays, the_peak_counts_a_replayed_body_as_one_that_runs) {
  const auto cuda = make_gpu({});
  const Tensor y = cuda->upload(random_tensor({4, 96}, 1));
  constexpr std::int64_t kLarge = std::int64_t(3) << 20, kSmall = std::int64_t(1) << 20;
  const auto peak = [&](std::int64_t bytes) {
    cuda->restart_peak();
    const std::int64_t before = cuda->memory().held;
    cuda->replay(std::array{bytes}, [&] {
      const Tensor held = cuda->allocate({bytes}, DType::u8);
      cuda->add(y, y);
    });
    return cuda->memory().most - before;
  };
  EXPECT_EQ(peak(kLarge), kLarge) << "run, then recorded";
  EXPECT_EQ(peak(kLarge), kLarge) << "replayed";
  EXPECT_EQ(peak(kSmall), kSmall);
  EXPECT_EQ(peak(kSmall), kSmall) << "not what the larger body needs";
}

TEST_P(Replays, a_body_that_fails_is_not_kept) {
  const Tensor y = cuda->allocate({4, 96}, DType::f32);
  constexpr std::array<std::int64_t, 1> kFails{1}, kReads{2};
  const auto failing = [&] { throw Error("no"); };
  EXPECT_THROW(cuda->replay(kFails, failing), Error);
  int tries = 0;
  const auto failing_later = [&] {
    if (tries++ == 1) throw Error("no");
  };
  EXPECT_THROW(cuda->replay(kFails, failing_later), Error);  // while it is recorded
  EXPECT_NO_THROW(cuda->replay(kFails, failing_later));
  EXPECT_EQ(tries, 4);
  EXPECT_THROW(cuda->replay(kReads, [&] { (void)down(y); }), Error);
}

INSTANTIATE_TEST_SUITE_P(Numerics, Replays, ::testing::Bool(),
                         [](const auto& i) { return i.param ? "invariant" : "fast"; });

}  // namespace
}  // namespace foretoken::test
