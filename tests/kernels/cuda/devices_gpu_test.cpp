// The current GPU is per thread: a backend works on its own GPU when it is called from any thread, also beside a
// backend on another GPU.
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "kernels/error.h"
#include "tests/kernels/cuda/gpu.h"

namespace foretoken::test {
namespace {

// The operations of a step in order: memory, uploads, a push, products, attention, a replay, distributions, a draw.
class Work {
 public:
  explicit Work(Backend& backend)
      : b_(backend),
        w_(b_.prepare(random_weight(3072, 2048, DType::bf16, 3))),
        cache_(2, 500, 16, 2, 128, DType::bf16, 5) {
    fill(*make_cpu_backend(2), cache_, 500, 5);
    kv_ = on_gpu(cache_.layers[0], b_);
    layout_ = on_gpu(layout_of({chain_row(0, 450), chain_row(1, 7)}, cache_.tables, 0), b_);
    y_ = b_.allocate({40, 3072}, DType::f32);
  }

  std::string step(unsigned seed) {
    const Tensor x = b_.upload(random_tensor({40, 2048}, seed));
    for (int i = 0; i < 3; ++i) b_.replay(std::array{std::int64_t(seed)}, [&] { b_.linear_to(y_, x, w_); });
    const Tensor qkv = b_.upload(rounded(random_tensor({2, 12 * 128}, seed)));
    const Tensor attended = b_.rope_attend(qkv.columns(0, 1024), qkv.columns(1024, 256), qkv.columns(1280, 256), kv_,
                                           layout_, b_.upload(random_tensor({64}, 3)), 0.1f);
    const Mirror m = b_.mirror(4096);
    std::memset(m.host.raw(), int(seed), 4096);
    b_.push(m, 4096);
    const std::vector<Warp> warps(40, Warp{.temperature = 0.8f, .top_p = 0.9f});
    const Distributions d = b_.distributions(y_, warps);
    std::vector<TokenDraw> draws;
    for (std::uint64_t r = 0; r < 40; ++r) draws.push_back({{seed, r, 3, 0}, {Role::draft, 0, 0}, 5});
    const Tensor tokens = b_.allocate({40}, DType::i32);
    b_.draw(d, draws, tokens);
    const Mark now = b_.mark();
    EXPECT_GT(b_.free_memory(), 0);
    return bytes(y_) + bytes(attended) + bytes(m.device) + bytes(tokens) + (b_.seconds(now, b_.mark()) < 0 ? "-" : "");
  }

 private:
  std::string bytes(const Tensor& t) {
    const Tensor host = Tensor::host(t.shape(), t.dtype());
    b_.copy(t, host);
    return {host.data<char>(), std::size_t(host.bytes())};
  }

  Backend& b_;
  Weight w_;
  Cache cache_;
  KvLayer kv_;
  Layout layout_;
  Tensor y_;
};

void on_a_thread(const std::function<void()>& body) { std::thread(body).join(); }

// A backend on the second GPU; null where there is only one GPU.
std::unique_ptr<Backend> second() {
  try {
    return make_gpu({.device = 1, .invariant = true});
  } catch (const Error&) {
    return nullptr;
  }
}

TEST(Devices, another_thread_uses_a_backend) {
  const auto first = make_gpu({.invariant = true}), again = make_gpu({.invariant = true});
  Work work(*first), here(*again);
  std::string there;
  on_a_thread([&] { there = work.step(7); });
  EXPECT_EQ(there, here.step(7));
}

TEST(Devices, backends_on_two_gpus_take_turns) {
  const auto other = second();
  if (!other) GTEST_SKIP() << "this machine has one GPU";
  const auto first = make_gpu({.invariant = true});
  Work left(*first), right(*other);
  for (unsigned seed = 1; seed < 5; ++seed) EXPECT_EQ(left.step(seed), right.step(seed)) << seed;
  std::string there;
  on_a_thread([&] { there = right.step(9); });  // a thread whose current GPU is the first
  EXPECT_EQ(left.step(9), there);
}

}  // namespace
}  // namespace foretoken::test
