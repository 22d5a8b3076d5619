// Every operation of the cpu backend, with every instruction set of this machine, against the reference backend or
// against its definition. One test for each operation, with its name; the last test reads backend.h and checks that no
// operation is missing.
#include <atomic>
#include <fstream>
#include <regex>
#include <set>

#include <gtest/gtest.h>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/scenario.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

class Parity : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> cpu = make_cpu_backend(2, GetParam());
  ReferenceBackend reference;
  // Activations of bf16 products are rounded to bf16.
  bool rounds() const { return GetParam() == "avx512bf16" || GetParam() == "amx"; }
};

const int kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 16, 17, 23, 31, 48, 70};

TEST_P(Parity, allocate) {
  for (std::int64_t n : {0, 1, 5, 1000, 70000}) {
    const Tensor a = cpu->allocate({n, 3}, DType::f32), b = cpu->allocate({n, 3}, DType::f32);
    EXPECT_EQ(a.shape(), Shape({n, 3}));
    EXPECT_TRUE(a.dense() && reinterpret_cast<std::uintptr_t>(a.raw()) % 64 == 0);
    EXPECT_GE(std::abs(a.data<char>() - b.data<char>()), n * 12);
    std::memset(a.raw(), 1, std::size_t(a.bytes()));
  }
  Tensor kept;
  {
    const auto gone = make_cpu_backend(1, GetParam());
    kept = gone->allocate({8}, DType::i32);
  }
  kept.data<int>()[7] = 5;  // tensors may outlive their backend
  EXPECT_EQ(kept.data<int>()[7], 5);
}

TEST_P(Parity, upload) {
  const Tensor t = random_tensor({5, 7}, 1);
  EXPECT_TRUE(same_bits(cpu->upload(t), t));
}

TEST_P(Parity, copy) {
  const Tensor from = random_tensor({6, 40}, 1);
  Tensor to = random_tensor({6, 90}, 2);
  const Tensor before = copy_of(to);
  cpu->copy(from, to.columns(13, 40));
  for (int r = 0; r < 6; ++r)
    for (int i = 0; i < 90; ++i)
      EXPECT_EQ(to.row<float>(r)[i], i >= 13 && i < 53 ? from.row<float>(r)[i - 13] : before.row<float>(r)[i]);
}

TEST_P(Parity, prepare) {  // products accept prepared and unprepared weights
  for (DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i8}) {
    const Weight w = random_weight(37, 55, dtype, 3);
    const Tensor x = random_tensor({3, 55}, 4);
    EXPECT_TRUE(same_bits(cpu->linear(x, cpu->prepare(w)), cpu->linear(x, w)));
    EXPECT_EQ(cpu->prepare(w).out, 37);
  }
}

TEST_P(Parity, embed) {
  const Tensor table = random_tensor({50, 385}, 1), tokens = integers({3, 49, -1, 0, 3});
  for (const Tensor& t : {table, rounded(table)}) {
    const Tensor y = cpu->embed(Weight::dense(t), tokens);
    EXPECT_TRUE(same_bits(y, reference.embed(Weight::dense(t), tokens)));
    EXPECT_TRUE(same_bits(y, cpu->embed(cpu->prepare(Weight::dense(t)), tokens)));
    EXPECT_TRUE(same_bits(y, reference.embed(reference.prepare(Weight::dense(t)), tokens)));
    EXPECT_EQ(y.row<float>(2)[384], 0);
    EXPECT_EQ(y.row<float>(1)[384],
              t.dtype() == DType::f32 ? table.row<float>(49)[384] : float(bf16(table.row<float>(49)[384])));
  }
}

TEST_P(Parity, rms_norm) {
  for (int width : {1, 7, 64, 385, 1024}) {
    const Tensor x = random_tensor({70, width}, unsigned(width)), gain = random_tensor({width}, 9);
    EXPECT_LT(distance(cpu->rms_norm(x, gain, 1e-5f), reference.rms_norm(x, gain, 1e-5f)), 2e-6) << width;
  }
  const Tensor wide = random_tensor({4, 100}, 1, 1e-3f), gain = random_tensor({60}, 2);
  EXPECT_LT(
      distance(cpu->rms_norm(wide.columns(20, 60), gain, 1e-2f), reference.rms_norm(wide.columns(20, 60), gain, 1e-2f)),
      2e-6);
}

TEST_P(Parity, linear) {
  const struct {
    int out, in;
  } shapes[] = {{1, 1}, {33, 385}, {257, 64}, {100, 33}};
  for (DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i8}) {
    for (const auto& s : shapes) {
      Weight w = random_weight(s.out, s.in, dtype, 5);
      if (s.in % 2) w.bias = random_tensor({1, s.out}, 9).reshaped({s.out});
      const Weight fast = cpu->prepare(w), slow = reference.prepare(w);
      for (int n : kRowCounts) {
        const Tensor x = random_tensor({n, s.in + 5}, unsigned(n)).columns(2, s.in);
        const Tensor truth =
            reference.linear((dtype == DType::bf16 || dtype == DType::i8) && rounds() ? through_bf16(x) : x, slow);
        EXPECT_LT(distance(cpu->linear(x, fast), truth), 5e-6)
            << name_of(dtype) << " " << s.out << "x" << s.in << ", rows " << n;
      }
    }
  }
  EXPECT_EQ(cpu->linear(random_tensor({0, 33}, 1), random_weight(5, 33, DType::f32, 1)).dim(0), 0);
}

TEST_P(Parity, linear_add) {
  for (DType dtype : {DType::f32, DType::bf16, DType::i8}) {
    Weight w = random_weight(100, 385, dtype, 5);
    w.bias = random_tensor({1, 100}, 9).reshaped({100});
    for (int n : {1, 5, 17}) {
      const Tensor h = random_tensor({n, 385}, 1), x = random_tensor({n, 100}, 2);
      Tensor fused = copy_of(x), plain = copy_of(x);
      cpu->linear_add(fused, h, cpu->prepare(w));
      reference.linear_add(plain, (dtype == DType::bf16 || dtype == DType::i8) && rounds() ? through_bf16(h) : h,
                           reference.prepare(w));
      EXPECT_LT(distance(fused, plain), 5e-6);
    }
  }
}

TEST_P(Parity, head_norm) {
  for (int size : {1, 20, 64, 128}) {
    const Tensor x = random_tensor({7, 3 * size + 5}, 2), fast = copy_of(x), slow = copy_of(x);
    const Tensor gain = random_tensor({1, size}, 3).reshaped({size});
    cpu->head_norm(fast.columns(5, 3 * size), gain, 1e-6f);
    for (int head = 0; head < 3; ++head) {
      Tensor one = Tensor::host({7, size}, DType::f32);
      reference.copy(slow.columns(5 + head * size, size), one);
      reference.copy(reference.rms_norm(one, gain, 1e-6f), slow.columns(5 + head * size, size));
    }
    EXPECT_LT(distance(fast, slow), 1e-6) << size;
  }
}

TEST_P(Parity, rope) {
  for (int head_size : {32, 48, 64, 80, 96, 128}) {
    std::vector<float> f;
    for (int i = 0; i < head_size / 2; ++i) f.push_back(std::pow(10000.0f, -2.0f * float(i) / float(head_size)));
    const Tensor frequencies = listed(f, DType::f32);
    std::vector<ScenarioRow> rows;
    for (int r = 0; r < 70; ++r) rows.push_back(chain_row(0, r * r % 1000));
    const Layout layout = layout_of(rows, integers({0}).reshaped({1, 1}), 0);
    const Tensor qk = random_tensor({70, 5 * head_size + 3}, 1);
    const Tensor fast = copy_of(qk), slow = copy_of(qk);
    cpu->rope(fast.columns(0, 3 * head_size), fast.columns(3 * head_size, 2 * head_size), layout, frequencies,
              head_size);
    reference.rope(slow.columns(0, 3 * head_size), slow.columns(3 * head_size, 2 * head_size), layout, frequencies,
                   head_size);
    EXPECT_LT(distance(fast, slow), 5e-7) << head_size;
    EXPECT_GT(distance(fast, qk), 0.1) << "nothing was rotated";
    EXPECT_EQ(fast.row<float>(9)[5 * head_size], qk.row<float>(9)[5 * head_size]);
  }
}

TEST_P(Parity, store) {
  for (DType dtype : {DType::f32, DType::bf16, DType::i8, DType::e4m3}) {
    Cache fast(2, 20, 8, 2, 48, dtype), slow(2, 20, 8, 2, 48, dtype);
    fill(*cpu, fast, 17, 3);
    fill(reference, slow, 17, 3);
    EXPECT_EQ(std::memcmp(fast.pool.raw(), slow.pool.raw(), std::size_t(fast.pool.bytes())), 0);
    if (has_scales(dtype)) continue;  // cache_codes_test.cpp says what is stored
    const KvLayer& kv = fast.layers[1];
    const Tensor v = random_tensor({34, 96}, 104);  // as written by fill: sequence 1, slot 10, head 1
    const std::byte* page =
        kv.pool.row<std::byte>(fast.tables.row<std::int32_t>(1)[1]) + kv.values + (8 + 2) * 48 * size_of(dtype);
    const float stored =
        dtype == DType::f32 ? reinterpret_cast<const float*>(page)[5] : float(reinterpret_cast<const bf16*>(page)[5]);
    const float given = v.row<float>(17 + 10)[48 + 5];
    EXPECT_EQ(stored, dtype == DType::f32 ? given : float(bf16(given)));
  }
}

TEST_P(Parity, attend) {
  const struct {
    int heads, kv_heads, head_size;
  } shapes[] = {{6, 2, 64}, {4, 4, 48}, {8, 2, 80}, {3, 1, 32}, {26, 2, 96}, {2, 1, 128}, {5, 1, 20}, {4, 2, 6}};
  for (const auto& s : shapes) {
    for (DType dtype : {DType::f32, DType::bf16, DType::i8, DType::e4m3}) {
      Cache cache(2, 600, 16, s.kv_heads, s.head_size, dtype);
      fill(reference, cache, 590, 7);
      std::vector<ScenarioRow> rows;
      for (int slot : {0, 1, 15, 16, 17, 18, 19, 255, 256, 257, 258, 511, 512, 589}) rows.push_back(chain_row(0, slot));
      for (int slot = 250; slot < 262; ++slot) rows.push_back(chain_row(1, slot));
      const Layout whole = layout_of(rows, cache.tables, 0);
      const Tensor q = random_tensor({whole.rows, s.heads * s.head_size}, 8);
      const float scale = 1 / std::sqrt(float(s.head_size));
      for (const Layout& layout :
           {whole, windowed(whole, 1), windowed(whole, 9), windowed(whole, 256), windowed(whole, 300)}) {
        const Tensor fast = cpu->attend(q, cache.layers[1], layout, scale),
                     slow = reference.attend(q, cache.layers[1], layout, scale);
        EXPECT_LT(distance(fast, slow), 3e-6)
            << s.heads << "/" << s.kv_heads << " heads of " << s.head_size << " " << name_of(dtype);
      }
    }
  }
}

// A chain, a tree and a row with a window; against the definition: what attend gives where the values of one page alone
// are ones is the mass on that page.
TEST_P(Parity, attention_mass) {
  constexpr int kHeads = 6, kKvHeads = 2, kSize = 20, kRows = 7, kSlots = 60;
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8, DType::e4m3}) {
    Cache cache(3, kSlots, kRows, kKvHeads, kSize, dtype);
    fill(reference, cache, kSlots, 7);
    std::vector<ScenarioRow> rows{chain_row(0, 0), chain_row(0, 20), chain_row(0, 59)};
    rows.push_back({2, 40, 30, 30, {0b10000000001}});  // attends to slots before 30, 30 and 40
    rows.push_back({2, 42, 31, 30, {0b1000000000001}});
    const Layout whole = layout_of(rows, cache.tables, 1);
    const Tensor q = random_tensor({whole.rows, kHeads * kSize}, 8);
    for (const Layout& layout : {whole, windowed(whole, 9), windowed(whole, 2)}) {
      const Tensor fast = cpu->attention_mass(q, cache.layers[1], layout, 0.2f),
                   slow = reference.attention_mass(q, cache.layers[1], layout, 0.2f);
      ASSERT_EQ(slow.shape(), Shape({3, (kSlots + kRows - 1) / kRows}));
      EXPECT_LT(distance(fast, slow), 3e-6) << name_of(dtype);
      for (int table = 0; table < 3; ++table) {
        double sum = 0;
        for (const float m : std::span(fast.row<float>(table), std::size_t(fast.dim(1)))) sum += double(m);
        EXPECT_NEAR(sum, (table == 0 ? 3 : table == 1 ? 0 : 2) * kHeads, 1e-5);
      }
    }
  }
  Cache cache(1, kSlots, kRows, kKvHeads, kSize, DType::f32);
  fill(reference, cache, kSlots, 7);
  const Layout layout = layout_of({chain_row(0, 30), chain_row(0, 44)}, cache.tables, 0);
  const Tensor q = random_tensor({2, kHeads * kSize}, 8), mass = cpu->attention_mass(q, cache.layers[0], layout, 0.2f);
  for (int page = 0; page < 8; ++page) {
    for (int slot = 0; slot < kSlots; ++slot)
      for (int h = 0; h < kKvHeads; ++h)
        std::fill_n(reinterpret_cast<float*>(slot_address(cache.layers[0], cache.layers[0].values,
                                                          cache.tables.row<std::int32_t>(0), slot)) +
                        h * kRows * kSize,
                    kSize, slot / kRows == page ? 1.0f : 0.0f);
    const Tensor y = reference.attend(q, cache.layers[0], layout, 0.2f);
    double sum = 0;
    for (int r = 0; r < 2; ++r)
      for (int h = 0; h < kHeads; ++h) sum += double(y.row<float>(r)[h * kSize]);
    EXPECT_NEAR(mass.data<float>()[page], sum, 2e-5) << page;
  }
}

// Pages that are larger than what a backend looks at at once, and of odd sizes.
TEST_P(Parity, attend_to_pages_of_any_size) {
  for (const int page_rows : {1, 7, 300, 1000})
    for (const DType dtype : {DType::f32, DType::bf16, DType::i8}) {
      Cache cache(1, 700, page_rows, 2, 32, dtype);
      fill(reference, cache, 690, 7);
      std::vector<ScenarioRow> rows;
      for (const int slot : {0, 6, 7, 63, 64, 65, 255, 256, 257, 299, 300, 511, 512, 600, 689})
        rows.push_back(chain_row(0, slot));
      const Layout layout = layout_of(rows, cache.tables, 0);
      const Tensor q = random_tensor({layout.rows, 4 * 32}, 8);
      EXPECT_LT(
          distance(cpu->attend(q, cache.layers[1], layout, 0.2f), reference.attend(q, cache.layers[1], layout, 0.2f)),
          3e-6)
          << "pages of " << page_rows << " rows, " << name_of(dtype);
    }
}

TEST_P(Parity, silu_mul) {
  for (int width : {1, 17, 385, 1024}) {
    const Tensor x = random_tensor({23, 2 * width}, 3, 6);
    x.row<float>(0)[0] = 100, x.row<float>(1)[0] = -100, x.row<float>(2)[0] = 0;
    EXPECT_LT(distance(cpu->silu_mul(x), reference.silu_mul(x)), 1e-6) << width;
  }
}

TEST_P(Parity, silu_add) {
  for (int width : {1, 17, 385}) {
    const Tensor x = random_tensor({23, 3 * width + 5}, 3, 6), y = random_tensor({23, width + 2}, 4).columns(1, width);
    x.row<float>(0)[2] = 100, x.row<float>(1)[2] = -100, x.row<float>(2)[2] = 0;
    const Tensor fast = copy_of(x), slow = copy_of(x);
    cpu->silu_add(fast.columns(2, 3 * width), y), reference.silu_add(slow.columns(2, 3 * width), y);
    EXPECT_LT(distance(fast, slow), 1e-6) << width;
    EXPECT_EQ(fast.row<float>(22)[1], x.row<float>(22)[1]) << "outside of the view";
  }
}

// Heads and layers of a model have one silu.
TEST_P(Parity, silu_add_has_the_silu_of_silu_mul) {
  const Tensor x = random_tensor({9, 2 * 385}, 3, 6), zeros = random_tensor({9, 385}, 4);
  for (int r = 0; r < 9; ++r)
    for (int i = 0; i < 385; ++i) x.row<float>(r)[385 + i] = 1, zeros.row<float>(r)[i] = 0;
  for (Backend* k : std::initializer_list<Backend*>{cpu.get(), &reference}) {
    const Tensor of = copy_of(x), product = k->silu_mul(x);
    k->silu_add(of.columns(0, 385), zeros);
    for (int r = 0; r < 9; ++r)
      for (int i = 0; i < 385; ++i) ASSERT_EQ(of.row<float>(r)[i], product.row<float>(r)[i]) << k->name();
  }
}

TEST_P(Parity, silu_add_refuses_rows_that_do_not_repeat) {
  EXPECT_TRUE(test::says(test::sentence_of([&] { cpu->silu_add(random_tensor({2, 8}, 1), random_tensor({2, 3}, 2)); }),
                         "silu_add", "[2, 8]", "[2, 3]"));
}

TEST_P(Parity, add) {
  const Tensor x = random_tensor({23, 400}, 1), y = random_tensor({23, 385}, 2), fast = copy_of(x), slow = copy_of(x);
  cpu->add(fast.columns(3, 385), y);
  reference.add(slow.columns(3, 385), y);
  EXPECT_TRUE(same_bits(fast, slow));
  EXPECT_EQ(fast.row<float>(22)[3 + 384], x.row<float>(22)[3 + 384] + y.row<float>(22)[384]);
}

TEST_P(Parity, gather) {
  const Tensor x = random_tensor({9, 50}, 1).columns(5, 33);
  const Tensor y = cpu->gather(x, integers({8, 0, 3, 3}));
  EXPECT_TRUE(y.dense() && y.dim(0) == 4);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(same_row(y, i, x, (std::vector<int>{8, 0, 3, 3})[std::size_t(i)]));
}

TEST_P(Parity, replay) {
  int runs = 0;
  for (int i = 0; i < 3; ++i) cpu->replay(std::array<std::int64_t, 1>{7}, [&] { ++runs; });
  cpu->synchronize();
  EXPECT_EQ(runs, 3);
}

TEST_P(Parity, synchronize) { EXPECT_NO_THROW(cpu->synchronize()); }

TEST_P(Parity, for_each) {
  std::vector<std::atomic<int>> met(1000);
  cpu->for_each(1000, [&](int i) { ++met[std::size_t(i)]; });
  for (auto& m : met) EXPECT_EQ(m, 1);
}

TEST(ParityTable, misses_no_operation) {
  const auto text = [](const char* path) {
    std::ifstream file(std::string(FORETOKEN_SOURCE_DIR) + path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const auto names = [](const std::string& source, const char* pattern) {
    std::set<std::string> found;
    const std::regex re(pattern);
    for (std::sregex_iterator m(source.begin(), source.end(), re), end; m != end; ++m) found.insert((*m)[1]);
    return found;
  };
  std::set<std::string> operations = names(text("/kernels/backend.h"), R"(\n  virtual [^~(]*?(\w+)\()");
  const std::set<std::string> tested =
      names(text("/tests/kernels/parity_test.cpp") + text("/tests/kernels/running_test.cpp") +
                text("/tests/kernels/distributions_test.cpp") + text("/tests/kernels/siblings_test.cpp") +
                text("/tests/kernels/selection_test.cpp") + text("/tests/kernels/experts_test.cpp") +
                text("/tests/kernels/attention_rules_test.cpp") + text("/tests/kernels/ranks_test.cpp"),
            R"(TEST_P\(Parity\w*, (\w+)\))");
  for (const char* no_operation : {"name", "description", "device", "chance", "free_memory", "lacks", "measure_speed"})
    EXPECT_EQ(operations.erase(no_operation), 1u) << no_operation;
  EXPECT_GE(operations.size(), 20u);
  for (const std::string& operation : operations)
    EXPECT_TRUE(tested.count(operation)) << operation << " of kernels/backend.h has no TEST_P(Parity, " << operation
                                         << ")";
}

INSTANTIATE_TEST_SUITE_P(Cpu, Parity, ::testing::ValuesIn(cpu_instructions()), [](const auto& i) { return i.param; });

}  // namespace
}  // namespace foretoken::test
