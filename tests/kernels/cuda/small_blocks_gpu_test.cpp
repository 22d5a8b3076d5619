// A GPU with 99 KB of shared memory for a block (capabilities 8.6, 8.9, 12.0) uses other kernels, or the same with
// shallower rings: the bits must be the same as with all the memory of this GPU.
#include <functional>

#include <gtest/gtest.h>

#include "kernels/error.h"
#include "tests/kernels/cuda/gpu.h"

namespace foretoken::test {
namespace {

constexpr std::int64_t kSmall = 99 << 10;

class SmallBlocks : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> small = make_gpu({.invariant = true, .shared_memory_limit = kSmall}),
                           large = make_cuda_backend({.invariant = true});

  std::string bytes(Backend& b, const Tensor& t) {
    const Tensor host = Tensor::host(t.shape(), t.dtype());
    b.copy(t, host);
    return {host.data<char>(), std::size_t(host.bytes())};
  }
  void expect_same(const std::function<Tensor(Backend&)>& work) {
    std::string there;
    ASSERT_NO_THROW(there = bytes(*small, work(*small)));
    EXPECT_TRUE(there == bytes(*large, work(*large)));
  }
};

std::vector<ScenarioRow> a_tree(int prefix, int nodes) {
  std::vector<ScenarioRow> tree;
  for (int n = 0; n < nodes; ++n)
    tree.push_back({0, prefix + n, prefix + std::min(n, 1), prefix, {n == 0 ? 1u : 1u | std::uint64_t(1) << n}});
  return tree;
}
std::vector<ScenarioRow> a_chain(int begin, int rows) {
  std::vector<ScenarioRow> chain;
  for (int r = 0; r < rows; ++r) chain.push_back(chain_row(0, begin + r));
  return chain;
}

TEST_F(SmallBlocks, attention) {
  const std::unique_ptr<Backend> cpu = make_cpu_backend(2);
  for (const auto& [head_size, dtype] : {std::pair{64, DType::bf16},
                                         {80, DType::bf16},
                                         {96, DType::bf16},
                                         {128, DType::bf16},
                                         {256, DType::bf16},
                                         {64, DType::e4m3},
                                         {128, DType::e4m3},
                                         {256, DType::e4m3}})
    for (const int group : {1, 4, 8}) {
      Cache cache(1, 900, 16, 2, head_size, dtype);
      fill(*cpu, cache, 900, 1);
      for (const auto& [rows, words] : {std::pair{a_chain(870, 1), 0},
                                        {a_chain(860, 8), 0},
                                        {a_chain(600, 150), 0},
                                        {a_tree(20, 5), 1},
                                        {a_tree(700, 40), 1}}) {
        SCOPED_TRACE(::testing::Message() << "heads of " << head_size << ", group " << group << ", " << rows.size()
                                          << " rows" << (words ? " of a tree, " : ", ") << name_of(dtype));
        const Layout layout = layout_of(rows, cache.tables, words);
        const Tensor qkv =
            rounded(random_tensor({std::int64_t(rows.size()), std::int64_t(2 * group + 4) * head_size}, 4));
        expect_same([&](Backend& b) {
          return b.attend(b.upload(qkv.columns(0, 2 * group * head_size)), on_gpu(cache.layers[0], b),
                          on_gpu(layout, b), 0.1f);
        });
        expect_same([&](Backend& b) {
          const Tensor x = b.upload(qkv);
          const int q = 2 * group * head_size, kv = 2 * head_size;
          return b.rope_attend(x.columns(0, q), x.columns(q, kv), x.columns(q + kv, kv), on_gpu(cache.layers[0], b),
                               on_gpu(layout, b), b.upload(random_tensor({head_size / 2}, 3)), 0.1f);
        });
      }
    }
}

// Kernels are shared by the backends of a process: a backend with less memory must not take from one that was made
// before it.
TEST(SmallBlocksOrder, a_backend_with_little_memory_leaves_one_with_much_as_it_was) {
  const auto first = make_cuda_backend({.invariant = true});
  Cache cache(1, 900, 16, 2, 128, DType::bf16);
  fill(*make_cpu_backend(2), cache, 900, 1);
  const Layout layout = layout_of(a_chain(860, 8), cache.tables, 0);
  const Tensor qkv = rounded(random_tensor({8, std::int64_t(2 * 8 + 4) * 128}, 4));
  const auto attend = [&] {
    const Tensor x = first->upload(qkv);
    const Tensor out = first->rope_attend(x.columns(0, 16 * 128), x.columns(16 * 128, 2 * 128),
                                          x.columns(18 * 128, 2 * 128), on_gpu(cache.layers[0], *first),
                                          on_gpu(layout, *first), first->upload(random_tensor({64}, 3)), 0.1f);
    const Tensor host = Tensor::host(out.shape(), out.dtype());
    first->copy(out, host);
    return std::string(host.data<char>(), std::size_t(host.bytes()));
  };
  const std::string before = attend();
  const auto second = make_gpu({.invariant = true, .shared_memory_limit = kSmall});
  std::string after;
  ASSERT_NO_THROW(after = attend());
  EXPECT_TRUE(before == after);
}

TEST_F(SmallBlocks, products) {
  for (const auto& [out, in] : {std::pair{640, 384}, {3072, 2048}, {512, 8192}, {28672, 512}}) {
    const Weight host = random_weight(out, in, DType::bf16, 3), back = random_weight(in, out / 2, DType::bf16, 5);
    const Weight here[2] = {small->prepare(host), small->prepare(back)},
                 there[2] = {large->prepare(host), large->prepare(back)};
    for (const int rows : {1, 8, 16, 17, 64, 65, 300}) {
      SCOPED_TRACE(::testing::Message() << out << ' ' << in << ", " << rows << " rows");
      const Tensor x = random_tensor({rows, in}, 4), gain = random_tensor({1, in}, 6).reshaped({in});
      expect_same([&](Backend& b) { return b.linear(b.upload(x), (&b == small.get() ? here : there)[0]); });
      expect_same([&](Backend& b) {
        const Weight* const w = &b == small.get() ? here : there;
        const Tensor y = b.upload(x);
        b.feed_forward(y, b.upload(gain), 1e-5f, w[0], w[1]);
        return y;
      });
    }
  }
}

TEST_F(SmallBlocks, one_that_a_vocabulary_does_not_fit_says_so) {
  const auto tiny = make_gpu({.shared_memory_limit = 24 << 10});
  std::string sentence;
  try {
    (void)tiny->distributions(tiny->upload(random_tensor({1, 200000}, 1)),
                              std::vector<Warp>(1, Warp{.temperature = 1, .top_k = 4}));
  } catch (const Error& e) {
    sentence = e.what();
  }
  EXPECT_NE(sentence.find("24576"), std::string::npos) << sentence;
}

}  // namespace
}  // namespace foretoken::test
