// A row's result is the same bits alone and among any other rows, with any number of threads; and a node of a tree has
// the bits of its path run as a chain.
#include <gtest/gtest.h>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/trees.h"

namespace foretoken::test {
namespace {

constexpr DType kCaches[] = {DType::f32, DType::bf16, DType::i8, DType::e4m3};

class Rows : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> make(int threads) {
    if (GetParam() == "reference") return make_reference_backend();
    return make_cpu_backend(threads, GetParam());
  }
  std::unique_ptr<Backend> backend = make(1), threaded = make(3);

  // f(backend, rows) of each row alone must equal f of all rows at once.
  template <class F> void independent(const Tensor& x, const F& f, const std::string& what) {
    const Tensor all = f(*threaded, x);
    EXPECT_TRUE(same_bits(all, f(*backend, x))) << what << ": threads change bits";
    for (std::int64_t r = 0; r < x.dim(0); ++r)
      ASSERT_TRUE(same_row(f(*backend, x.rows(r, 1)), 0, all, r)) << what << ", row " << r << " of " << x.dim(0);
    for (std::int64_t n : {2, 3, 4, 8, 12}) {
      if (n >= x.dim(0)) break;
      ASSERT_TRUE(same_row(f(*backend, x.rows(1, n)), n - 1, all, n)) << what << ", the last of " << n << " rows";
    }
  }

  // The nodes of `tree` have the reference's values, and each `every`th has the bits of its path run as a chain.
  void expect_chains(const Tree& tree, DType dtype, unsigned seed, int window, int every,
                     const AttentionRules& rules = 0.125f) {
    SCOPED_TRACE(::testing::Message() << tree.nodes() << " nodes behind " << tree.prefix << ", " << name_of(dtype)
                                      << ", window " << window << ", seed " << seed);
    Cache cache(1, tree.slots(), 16, 2, 64, dtype, seed);
    fill(*backend, cache, tree.slots(), seed);
    const Tensor q = random_tensor({tree.nodes(), 6 * 64}, seed);
    const Layout layout = tree.layout(cache.tables, window);
    const Tensor y = threaded->attend(q, cache.layers[0], layout, rules);
    EXPECT_LT(distance(y, make_reference_backend()->attend(q, cache.layers[0], layout, rules)), 3e-6);
    for (int n = 0; n < tree.nodes(); n += every) {
      const Cache moved = tree.as_chain(n, cache);
      const Layout chain = tree.chain(n, moved.tables, window);
      ASSERT_TRUE(same_row(backend->attend(q.rows(n, 1), moved.layers[0], chain, rules), 0, y, n)) << "node " << n;
    }
  }
};

TEST_P(Rows, products) {
  for (DType dtype : {DType::f32, DType::bf16, DType::i8}) {
    for (int in : {385, 64}) {
      const Weight w = random_weight(2081, in, dtype, 5);
      const Weight a = backend->prepare(w), b = threaded->prepare(w);
      for (int n : {5, 10, 37}) {
        independent(
            random_tensor({n, in}, 6),
            [&](Backend& k, const Tensor& x) { return k.linear(x, &k == backend.get() ? a : b); }, "linear");
        independent(
            random_tensor({n, in}, 6),
            [&](Backend& k, const Tensor& x) {
              Tensor y = copy_of(random_tensor({1, 2081}, 1));
              Tensor many = Tensor::host({x.dim(0), 2081}, DType::f32);
              for (std::int64_t r = 0; r < x.dim(0); ++r) k.copy(y, many.rows(r, 1));
              k.linear_add(many, x, &k == backend.get() ? a : b);
              return many;
            },
            "linear_add");
      }
    }
  }
}

// Outputs that do not suffice for all threads, which divide the rows too.
TEST_P(Rows, products_of_few_outputs) {
  for (DType dtype : {DType::f32, DType::bf16, DType::i8}) {
    const Weight w = random_weight(70, 385, dtype, 5);
    const Weight a = backend->prepare(w), b = threaded->prepare(w);
    independent(
        random_tensor({200, 385}, 6),
        [&](Backend& k, const Tensor& x) { return k.linear(x, &k == backend.get() ? a : b); }, "linear");
  }
}

TEST_P(Rows, feed_forward) {
  const Weight up = random_weight(2 * 320, 192, DType::bf16, 5), down = random_weight(192, 320, DType::bf16, 6);
  const Weight a[2] = {backend->prepare(up), backend->prepare(down)},
               b[2] = {threaded->prepare(up), threaded->prepare(down)};
  const Tensor gain = random_tensor({192}, 2);
  const auto f = [&](Backend& k, const Tensor& rows) {
    const Weight* w = &k == backend.get() ? a : b;
    const Tensor x = copy_of(rows);
    k.feed_forward(x, gain, 1e-5f, w[0], w[1]);
    return x;
  };
  for (int n : {5, 37}) independent(random_tensor({n, 192}, 6), f, "feed_forward");
}

// Rows among others that use the same experts, in whatever order.
TEST_P(Rows, expert_feed_forward) {
  const auto experts = [](Backend& k, std::int64_t out, std::int64_t in, unsigned seed) {
    std::vector<Weight> all;
    for (unsigned e = 0; e < 7; ++e) all.push_back(k.prepare(random_weight(out, in, DType::bf16, seed + e)));
    return k.group_experts(std::move(all));
  };
  for (const int width : {128, 36}) {
    const ExpertWeights a[2] = {experts(*backend, 2 * width, 96, 1), experts(*backend, 96, width, 20)},
                        b[2] = {experts(*threaded, 2 * width, 96, 1), experts(*threaded, 96, width, 20)};
    const Weight router = random_weight(7, 96, DType::f32, 9),
                 routers[2] = {backend->prepare(router), threaded->prepare(router)};
    const auto f = [&](Backend& k, const Tensor& rows) {
      const bool one = &k == backend.get();
      const Tensor x = copy_of(rows);
      k.expert_feed_forward(x, rows, k.route(k.linear(rows, routers[!one]), 2, true), (one ? a : b)[0],
                            (one ? a : b)[1]);
      return x;
    };
    for (int n : {5, 37}) independent(random_tensor({n, 96}, 6), f, "expert_feed_forward");
  }
}

TEST_P(Rows, row_work) {
  const Tensor gain = random_tensor({770}, 2);
  const Tensor x = random_tensor({70, 770}, 1);
  independent(x, [&](Backend& k, const Tensor& r) { return k.rms_norm(r, gain, 1e-5f); }, "rms_norm");
  independent(x, [&](Backend& k, const Tensor& r) { return k.silu_mul(r); }, "silu_mul");
  independent(x, [&](Backend& k, const Tensor& r) { return k.gelu_mul(r); }, "gelu_mul");
  const auto softcap = [](Backend& k, const Tensor& r) {
    const Tensor y = copy_of(r);
    k.softcap(y, 0.7f);
    return y;
  };
  independent(x, softcap, "softcap");
  const auto silu_add = [](Backend& k, const Tensor& r) {
    const Tensor y = copy_of(r);
    k.silu_add(y, r.columns(3, 385));
    return y;
  };
  independent(x, silu_add, "silu_add");
}

TEST_P(Rows, rope) {
  const Tensor frequencies = random_tensor({40}, 2);
  const Tensor tables = integers({0}).reshaped({1, 1});
  const Tensor x = random_tensor({70, 240}, 1);
  const auto rotated = [&](Backend& k, const Tensor& rows, int first) {
    std::vector<ScenarioRow> scenario;
    for (int r = 0; r < int(rows.dim(0)); ++r) scenario.push_back(chain_row(0, (first + r) * 37));
    Tensor y = copy_of(rows);
    k.rope(y.columns(0, 160), y.columns(160, 80), layout_of(scenario, tables, 0), frequencies, 80);
    return y;
  };
  const Tensor all = rotated(*threaded, x, 0);
  for (int r = 0; r < 70; ++r) EXPECT_TRUE(same_row(rotated(*backend, x.rows(r, 1), r), 0, all, r));
}

// A row alone has as many queries for a key as its group has heads; among others, the rows that share keys are computed
// together.
TEST_P(Rows, attend) {
  const struct {
    int group, head_size;
  } shapes[] = {{3, 80}, {1, 64}, {2, 20}, {5, 32}, {8, 6}};
  for (const auto& [group, head_size] : shapes) {
    for (const DType dtype : kCaches) {
      Cache cache(3, 700, 16, 2, head_size, dtype);
      fill(*backend, cache, 690, 7);
      std::vector<ScenarioRow> rows;
      for (int slot = 0; slot < 40; ++slot) rows.push_back(chain_row(0, 245 + slot));
      for (int slot : {3, 689, 300}) rows.push_back(chain_row(1, slot));
      for (int slot = 508; slot < 515; ++slot) rows.push_back(chain_row(2, slot));
      const Tensor q = random_tensor({std::int64_t(rows.size()), 2 * group * head_size}, 8);
      for (const int window : {1 << 20, 270, 3}) {
        const Tensor all =
            threaded->attend(q, cache.layers[0], windowed(layout_of(rows, cache.tables, 0), window), 0.1f);
        for (std::size_t r = 0; r < rows.size(); ++r) {
          const Layout one = windowed(layout_of({rows[r]}, cache.tables, 0), window);
          const Tensor alone = backend->attend(q.rows(std::int64_t(r), 1), cache.layers[0], one, 0.1f);
          ASSERT_TRUE(same_row(alone, 0, all, std::int64_t(r)))
              << "row " << r << ", " << group << " heads of " << head_size << " " << name_of(dtype);
        }
      }
    }
  }
}

// The NaN is where a vector of the query begins, in its middle, or in its last, incomplete one.
TEST_P(Rows, a_nan_query_gives_nan_and_harms_no_other_row) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [group, head_size] : {std::pair(3, 80), {1, 64}, {2, 20}, {8, 6}}) {
    for (const DType dtype : kCaches) {
      Cache cache(2, 320, 16, 2, head_size, dtype);
      fill(*backend, cache, 310, 7);
      std::vector<ScenarioRow> chains, tree;
      for (int slot = 250; slot < 262; ++slot) chains.push_back(chain_row(0, slot));
      for (const int slot : {3, 300}) chains.push_back(chain_row(1, slot));
      for (int n = 0; n < 5; ++n) tree.push_back({0, 40 + n, 40 + std::min(n, 1), 40, {n == 0 ? 1u : 1u | 1u << n}});
      for (const Layout& layout : {layout_of(chains, cache.tables, 0), layout_of(tree, cache.tables.rows(0, 1), 1)}) {
        const Tensor q = random_tensor({layout.rows, 2 * group * head_size}, 8);
        const Tensor sane = threaded->attend(q, cache.layers[0], layout, 0.1f);
        for (const int row : {0, 1, layout.rows - 1}) {
          for (const int at : {0, head_size / 2, head_size - 1}) {
            const Tensor poisoned = copy_of(q);
            for (int head = 0; head < 2 * group; ++head) poisoned.row<float>(row)[head * head_size + at] = kNan;
            const Tensor y = threaded->attend(poisoned, cache.layers[0], layout, 0.1f);
            for (int r = 0; r < layout.rows; ++r)
              ASSERT_TRUE(r == row || same_row(y, r, sane, r)) << "row " << r << " beside a NaN in row " << row;
            for (int i = 0; i < 2 * group * head_size; ++i)
              ASSERT_TRUE(std::isnan(y.row<float>(row)[i]))
                  << "row " << row << ", element " << i << " of head size " << head_size << ", NaN at " << at;
          }
        }
      }
    }
  }
}

// Random trees over a prefix, of which all nodes see the same slots.
TEST_P(Rows, tree_is_chain) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    std::mt19937 engine(seed);
    const int nodes = seed % 2 == 0 ? 3 + int(engine() % 40) : 64 + int(engine() % 60);
    const int prefix = seed % 3 == 0 ? 250 : int(engine() % 60);
    expect_chains(random_tree(0, prefix, nodes, engine), kCaches[seed / 2 % 4], seed, 0, 1 + nodes / 20);
  }
}

// Windows that begin among a node's ancestors, which lie on both sides of a multiple of 256 depths.
TEST_P(Rows, tree_is_chain_within_a_window) {
  for (const int prefix : {200, 250, 506}) {
    std::mt19937 engine(3);
    Tree tree{0, prefix};
    for (int n = 0; n < 90; ++n) tree.append(n == 0 ? -1 : std::max(0, n - 1 - int(engine() % 2)));
    for (const int window : {3, 20})
      for (const DType dtype : kCaches) {
        expect_chains(tree, dtype, 3, window, 1);
        expect_chains(tree, dtype, 3, window, 9, {0.125f, 0.5f});
      }
  }
}

// More nodes than a draft tree has: what is fed to a draft model may have more than is kept of it.
TEST_P(Rows, tree_of_five_words_is_chain) {
  std::mt19937 engine(5);
  Tree tree{0, 250};
  for (int n = 0; n < 316; ++n) tree.append(n == 0 ? -1 : std::max(0, n - 1 - int(engine() % 40)));
  EXPECT_EQ(tree.words(), 5);
  expect_chains(tree, DType::bf16, 5, 0, 15);
}

std::vector<std::string> all_backends() {
  std::vector<std::string> names = cpu_instructions();
  names.push_back("reference");
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Rows, ::testing::ValuesIn(all_backends()), [](const auto& i) { return i.param; });

}  // namespace
}  // namespace foretoken::test
