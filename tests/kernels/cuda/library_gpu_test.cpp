// Where the library's bits depend on the number of rows, invariant numerics do not use it and report this. Here all of
// its algorithms are treated so.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/gpu.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

constexpr const char* kNote = "depend on the number of rows";

// y = x W^T + b and y += x W^T + b in f32, and the norm's product in bf16, of the first n rows.
class Products {
 public:
  Products(Backend& backend, int out, int in, bool biased) : b_(backend) {
    Weight host = random_weight(out, in, DType::bf16, 5);
    if (biased) host.bias = random_tensor({1, out}, 8).reshaped({out});
    w_ = b_.prepare(host);
    gain_ = b_.upload(random_tensor({1, in}, 6).reshaped({in}));
    x_ = b_.upload(random_tensor({kMost, in}, 1)), sums_ = random_tensor({kMost, out}, 2);
  }
  std::vector<Tensor> of(int n) {
    const Tensor added = b_.upload(sums_.rows(0, n));
    b_.linear_add(added, x_.rows(0, n), w_);
    return {down(b_.linear(x_.rows(0, n), w_)), down(added), down(b_.norm_linear(x_.rows(0, n), gain_, 1e-5f, w_))};
  }

  static constexpr int kMost = 300;

 private:
  Tensor down(const Tensor& t) {
    const Tensor host = Tensor::host(t.shape(), t.dtype());
    b_.copy(t, host);
    return host;
  }

  Backend& b_;
  Weight w_;
  Tensor gain_, x_, sums_;
};

bool begins(const Tensor& few, const Tensor& all) {
  return std::memcmp(few.raw(), all.raw(), std::size_t(few.bytes())) == 0;
}

// Matrices for which few rows are streamed, one with split-K slices, and two that only the library supports.
TEST(Library, one_whose_bits_depend_on_the_number_of_rows_is_done_without) {
  const auto doubting = make_gpu({.invariant = true, .doubt_library = true}), trusting = make_gpu({.invariant = true});
  EXPECT_EQ(doubting->description().find(kNote), std::string::npos);
  for (const auto& [out, in] : {std::pair{640, 384}, {3072, 2048}, {512, 4096}, {100, 200}, {1000, 64}})
    for (const bool biased : {false, true}) {
      Products slow(*doubting, out, in, biased), fast(*trusting, out, in, biased);
      const std::vector<Tensor> all = slow.of(Products::kMost), truth = fast.of(Products::kMost);
      for (std::size_t i = 0; i < all.size(); ++i)
        EXPECT_TRUE(begins(all[i], truth[i])) << out << ' ' << in << ' ' << i;
      for (const int n : {1, 3, 16, 17, 64, 65, 130}) {
        const std::vector<Tensor> few = slow.of(n);
        for (std::size_t i = 0; i < few.size(); ++i)
          EXPECT_TRUE(begins(few[i], all[i])) << out << ' ' << in << ", " << n << " rows, use " << i;
      }
    }
  EXPECT_TRUE(test::says(doubting->description(), kNote, "[640, 384]", "[100, 200]"));
  for (const char* streamed : {"[640, 384]", "[3072, 2048]", "[512, 4096]"})  // measured to be the same on 9.0
    EXPECT_EQ(trusting->description().find(streamed), std::string::npos) << trusting->description();
}

// A body recorded before the comparison is correct too, and after the comparison it is replayed.
TEST(Library, bodies_that_are_recorded_have_the_same_bits) {
  const auto cuda = make_gpu({.invariant = true, .compare_replays = true});
  const Weight w = cuda->prepare(random_weight(640, 384, DType::bf16, 5));
  const Tensor x = cuda->upload(random_tensor({130, 384}, 1)), y = cuda->allocate({130, 640}, DType::f32);
  for (int i = 0; i < 3; ++i)
    EXPECT_NO_THROW(cuda->replay(std::array{std::int64_t(1)}, [&] { cuda->linear_to(y, x, w); }, y));
}

TEST(Library, fast_numerics_trust_it) {
  const auto cuda = make_gpu({.doubt_library = true});
  Products products(*cuda, 640, 384, false);
  (void)products.of(Products::kMost);
  EXPECT_EQ(cuda->description().find(kNote), std::string::npos);
}

// Shapes whose rows are not aligned: whether or not the library has an algorithm, there is a product.
TEST(Library, shapes_that_it_may_lack_are_multiplied) {
  const auto fast = make_gpu({}), exact = make_gpu({.invariant = true});
  for (const auto& [out, in] : {std::pair{101, 63}, {7, 5}, {1001, 129}}) {
    Products some(*fast, out, in, true), truth(*exact, out, in, true);
    const Tensor found = some.of(Products::kMost)[1], sums = truth.of(Products::kMost)[1];
    for (std::int64_t i = 0; i < std::int64_t(out) * Products::kMost; ++i)
      ASSERT_NEAR(found.data<float>()[i], sums.data<float>()[i], 1e-2) << out << ' ' << in << ' ' << i;
  }
}

}  // namespace
}  // namespace foretoken::test
