// Small cases of every kernel whose threads share memory, which compute-sanitizer can check in seconds, especially
// racecheck (compute-sanitizer --tool racecheck test_kernels_gpu --gtest_filter='Races.*'). Two runs must give the same
// bytes.
#include <functional>

#include <gtest/gtest.h>

#include "kernels/cuda/attention/routes.h"
#include "kernels/formats/activations/activation_format.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/kernels/selection.h"
#include "tests/kernels/trees.h"

namespace foretoken::test {
namespace {

class Races : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> cuda = make_gpu({.invariant = true});

  Tensor up(const Tensor& t) { return t ? cuda->upload(t) : t; }
  std::string bytes(const Tensor& t) {
    const Tensor host = Tensor::host(t.shape(), t.dtype());
    cuda->copy(t, host);
    return {host.data<char>(), std::size_t(host.bytes())};
  }
  void twice(const std::string& what, const std::function<Tensor()>& work) {
    const Tensor first = work(), second = work();
    EXPECT_EQ(bytes(first), bytes(second)) << what;
  }
  void attend_twice(const std::string& what, const Cache& cache, Layout layout, int heads) {
    const KvLayer kv = on_gpu(cache.layers[0], *cuda);
    layout = on_gpu(layout, *cuda);
    const Tensor q = up(rounded(random_tensor({layout.rows, std::int64_t(heads) * kv.head_size}, 3)));
    twice(what, [&] { return cuda->attend(q, kv, layout, 0.1f); });
    EXPECT_TRUE(layout.deepest < kUnbounded || attend_plan(*cuda, q, kv, layout).splits == 1) << what;
  }
  void attend_twice(const std::string& what, const Cache& cache, const std::vector<ScenarioRow>& rows, int words,
                    int heads) {
    attend_twice(what, cache, layout_of(rows, cache.tables, words), heads);
  }
};

TEST_F(Races, experts) {
  for (const bool codes : {false, true}) {
    const auto experts = [&](std::int64_t out, std::int64_t in, unsigned seed) {
      std::vector<Weight> all;
      for (unsigned e = 0; e < 6; ++e) {
        const Weight w = random_weight(out, in, DType::bf16, seed + e);
        all.push_back(cuda->prepare(codes ? quantize(w, formats::int4()) : w));
      }
      return cuda->group_experts(std::move(all));
    };
    const ExpertWeights gate_up = experts(2 * 128, 256, 1), back = experts(256, 128, 20);
    for (const int rows : {1, 12, 40, 70}) {
      const Tensor h = up(random_tensor({rows, 256}, 3)), logits = up(random_tensor({rows, 6}, 4));
      twice(std::to_string(rows) + " rows", [&] {
        const Tensor x = up(random_tensor({rows, 256}, 5));
        cuda->expert_feed_forward(x, h, cuda->route(logits, 2, true), gate_up, back);
        return x;
      });
    }
  }
}

TEST_F(Races, products) {
  for (const auto& [out, in] : {std::pair{96, 256},
                                {256, 1024},
                                {96, 8192}}) {  // the last is copied in runs, except for one row that is normed
    const Weight w = cuda->prepare(random_weight(out, in, DType::bf16, 1)),
                 back = cuda->prepare(random_weight(in, out / 2, DType::bf16, 2));
    const Tensor gain = up(random_tensor({1, in}, 6).reshaped({in}));
    for (const int rows : {1, 3, 12, 40}) {
      const Tensor x = up(random_tensor({rows, in}, 4)), h = up(rounded(random_tensor({rows, in}, 5)));
      const std::string what = std::to_string(rows) + " rows, " + std::to_string(out) + " x " + std::to_string(in);
      twice(what, [&] { return cuda->norm_linear(x, gain, 1e-5f, w); });
      twice(what, [&] { return cuda->linear(x, w); });
      twice(what, [&] {
        const Tensor y = up(random_tensor({rows, out}, 7));
        cuda->linear_add(y, h, w);
        return y;
      });
      twice(what, [&] {
        const Tensor y = up(random_tensor({rows, in}, 8));
        cuda->feed_forward(y, gain, 1e-5f, w, back);
        return y;
      });
    }
  }
}

// More tiles than blocks, and tiles of fewer and of more boxes than the ring has stages.
TEST_F(Races, products_of_many_rows) {
  for (const char* precision : {"w8a8", "fp8_w8a8"})
    for (const auto& [half, in] : {std::pair{8576, 128}, {128, 2048}}) {
      const auto weight = [&](int out, int inputs, unsigned seed) {
        return cuda->prepare(quantize(Weight::dense(random_tensor({out, inputs}, seed)), *find_precision(precision)));
      };
      const Weight w = weight(2 * half, in, 1), back = weight(in, half, 2);
      const Tensor gain = up(random_tensor({in}, 6)), x = up(random_tensor({130, in}, 4));
      twice(precision, [&] { return cuda->linear(x, w); });
      twice(precision, [&] {
        const Tensor y = up(random_tensor({130, in}, 8));
        cuda->feed_forward(y, gain, 1e-5f, w, back);
        return y;
      });
    }
}

// One slice, several tiles of a block; slices that are computed apart; slices that a block adds.
TEST_F(Races, products_of_many_rows_of_codes) {
  for (const char* precision : {"int4", "fp8"})
    for (const auto& [half, in, rows] : {std::tuple{8576, 128, 130}, {128, 2048, 130}, {2176, 1024, 192}}) {
      const auto weight = [&](int out, int inputs, unsigned seed) {
        return cuda->prepare(quantize(Weight::dense(random_tensor({out, inputs}, seed)), *find_precision(precision)));
      };
      const Weight w = weight(2 * half, in, 1), back = weight(in, half, 2);
      const Tensor gain = up(random_tensor({in}, 6)), x = up(random_tensor({rows, in}, 4));
      twice(precision, [&] { return cuda->linear(x, w); });
      twice(precision, [&] {
        const Tensor y = up(random_tensor({rows, in}, 8));
        cuda->feed_forward(y, gain, 1e-5f, w, back);
        return y;
      });
    }
}

TEST_F(Races, products_in_f32) {
  const Weight w = cuda->prepare(random_weight(70, 100, DType::f32, 1));
  const Tensor x = up(random_tensor({9, 100}, 4)), gain = up(random_tensor({1, 100}, 6).reshaped({100}));
  twice("linear", [&] { return cuda->linear(x, w); });
  twice("norm_linear", [&] { return cuda->norm_linear(x, gain, 1e-5f, w); });
}

TEST_F(Races, attention) {
  const std::unique_ptr<Backend> reference = make_reference_backend();
  for (const int head_size : {64, 128, 256}) {
    Cache cache(3, 320, 16, 1, head_size, DType::bf16);
    fill(*reference, cache, 300, 1);
    std::vector<ScenarioRow> prompt, decode, tree;
    for (int slot = 100; slot < 145; ++slot) prompt.push_back(chain_row(0, slot));
    for (int owner = 0; owner < 3; ++owner) decode.push_back(chain_row(owner, 299 - 140 * owner));
    for (int n = 0; n < 5; ++n) tree.push_back({1, 200 + n, 200 + std::min(n, 1), 200, {n == 0 ? 1u : 1u | 1u << n}});
    const std::string head = " with heads of " + std::to_string(head_size);
    attend_twice("a prompt" + head, cache, prompt, 0, 2);
    attend_twice("single rows" + head, cache, decode, 0, 4);
    attend_twice("a tree" + head, cache, tree, 1, 4);
  }
  Cache wide(1, 64, 16, 1, 20, DType::f32);
  fill(*reference, wide, 50, 1);
  attend_twice("numbers of 32 bits", wide, {chain_row(0, 40), chain_row(0, 49)}, 0, 2);
}

// Rows that the kernel rotates and stores: the decode route, then streams of one and two sets of vectors, too many for
// it, then of four and eight, which clusters share. Contexts do not wrap a ring (see below).
TEST_F(Races, attention_with_rows_that_it_stores) {
  for (const int head_size : {64, 128})
    for (const auto& [sequences, rows, group] :
         {std::tuple{1, 1, 4}, {2, 3, 4}, {1, 8, 4}, {300, 1, 4}, {300, 3, 4}, {40, 5, 4}, {40, 9, 7}}) {
      const int deepest = sequences == 300 ? 60 : 120;  // one step, two chunks
      Cache cache(sequences, 160, 16, 1, head_size, DType::bf16);
      fill(*make_cpu_backend(2), cache, 150, 1);
      std::vector<ScenarioRow> all;
      for (int s = 0; s < sequences; ++s)
        for (int r = 0; r < rows; ++r) all.push_back(chain_row(s, deepest - s % 50 + r));
      const Layout layout = on_gpu(layout_of(all, cache.tables, 0), *cuda);
      const KvLayer kv = on_gpu(cache.layers[0], *cuda);
      const Tensor frequencies = up(random_tensor({head_size / 2}, 3)),
                   x = rounded(random_tensor({layout.rows, std::int64_t(group + 2) * head_size}, 4));
      const std::int64_t queries = std::int64_t(group) * head_size;
      twice(std::to_string(sequences) + " sequences of " + std::to_string(rows) + " rows", [&] {
        const Tensor own = up(x);
        return cuda->rope_attend(own.columns(0, queries), own.columns(queries, head_size),
                                 own.columns(queries + head_size, head_size), kv, layout, frequencies, 0.1f);
      });
    }
}

// Single rows take the coded stream where the head has 64 or 128 numbers, the rest coded tiles.
TEST_F(Races, attention_to_codes) {
  const std::unique_ptr<Backend> reference = make_reference_backend();
  for (const int head_size : {64, 128, 256}) {
    Cache cache(3, 320, 16, 1, head_size, DType::e4m3);
    fill(*reference, cache, 300, 1);
    std::vector<ScenarioRow> prompt, decode;
    for (int slot = 100; slot < 145; ++slot) prompt.push_back(chain_row(0, slot));
    for (int owner = 0; owner < 3; ++owner) decode.push_back(chain_row(owner, 299 - 140 * owner));
    const std::string head = " with heads of " + std::to_string(head_size);
    attend_twice("a prompt" + head, cache, prompt, 0, 2);
    attend_twice("single rows" + head, cache, decode, 0, 4);
    attend_twice("single rows, two warps" + head, cache, decode, 0, 12);
  }
}

// A tree behind more steps of its prefix than the ring has stages, which one block takes; pages that are copied as
// boxes and by threads. Racecheck reports hazards with heads of 128: it does not follow an arrival of one lane for its
// warp beyond the first round of a ring, as a ring of sixty lines shows
// (kernels/cuda/racecheck_ring.cu.txt).
TEST_F(Races, attention_of_a_tree_behind_a_long_prefix) {
  for (const int page_rows : {16, 12})
    for (const DType dtype : {DType::bf16, DType::e4m3})
      for (const int head_size : {64, 128, 256}) {
        std::mt19937 engine(3);
        const Tree tree = random_tree(0, 700, 9, engine);
        Cache cache(1, tree.slots(), page_rows, 1, head_size, dtype);
        fill(*make_reference_backend(), cache, tree.slots(), 1);
        Layout layout = tree.layout(cache.tables);
        layout.deepest = kUnbounded;
        attend_twice(std::string(name_of(dtype)) + ", heads of " + std::to_string(head_size) + ", pages of " +
                         std::to_string(page_rows),
                     cache, layout, 4);
      }
}

// Two tables of one cache, whose pool begins at a multiple of 16 bytes, or of less. Each run begins with the same
// pages.
TEST_F(Races, selection_of_pages) {
  const std::unique_ptr<Backend> reference = make_reference_backend();
  Cache cache(1, 1600, 16, 2, 64, DType::bf16);
  fill(*reference, cache, 1600, 1);
  const KvLayer kv = on_gpu(cache.layers[0], *cuda);
  const std::vector<std::int32_t> pages(cache.tables.data<std::int32_t>(), cache.tables.data<std::int32_t>() + 100);
  Layout layout =
      on_gpu(selecting(layout_of({chain_row(0, 99), chain_row(0, 100)}, cache.tables, 0), cache, {100}, {30}), *cuda);
  for (Tensor* t : {&layout.selection.candidates, &layout.selection.counts, &layout.selection.chosen}) *t = up(*t);
  const Tensor q = up(rounded(random_tensor({2, 8 * 64}, 3)));
  twice("selection", [&] {
    cuda->bound_pages({&kv, 1}, pages);
    return cuda->select_pages(q, kv, layout);
  });
}

TEST_F(Races, move) {
  const std::unique_ptr<Backend> reference = make_reference_backend();
  for (const DType dtype : {DType::bf16, DType::e4m3})
    for (const int offset : {0, 8, 4}) {
      Cache cache(2, 64, 16, 2, 64, dtype);
      fill(*reference, cache, 60, 1);
      const std::vector<Moves::Row> first = moved_rows(cache, 0, {9, 17, 30, 31, 32, 40, 41, 42, 43},
                                                       {8, 9, 10, 11, 12, 13, 14, 15, 16}),
                                    second = moved_rows(cache, 1, {50}, {20});
      const auto moved = [&](Backend& backend, const Tensor& pool) {
        std::vector<KvLayer> layers = cache.layers;
        for (KvLayer& kv : layers) kv.pool = pool;
        backend.move(std::vector<Moves>{{layers, first}, {layers, second}});
        return pool;
      };
      const auto on_device = [&] {
        const auto all = std::make_shared<Tensor>(cuda->allocate({cache.pool.bytes() + offset}, DType::u8));
        const Tensor pool(all, all->data<std::byte>() + offset, cache.pool.shape(), DType::u8, all->device());
        cuda->copy(cache.pool, pool);
        return moved(*cuda, pool);
      };
      twice(name_of(dtype), on_device);
      const Tensor truth = moved(*reference, copy_of(cache.pool));
      EXPECT_TRUE(bytes(on_device()) == std::string(truth.data<char>(), std::size_t(truth.bytes())));
    }
}

TEST_F(Races, rows) {
  const Tensor x = up(random_tensor({3, 640}, 1)), gain = up(random_tensor({1, 640}, 2).reshaped({640})),
               narrow = gain.rows(0, 64);
  twice("rms_norm", [&] { return cuda->rms_norm(x, gain, 1e-5f); });
  twice("head_norm", [&] {
    const Tensor y = up(random_tensor({3, 640}, 1));
    cuda->head_norm(y, narrow, 1e-5f);
    return y;
  });
}

// Crews of one block and of two.
TEST_F(Races, distributions_and_draws) {
  for (const int vocab : {600, 16640}) {
    const Tensor logits = up(random_tensor({3, vocab}, 5, 2));
    const std::vector<Warp> warps{{.temperature = 1, .raw_normalizer = true},
                                  {.temperature = 0.7f, .top_k = 20, .top_p = 0.9f},
                                  {.temperature = 0}};
    const Distributions distributions = cuda->distributions(logits, warps);
    twice("laws", [&] { return cuda->distributions(logits, warps).rows; });
    for (const bool race : {false, true}) {
      std::vector<TokenDraw> draws;
      for (int r = 0; r < 3; ++r) draws.push_back({{7, std::uint64_t(r), 3, 0}, {Role::draft, 0, 0}, 5, race});
      twice(race ? "races" : "draws", [&] {
        const Tensor to = cuda->allocate({3}, DType::i32);
        cuda->draw(distributions, draws, to);
        return to;
      });
    }
  }
}

}  // namespace
}  // namespace foretoken::test
