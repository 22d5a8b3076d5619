// The CUDA backend's memory and elementwise operations against the reference backend or their definition.
#include <gtest/gtest.h>

#include "kernels/error.h"
#include "kernels/staging.h"
#include "tests/kernels/cuda/cuda_scenario.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

TEST_P(Cuda, kernels_of_the_gpus_own_instructions_are_built) {
  EXPECT_EQ(cuda->description().find("built without"), std::string::npos) << cuda->description();
}

TEST_P(Cuda, memory_is_handed_out_again_and_blocks_never_overlap) {
  EXPECT_NE(cuda->description().find("multiprocessors"), std::string::npos);
  {  // what the first copies of a process make once, as the code of their kernels, is not counted
    Tensor few = Tensor::host({64}, DType::u8), many = Tensor::host({30'000'000}, DType::u8);
    for (Tensor* h : {&few, &many}) {
      const Tensor t = cuda->allocate(h->shape(), DType::u8);
      cuda->copy(*h, t);
      cuda->copy(t, *h);
    }
  }
  const std::int64_t free = cuda->free_memory();
  EXPECT_GT(free, 0);
  std::mt19937 engine(3);
  std::vector<std::pair<Tensor, int>> held;
  for (int i = 0; i < 400; ++i) {
    const std::int64_t n = i % 40 == 0 ? 30'000'000 : 1 + std::int64_t(engine() % 200'000);
    held.emplace_back(cuda->allocate({n}, DType::u8), i % 251);
    Tensor h = Tensor::host({n}, DType::u8);
    std::memset(h.raw(), i % 251, std::size_t(n));
    cuda->copy(h, held.back().first);
    if (held.size() > 30) held.erase(held.begin() + int(engine() % held.size()));
  }
  for (const auto& [t, value] : held) {
    Tensor h = Tensor::host(t.shape(), DType::u8);
    cuda->copy(t, h);
    for (const std::uint8_t v : h.values<std::uint8_t>()) ASSERT_EQ(v, value);
  }
  held.clear();
  EXPECT_GE(cuda->free_memory(), free - (1 << 20)) << "before: " << free;
  EXPECT_THROW((void)cuda->allocate({1 << 20, 1 << 20}, DType::u64), Error);
  Tensor kept;
  {
    const auto gone = make_gpu({});
    kept = gone->allocate({8}, DType::i32);
  }
  EXPECT_TRUE(kept);  // tensors may outlive their backend
}

// As in a sweep: the pages of one run, the weights of the next run's draft, then its pages, slightly fewer or more.
TEST_P(Cuda, memory_of_pages_is_found_again_when_weights_came_between) {
  const std::int64_t most = cuda->free_memory() / 10 * 7, little = std::int64_t(300) << 20;
  std::vector<Tensor> weights;
  for (const std::int64_t bytes : {most, most - little, most + little, most - 9 * little, most}) {
    {
      EXPECT_TRUE(cuda->allocate({bytes}, DType::u8)) << bytes;
    }
    weights.push_back(cuda->allocate({little}, DType::u8));
  }
}

TEST_P(Cuda, bytes_arrive_whole_and_in_order) {
  const Tensor small = random_tensor({6, 40}, 1), large = random_tensor({3, 3'000'001}, 2),
               many = random_tensor({5000, 700}, 3);
  for (const Tensor& t : {small, large, many}) {
    EXPECT_TRUE(same_bits(down(up(t)), t));
    EXPECT_TRUE(same_bits(down(strided(t, 13)), t));
    Tensor wide = Tensor::host({t.dim(0), t.dim(1) + 3}, DType::f32);
    cuda->copy(strided(t, 7), wide.columns(2, t.dim(1)));
    EXPECT_TRUE(same_bits(wide.columns(2, t.dim(1)), t));
    const Tensor there = strided(t, 5);
    cuda->copy(up(t), there);
    EXPECT_TRUE(same_bits(down(there), t));
    Tensor fetched = Tensor::host(t.shape(), DType::f32);
    cuda->fetch(there, fetched);
    cuda->synchronize();
    EXPECT_TRUE(same_bits(fetched, t));
    Tensor beside = Tensor::host(t.shape(), DType::f32);  // in host memory only
    cuda->copy(fetched, beside);
    EXPECT_TRUE(same_bits(beside, t));
  }
  const Mirror m = cuda->mirror(1000);
  const Tensor copies = cuda->allocate({100, 1000}, DType::u8);
  const std::uint64_t waits = cuda->waits();
  for (int i = 0; i < 100; ++i) {  // the host writes again while the device may still read
    std::memset(m.host.raw(), i, 1000);
    cuda->push(m, 1000);
    cuda->copy(m.device.reshaped({1, 1000}), copies.rows(i, 1));
  }
  EXPECT_EQ(cuda->waits(), waits);
  Tensor h = Tensor::host({100, 1000}, DType::u8);
  cuda->copy(copies, h);
  EXPECT_EQ(cuda->waits(), waits + 1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(h.row<std::uint8_t>(i)[999], i);
}

TEST_P(Cuda, a_push_waits_for_the_kernels_that_still_read_what_was_pushed_before) {
  constexpr int kNumbers = 12'000;
  const Mirror numbers = cuda->mirror(kNumbers * 4);
  const Tensor sums = up(Tensor::host_copy(std::span<const float>(std::vector<float>(100 * kNumbers)), DType::f32))
                          .reshaped({100, kNumbers});
  const Tensor pushed(numbers.device.owner(), numbers.device.raw(), {1, kNumbers}, DType::f32, numbers.device.device());
  const std::uint64_t waits = cuda->waits();
  for (int i = 0; i < 100; ++i) {
    std::fill_n(reinterpret_cast<float*>(numbers.host.raw()), kNumbers, float(i + 1));
    cuda->push(numbers, kNumbers * 4);
    cuda->add(sums.rows(i, 1), pushed);
  }
  EXPECT_EQ(cuda->waits(), waits);
  const Tensor added = down(sums);
  for (int i = 0; i < 100; ++i)
    for (int k = 0; k < kNumbers; ++k) ASSERT_EQ(added.row<float>(i)[k], float(i + 1)) << i << ' ' << k;
}

// Few bytes are moved by a kernel and more by the copy engine; sizes that end within a word, and views that begin
// within one.
TEST_P(Cuda, every_byte_is_pushed_and_fetched_and_no_other) {
  for (const std::int64_t bytes : {1, 2, 15, 16, 17, 100, 2047, 2048, 2049, 50'000, 65'535, 65'536, 65'537, 300'000}) {
    const Mirror m = cuda->mirror(bytes + 40);
    const auto fill = [&](int factor) {
      for (std::int64_t i = 0; i < bytes + 40; ++i) *m.host.row<std::uint8_t>(i) = std::uint8_t(i * factor + i / 251);
    };
    fill(7), cuda->push(m, bytes + 40);
    fill(13), cuda->push(m, bytes);
    for (const std::int64_t begin : {0, 1, 16, 24}) {
      const std::int64_t n = bytes + 40 - begin;
      Tensor guarded = Tensor::host({n + 2}, DType::u8);
      std::memset(guarded.raw(), 0xa5, std::size_t(n + 2));
      cuda->fetch(m.device.rows(begin, n), guarded.rows(1, n));
      cuda->synchronize();
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t at = begin + i;
        ASSERT_EQ(*guarded.row<std::uint8_t>(i + 1), std::uint8_t(at * (at < bytes ? 13 : 7) + at / 251))
            << bytes << ' ' << begin << ' ' << i;
      }
      EXPECT_EQ(*guarded.row<std::uint8_t>(0), 0xa5);
      EXPECT_EQ(*guarded.row<std::uint8_t>(n + 1), 0xa5);
    }
  }
}

TEST_P(Cuda, moments_lie_apart_and_padded_sizes_stay) {
  const Tensor y = up(random_tensor({4, 96}, 1));
  const Mark a = cuda->mark();
  for (int i = 0; i < 100; ++i) cuda->add(y, y);
  const Mark b = cuda->mark();
  cuda->synchronize();
  EXPECT_GT(cuda->seconds(a, b), 0);
  for (int n = 1, before = 0; n < 9000; before = cuda->padded(n++))
    EXPECT_TRUE(cuda->padded(n) >= n && cuda->padded(n) >= before && cuda->padded(cuda->padded(n)) == cuda->padded(n));
}

TEST_P(Cuda, elementwise) {
  for (int width : {1, 3, 36, 64, 1000, 4096}) {
    const Tensor table = random_tensor({11, width}, 1), tokens = integers({3, -1, 10, 0});
    EXPECT_TRUE(same_bits(down(cuda->embed(Weight::dense(up(table)), up(tokens))),
                          reference.embed(Weight::dense(table), tokens)));
    EXPECT_TRUE(same_bits(down(cuda->embed(cuda->prepare(Weight::dense(rounded(table))), up(tokens))),
                          reference.embed(Weight::dense(rounded(table)), tokens)));
    const Tensor x = random_tensor({5, width}, 2, 3), gain = random_tensor({1, width}, 3).reshaped({width});
    EXPECT_LT(distance(down(cuda->rms_norm(up(x), up(gain), 1e-5f)), reference.rms_norm(x, gain, 1e-5f)), 1e-6);
    EXPECT_TRUE(
        same_bits(down(cuda->rms_norm(strided(x, 4), up(gain), 1e-5f)), down(cuda->rms_norm(up(x), up(gain), 1e-5f))));
    const Tensor g = random_tensor({7, 2 * width}, 4, 2);
    EXPECT_LT(distance(down(cuda->silu_mul(strided(g, 8))), reference.silu_mul(g)), 1e-6);
    EXPECT_LT(distance(down(cuda->silu_mul(up(rounded(g)))), reference.silu_mul(through_bf16(g))), kRounding);
    EXPECT_LT(distance(down(cuda->gelu_mul(strided(g, 8))), reference.gelu_mul(g)), 1e-6);
    EXPECT_LT(distance(down(cuda->gelu_mul(up(rounded(g)))), reference.gelu_mul(through_bf16(g))), kRounding);
    EXPECT_LT(distance(down(cuda->clamped_mul(strided(g, 8), 1.7f, 3)), reference.clamped_mul(g, 1.7f, 3)), 1e-6);
    EXPECT_LT(
        distance(down(cuda->clamped_mul(up(rounded(g)), 1.7f, 3)), reference.clamped_mul(through_bf16(g), 1.7f, 3)),
        kRounding);
    const Tensor there = up(x), here = copy_of(x);
    cuda->scale(there, 2.5f), reference.scale(here, 2.5f);
    EXPECT_TRUE(same_bits(down(there), here));
    cuda->softcap(there, 3), reference.softcap(here, 3);
    EXPECT_LT(distance(down(there), here), 1e-6);
    const Tensor none = Tensor::host({1, 1}, DType::f32);
    none.data<float>()[0] = -INFINITY;
    const Tensor kept = up(none);
    cuda->softcap(kept, 3);
    EXPECT_EQ(down(kept).data<float>()[0], -INFINITY);
    const Tensor two = up(g), on_host = copy_of(g), y = random_tensor({7, width}, 5);
    cuda->silu_add(two, strided(y, 3)), reference.silu_add(on_host, y);
    EXPECT_LT(distance(down(two), on_host), 1e-6);
    Tensor sum = up(x), plain = copy_of(x);
    cuda->add(sum, up(random_tensor({5, width}, 9))), reference.add(plain, random_tensor({5, width}, 9));
    EXPECT_TRUE(same_bits(down(sum), plain));
    const Tensor rows = integers({4, 0, 0, 2});
    EXPECT_TRUE(same_bits(down(cuda->gather(strided(x, 3), up(rows))), reference.gather(x, rows)));
    EXPECT_TRUE(same_bits(down(cuda->gather(up(rounded(x)), up(rows))), reference.gather(through_bf16(x), rows)));
  }
  const Tensor drawn = up(integers({70, 80, 91})), to = cuda->allocate({4}, DType::i32);
  const std::vector<std::uint64_t> at{0, reinterpret_cast<std::uint64_t>(drawn.data<Token>() + 2), 0,
                                      reinterpret_cast<std::uint64_t>(drawn.data<Token>())};
  const auto picked = [&](int vocab) {
    cuda->pick(up(integers({1, 2, -1, 4})), up(listed(at, DType::u64)), to, vocab);
    const Tensor tokens = down(to);
    return std::vector<Token>(tokens.data<Token>(), tokens.data<Token>() + 4);
  };
  EXPECT_EQ(picked(92), (std::vector<Token>{1, 91, -1, 70}));
  EXPECT_EQ(picked(91), (std::vector<Token>{1, kOutside, -1, 70}));
}

TEST_P(Cuda, rms_norm_of_many_rows_has_the_bits_of_one) {
  for (const int width : {4, 100, 1000, 2048, 2052, 4096, 4100, 8196}) {
    const Tensor x = up(random_tensor({1100, width}, unsigned(width))), gain = up(random_tensor({width}, 3)),
                 all = down(cuda->rms_norm(x, gain, 1e-5f));
    for (int r = 0; r < 1100; r += 97)
      ASSERT_TRUE(same_row(down(cuda->rms_norm(x.rows(r, 1), gain, 1e-5f)), 0, all, r))
          << "width " << width << " row " << r;
  }
}

TEST_P(Cuda, head_norm) {
  for (int head_size : {6, 64, 128})
    for (int heads : {1, 4, 11}) {
      const Tensor x = random_tensor({5, heads * head_size}, 1, 3),
                   gain = random_tensor({1, head_size}, 2).reshaped({head_size}), rounded_x = through_bf16(x);
      const Tensor f32 = strided(x, 4), bf16 = strided(rounded(x), 6);
      cuda->head_norm(f32, up(gain), 1e-5f), cuda->head_norm(bf16, up(gain), 1e-5f);
      reference.head_norm(x, gain, 1e-5f), reference.head_norm(rounded_x, gain, 1e-5f);
      EXPECT_LT(distance(down(f32), x), 1e-6);
      EXPECT_LT(distance(down(bf16), rounded_x), kRounding);
    }
}

TEST_P(Cuda, rotation_and_storing) {
  for (int head_size : {6, 48, 64, 96, 128, 256})
    for (DType pages : {DType::f32, DType::bf16, DType::i8, DType::e4m3})
      for (DType type : {DType::f32, DType::bf16}) {
        Cache cache(3, 70, 16, 2, head_size, pages);
        std::vector<ScenarioRow> rows;
        for (int s = 0; s < 3; ++s)
          for (int i = 0; i < 9; ++i) rows.push_back(chain_row(s, 3 + 20 * s + i));
        std::vector<float> f;
        for (int i = 0; i < head_size / 2; ++i) f.push_back(std::pow(10000.0f, -2 * float(i) / float(head_size)));
        const Tensor frequencies = listed(f, DType::f32), random = random_tensor({27, 10 * head_size}, 1);
        const Tensor qkv = type == DType::f32 ? copy_of(random) : through_bf16(random),
                     device = up(type == DType::f32 ? random : rounded(random));
        const Layout layout = layout_of(rows, cache.tables, 0);
        const Tensor pool = up(cache.pool);
        const auto part = [&](const Tensor& t, int begin, int heads) {
          return t.columns(begin * head_size, heads * head_size);
        };
        cuda->rope_store(part(device, 0, 6), part(device, 6, 2), part(device, 8, 2), up(cache.layers[1], pool),
                         up(layout), up(frequencies));
        reference.rope(part(qkv, 0, 6), part(qkv, 6, 2), layout, frequencies, head_size);
        const Tensor rotated = down(device);
        EXPECT_LT(distance(rotated, qkv), type == DType::f32 ? 1e-6 : kRounding) << head_size;
        // The rotated keys are the stored ones.
        reference.store(part(rotated, 6, 2), part(rotated, 8, 2), cache.layers[1], layout);
        Tensor back = Tensor::host(pool.shape(), DType::u8);
        cuda->copy(pool, back);
        EXPECT_EQ(std::memcmp(back.raw(), cache.pool.raw(), std::size_t(back.bytes())), 0) << head_size;
        // rope and store separately give the same bits.
        const Tensor again = up(type == DType::f32 ? random : rounded(random)), other = up(cache.pool);
        cuda->rope(part(again, 0, 6), part(again, 6, 2), up(layout), up(frequencies), head_size);
        cuda->store(part(again, 6, 2), part(again, 8, 2), up(cache.layers[0], other), up(layout));
        EXPECT_TRUE(same_bits(down(again), rotated));
        reference.store(part(rotated, 6, 2), part(rotated, 8, 2), cache.layers[0], layout);
        cuda->copy(other, back);
        EXPECT_EQ(std::memcmp(back.raw(), cache.pool.raw(), std::size_t(back.bytes())), 0) << head_size;
      }
}

TEST_P(Cuda, move) {
  for (DType pages : {DType::f32, DType::bf16, DType::i8, DType::e4m3})
    for (int head_size : {6, 64}) {
      Cache cache(2, 200, 16, 2, head_size, pages);
      fill(reference, cache, 200, 5);
      Cache other(1, 40, 4, 3, 8, pages);
      fill(reference, other, 40, 7);
      std::vector<std::int32_t> from, to;
      for (int i = 0; i < 70; ++i) from.push_back(20 + 2 * i), to.push_back(20 + i);
      const auto first = moved_rows(cache, 1, from, to), second = moved_rows(cache, 0, {30, 31, 40}, {29, 30, 31}),
                 third = moved_rows(other, 0, {39}, {0});
      const auto move = [&](Backend& backend, std::span<const KvLayer> a, std::span<const KvLayer> b) {
        backend.move(std::vector<Moves>{{a, first}, {b, third}, {a, second}});
      };
      const auto all_up = [&](const Cache& c, const Tensor& pool) {
        std::vector<KvLayer> layers;
        for (const KvLayer& l : c.layers) layers.push_back(up(l, pool));
        return layers;
      };
      const Tensor pool = up(cache.pool), other_pool = up(other.pool);
      move(*cuda, all_up(cache, pool), all_up(other, other_pool));
      move(reference, cache.layers, other.layers);
      for (const auto& [device, host] : {std::pair(pool, cache.pool), std::pair(other_pool, other.pool)}) {
        Tensor back = Tensor::host(device.shape(), DType::u8);
        cuda->copy(device, back);
        EXPECT_EQ(std::memcmp(back.raw(), host.raw(), std::size_t(back.bytes())), 0) << head_size;
      }
    }
}

TEST(CudaDevice, one_that_is_not_there_is_named) {
  EXPECT_TRUE(test::says(test::sentence_of([] { (void)make_gpu({.device = 99}); }), "99"));
}

INSTANTIATE_TEST_SUITE_P(Numerics, Cuda, ::testing::Bool(),
                         [](const auto& i) { return i.param ? "invariant" : "fast"; });

}  // namespace
}  // namespace foretoken::test
