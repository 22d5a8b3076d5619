// Continues parity_test.cpp: fused operations against separate ones, mirrors and staging, and the counters of a
// backend.
#include <algorithm>
#include <array>
#include <utility>

#include <gtest/gtest.h>

#include "kernels/reference/reference_backend.h"
#include "kernels/staging.h"
#include "tests/kernels/scenario.h"

namespace foretoken::test {
namespace {

class ParityRunning : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> cpu = make_cpu_backend(2, GetParam());
};

TEST_P(ParityRunning, linear_to) {
  const Weight w = cpu->prepare(random_weight(37, 55, DType::bf16, 3));
  const Tensor x = random_tensor({3, 55}, 4);
  Tensor buffer = random_tensor({5, 37}, 5);
  cpu->linear_to(buffer.rows(1, 3), x, w);
  EXPECT_TRUE(same_bits(buffer.rows(1, 3), cpu->linear(x, w)));
}

TEST_P(ParityRunning, norm_linear) {
  for (int n : {1, 2, 5, 8, 33}) {
    const Weight w = cpu->prepare(random_weight(130, 96, DType::bf16, 3));
    const Tensor x = random_tensor({n, 96}, 4), gain = random_tensor({1, 96}, 6).reshaped({96});
    const Tensor y = cpu->norm_linear(x, gain, 1e-5f, w);
    EXPECT_TRUE(same_bits(y, cpu->linear(cpu->rms_norm(x, gain, 1e-5f), w))) << n;
    EXPECT_EQ(y.dtype(), cpu->activation_type(w));
  }
}

TEST_P(ParityRunning, rms_norm_for) {
  const Weight w = cpu->prepare(random_weight(37, 55, DType::bf16, 3));
  const Tensor x = random_tensor({3, 55}, 4), gain = random_tensor({55}, 5);
  EXPECT_TRUE(same_bits(cpu->rms_norm_for(x, gain, 1e-5f, w), cpu->rms_norm(x, gain, 1e-5f)));
}

TEST_P(ParityRunning, activation_type) {
  const Weight w = cpu->prepare(random_weight(37, 55, DType::bf16, 3));
  const Tensor y = cpu->norm_linear(random_tensor({3, 55}, 4), random_tensor({55}, 5), 1e-5f, w);
  EXPECT_EQ(cpu->activation_type(w), y.dtype());
}

TEST_P(ParityRunning, norm_linear_to) {
  const Weight w = cpu->prepare(random_weight(130, 96, DType::bf16, 3));
  for (int n : {1, 5, 33}) {
    const Tensor x = random_tensor({n, 96}, 4), gain = random_tensor({1, 96}, 6).reshaped({96}),
                 before = random_tensor({n + 2, 130}, 5), buffer = copy_of(before);
    cpu->norm_linear_to(buffer.rows(1, n), x, gain, 1e-5f, w);
    EXPECT_TRUE(same_bits(buffer.rows(1, n), cpu->linear(cpu->rms_norm(x, gain, 1e-5f), w))) << n;
    EXPECT_TRUE(same_row(buffer, 0, before, 0) && same_row(buffer, n + 1, before, n + 1)) << n;
  }
}

TEST_P(ParityRunning, feed_forward) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8}) {
    for (const int width : {64, 1024, 48}) {  // two panels, many, and a half that ends inside a panel
      const Weight gate_up = cpu->prepare(random_weight(2 * width, 96, dtype, 3)),
                   down = cpu->prepare(random_weight(96, width, dtype, 4));
      for (const int n : {0, 1, 2, 5, 8, 33}) {
        const Tensor x = random_tensor({n, 96}, 5), gain = random_tensor({1, 96}, 6).reshaped({96});
        const Tensor fused = copy_of(x), plain = copy_of(x);
        cpu->feed_forward(fused, gain, 1e-5f, gate_up, down);
        cpu->linear_add(plain, cpu->silu_mul(cpu->linear(cpu->rms_norm(plain, gain, 1e-5f), gate_up)), down);
        EXPECT_TRUE(same_bits(fused, plain)) << name_of(dtype) << ", width " << width << ", " << n << " rows";
        EXPECT_FALSE(n > 0 && same_bits(fused, x));
      }
    }
  }
}

TEST_P(ParityRunning, rope_store) {
  const Cache cache(1, 32, 8, 2, 48, DType::bf16), plain_cache(1, 32, 8, 2, 48, DType::bf16);
  std::vector<ScenarioRow> rows;
  for (int r = 0; r < 9; ++r) rows.push_back(chain_row(0, 3 + r));
  std::vector<float> f;
  for (int i = 0; i < 24; ++i) f.push_back(std::pow(1000.0f, -float(i) / 24));
  const Tensor frequencies = listed(f, DType::f32), qkv = random_tensor({9, 48 * 8}, 1);
  const Tensor fused = copy_of(qkv), plain = copy_of(qkv);
  const Layout layout = layout_of(rows, cache.tables, 0), plain_layout = layout_of(rows, plain_cache.tables, 0);
  cpu->rope_store(fused.columns(0, 192), fused.columns(192, 96), fused.columns(288, 96), cache.layers[1], layout,
                  frequencies);
  cpu->rope(plain.columns(0, 192), plain.columns(192, 96), plain_layout, frequencies, 48);
  cpu->store(plain.columns(192, 96), plain.columns(288, 96), plain_cache.layers[1], plain_layout);
  EXPECT_TRUE(same_bits(fused.columns(0, 192), plain.columns(0, 192)));
  EXPECT_EQ(std::memcmp(cache.pool.raw(), plain_cache.pool.raw(), std::size_t(cache.pool.bytes())), 0);
}

TEST_P(ParityRunning, rope_attend) {
  const Cache cache(1, 32, 8, 2, 48, DType::bf16), plain_cache(1, 32, 8, 2, 48, DType::bf16);
  std::vector<ScenarioRow> rows;
  for (int r = 0; r < 9; ++r) rows.push_back(chain_row(0, r));
  const Tensor frequencies = random_tensor({24}, 2), qkv = random_tensor({9, 48 * 8}, 1), fused = copy_of(qkv),
               plain = copy_of(qkv);
  const Layout layout = layout_of(rows, cache.tables, 0), plain_layout = layout_of(rows, plain_cache.tables, 0);
  const Tensor y = cpu->rope_attend(fused.columns(0, 192), fused.columns(192, 96), fused.columns(288, 96),
                                    cache.layers[1], layout, frequencies, 0.2f);
  cpu->rope_store(plain.columns(0, 192), plain.columns(192, 96), plain.columns(288, 96), plain_cache.layers[1],
                  plain_layout, frequencies);
  EXPECT_TRUE(same_bits(y, cpu->attend(plain.columns(0, 192), plain_cache.layers[1], plain_layout, 0.2f)));
  EXPECT_EQ(std::memcmp(cache.pool.raw(), plain_cache.pool.raw(), std::size_t(cache.pool.bytes())), 0);
}

TEST_P(ParityRunning, store_rounds_every_number_as_bf16_does) {
  const Cache cache(1, 8, 8, 1, 48, DType::bf16);
  const Tensor k = Tensor::host({1, 48}, DType::f32);
  std::mt19937 engine(1);
  for (float& v : k.values<float>()) {
    const auto bits = std::uint32_t(engine());
    std::memcpy(&v, &bits, 4);
  }
  const float odd[] = {0.0f,           -0.0f,       1e-40f,
                       -1e-45f,        3.4e38f,     std::numeric_limits<float>::infinity(),
                       std::nanf("1"), 1.00390625f, 1.01171875f};
  std::copy(std::begin(odd), std::end(odd), k.data<float>());
  k.data<float>()[47] = -1e-41f;
  cpu->store(k, k, cache.layers[0], layout_of({chain_row(0, 3)}, cache.tables, 0));
  const std::byte* page = cache.pool.row<std::byte>(cache.tables.row<std::int32_t>(0)[0]) + cache.layers[0].keys;
  for (int i = 0; i < 48; ++i)
    EXPECT_EQ(reinterpret_cast<const bf16*>(page)[3 * 48 + i].bits, bf16(k.data<float>()[i]).bits)
        << k.data<float>()[i];
}

// Two sequences of one cache and one of another move by one call. Slot 14 is read before it is written.
TEST_P(ParityRunning, move) {
  for (DType dtype : {DType::f32, DType::bf16, DType::i8, DType::e4m3}) {
    const auto filled = [&](int slots, int kv_heads, int head_size, unsigned seed) {
      Cache cache(2, slots, 8, kv_heads, head_size, dtype);
      fill(*cpu, cache, slots, seed);
      return cache;
    };
    const Cache cache = filled(40, 2, 48, 3), other = filled(20, 1, 20, 9);
    const std::vector<Cache> before{filled(40, 2, 48, 3), filled(20, 1, 20, 9)};
    using Slots = std::vector<std::int32_t>;
    const std::vector<std::pair<Slots, Slots>> slots{{{17, 30}, {16, 17}},
                                                     {{12, 14, 15, 21, 39}, {12, 13, 14, 15, 16}}};
    const auto first = moved_rows(cache, 0, slots[0].first, slots[0].second),
               second = moved_rows(cache, 1, slots[1].first, slots[1].second), third = moved_rows(other, 1, {19}, {2});
    cpu->move(std::vector<Moves>{{cache.layers, first}, {cache.layers, second}, {other.layers, third}});
    for (int s = 0; s < 2; ++s) {
      const auto& [from, to] = slots[std::size_t(s)];
      for (int slot = 0; slot < 40; ++slot) {
        const auto at = std::ranges::find(to, slot);
        const int source = at == to.end() ? slot : from[std::size_t(at - to.begin())];
        EXPECT_EQ(slot_bytes(cache, s, slot), slot_bytes(before[0], s, source))
            << "sequence " << s << ", slot " << slot;
      }
      for (int slot = 0; slot < 20; ++slot)
        EXPECT_EQ(slot_bytes(other, s, slot), slot_bytes(before[1], s, s == 1 && slot == 2 ? 19 : slot)) << slot;
    }
  }
}

TEST_P(ParityRunning, pick) {
  Token drawn[3] = {70, 80, 90};  // the vocabulary has 91 tokens
  const std::vector<std::uint64_t> at{0, reinterpret_cast<std::uint64_t>(&drawn[2]), 0,
                                      reinterpret_cast<std::uint64_t>(&drawn[0])};
  Tensor to = integers({0, 0, 0, 0});
  const auto picked = [&](const std::vector<Token>& known) {
    cpu->pick(integers(known), listed(at, DType::u64), to, 91);
    const auto tokens = to.values<Token>();
    return std::vector<Token>(tokens.begin(), tokens.end());
  };
  EXPECT_EQ(picked({1, 2, -1, 4}), (std::vector<Token>{1, 90, -1, 70}));
  drawn[0] = 91;
  EXPECT_EQ(picked({-2, 2, 1 << 30, 4}), (std::vector<Token>{kOutside, 90, kOutside, kOutside}));
}

TEST_P(ParityRunning, mirror) {
  const Mirror m = cpu->mirror(100);
  EXPECT_GE(m.host.dim(0), 100);
  EXPECT_EQ(m.device.dim(0), m.host.dim(0));
}

TEST_P(ParityRunning, push) {
  const Mirror m = cpu->mirror(100);
  Tensor back = Tensor::host({100}, DType::u8);
  for (int round = 1; round < 4; ++round) {
    std::memset(m.host.raw(), round, 100);
    cpu->push(m, 100);
    cpu->copy(m.device.rows(0, 100), back);
    EXPECT_EQ(back.data<std::uint8_t>()[99], round);
  }
}

TEST_P(ParityRunning, fetch) {
  const Tensor from = random_tensor({3, 5}, 1);
  const Tensor to = Tensor::host({3, 5}, DType::f32);
  cpu->fetch(cpu->upload(from), to);
  cpu->synchronize();
  EXPECT_TRUE(same_bits(from, to));
}

TEST_P(ParityRunning, staging_lays_arrays_at_the_same_addresses_until_it_grows) {
  Staging staging(*cpu);
  const auto lay = [&](std::int64_t bytes) {
    staging.begin(bytes);
    const auto a = staging.array({5}, DType::i32), b = staging.array({3, 2}, DType::u64);
    a.host.data<int>()[4] = 7;
    b.host.row<std::uint64_t>(2)[1] = 9;
    staging.push();
    EXPECT_EQ(a.host.data<int>()[4], 7);
    EXPECT_TRUE(reinterpret_cast<std::uintptr_t>(b.device.raw()) % Staging::kAlignment == 0);
    return b.device.raw();
  };
  const void* first = lay(200);
  const void* address = staging.device_address();
  EXPECT_EQ(lay(300), first);
  EXPECT_EQ(staging.device_address(), address);
  lay(1 << 20);
  EXPECT_NE(staging.device_address(), address);
}

TEST_P(ParityRunning, free_memory) {
  EXPECT_GT(cpu->free_memory(), 0);
  EXPECT_LT(cpu->free_memory(), std::int64_t(1) << 50);
}

// A device that counts; the reference does not.
TEST_P(ParityRunning, memory) {
  const std::int64_t before = cpu->memory().held;
  {
    const Tensor t = cpu->allocate({1000}, DType::f32);
    EXPECT_GE(cpu->memory().held, before + 4000);
  }
  EXPECT_EQ(cpu->memory().held, before);
  EXPECT_GE(cpu->memory().most, before + 4000);
}

TEST_P(ParityRunning, restart_peak) {
  {
    const Tensor t = cpu->allocate({1000}, DType::f32);
  }
  cpu->restart_peak();
  EXPECT_EQ(cpu->memory().most, cpu->memory().held);
}

TEST_P(ParityRunning, padded) {
  for (int n = 1, before = 0; n < 5000; ++n) {
    const int p = cpu->padded(n);
    EXPECT_TRUE(p >= n && p >= before);
    EXPECT_EQ(cpu->padded(p), p);
    before = p;
  }
}

TEST_P(ParityRunning, mark) { EXPECT_GT(cpu->mark().host, 0); }

TEST_P(ParityRunning, seconds) {
  const Mark a = cpu->mark();
  while (host_clock() - a.host < 0.002) {
  }
  const Mark b = cpu->mark();
  cpu->synchronize();
  EXPECT_GE(cpu->seconds(a, b), 0.002);
  EXPECT_LT(cpu->seconds(a, b), 2);
}

TEST_P(ParityRunning, recordings) {
  for (int i = 0; i < 3; ++i) cpu->replay(std::array{std::int64_t(1)}, [] {});
  EXPECT_EQ(cpu->recordings(), 0u) << "a device that is the host replays nothing";
}

TEST_P(ParityRunning, records) { EXPECT_FALSE(cpu->records()); }

TEST_P(ParityRunning, record_new) {
  int runs = 0;
  for (const bool on : {false, true}) {
    cpu->record_new(on);
    cpu->replay(std::array{std::int64_t(1)}, [&] { ++runs; });
  }
  EXPECT_EQ(runs, 2) << "a body runs in any case";
}

TEST_P(ParityRunning, unrecorded) {
  cpu->record_new(false);
  cpu->replay(std::array{std::int64_t(1)}, [] {});
  EXPECT_EQ(cpu->unrecorded(), 0u) << "a device that records nothing lacks nothing";
}

TEST_P(ParityRunning, waits) {
  const std::uint64_t before = cpu->waits();
  cpu->synchronize();
  EXPECT_EQ(cpu->waits(), before) << "a device that is the host is never waited for";
}

TEST_P(ParityRunning, stream) { EXPECT_EQ(cpu->stream(), nullptr); }

INSTANTIATE_TEST_SUITE_P(Cpu, ParityRunning, ::testing::ValuesIn(cpu_instructions()),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace foretoken::test
