// The padding of forwards: the layout that a model gets where its device pads sizes.
#include "kernels/reference/reference_backend.h"
#include "tests/framework/engine/engine_scenario.h"

namespace foretoken::test {
namespace {

// Pads numbers of rows, tables and wanted rows as a device with few recorded graphs does.
class Rounding final : public ReferenceBackend {
 public:
  int padded(int n) const override { return n <= 8 ? n : (n + 15) / 16 * 16; }
};

// Wraps a model and records the layout of every forward.
class Watched final : public Model {
 public:
  struct Seen {
    int rows = 0, sequences = 0, longest = 0, most = 0;  // most: rows of one table
    bool agree = true;                                   // begins and owner; every row has a table
    int straight = 0, branching = 0;                     // tables of Layout::straight; tables with ancestors
    bool apart = true;                                   // no row of Layout::straight has ancestors; its bounds are so
    bool padded = true;                                  // sizes of both parts, and bounds of them, are padded ones
    bool all_wanted = false;                             // Rows::all_wanted
  };
  Watched(std::shared_ptr<Model> model, std::vector<Seen>& seen) : model_(std::move(model)), seen_(seen) {}
  const ModelInfo& info() const override { return model_->info(); }
  Output forward(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) override {
    const Layout& l = rows.layout;
    Seen s{l.rows, l.sequences, l.longest};
    const auto begins = [&](int i) { return *l.begins.row<std::int32_t>(i); };
    for (int i = 0; i < l.sequences; ++i) {
      s.most = std::max(s.most, begins(i + 1) - begins(i));
      for (int r = begins(i); r < begins(i + 1); ++r) s.agree = s.agree && *l.owner.row<std::int32_t>(r) == i;
    }
    s.agree = s.agree && begins(0) == 0 && begins(l.sequences) == l.rows;
    note_straight(backend, l, s);
    for (const int n :
         {l.straight.rows, l.rows - l.straight.rows, l.straight.sequences, l.sequences - l.straight.sequences,
          l.straight.longest, l.longest, l.straight.deepest, l.deepest, l.table_width})
      s.padded = s.padded && backend.padded(n) == n;
    s.all_wanted = rows.all_wanted;
    for (std::int32_t r = 0; rows.all_wanted && r < rows.wanted.dim(0); ++r)  // 0: also padding
      s.agree = s.agree && (*rows.wanted.row<std::int32_t>(r) == r || *rows.wanted.row<std::int32_t>(r) == 0);
    seen_.push_back(s);
    return model_->forward(backend, rows, kv);
  }

 private:
  static void note_straight(const Backend& backend, const Layout& l, Seen& s) {
    int deepest = 0, longest = 0;
    s.straight = l.straight.sequences;
    s.apart = *l.begins.row<std::int32_t>(s.straight) == l.straight.rows;
    for (int i = 0; i < l.sequences; ++i) {
      const int begin = *l.begins.row<std::int32_t>(i), end = *l.begins.row<std::int32_t>(i + 1);
      bool branches = false;
      for (int r = begin; r < end; ++r) {
        for (int w = 0; w < l.words; ++w) branches = branches || l.ancestors.row<std::uint64_t>(r)[w] != 0;
        if (i < s.straight) deepest = std::max(deepest, *l.visible.row<std::int32_t>(r));
      }
      s.branching += branches;
      if (i < s.straight) s.apart = s.apart && !branches, longest = std::max(longest, end - begin);
    }
    s.apart = s.apart && backend.padded(deepest) == l.straight.deepest && longest <= l.straight.longest &&
              l.straight.longest <= std::max(l.longest, 1);
  }

  std::shared_ptr<Model> model_;
  std::vector<Seen>& seen_;
};

struct PaddedForwards : EngineScenario {
  std::vector<Watched::Seen> seen;

  void run(int sequences, Tokens prompt, int guesses) {
    backend = std::make_unique<Rounding>();
    models.target = std::make_shared<Watched>(models.target, seen);
    options.batch = sequences, options.step_rows = 256, options.pages = 1024;
    configs.policy = {{"name", "fixed"}, {"length", guesses}};
    const auto e = engine();
    for (int i = 0; i < sequences; ++i) e->submit(request(prompt, 6));
    while (!e->idle()) (void)e->step();
    ASSERT_FALSE(seen.empty());
    for (const auto& s : seen) {
      EXPECT_TRUE(s.agree) << s.rows << " rows of " << s.sequences;
      EXPECT_LE(s.most, s.longest) << s.rows << " rows of " << s.sequences;
    }
  }
};

// Seventeen single rows are padded to 32. No table may then have more than one row, or kernels would treat decoding as
// reading a prompt.
TEST_F(PaddedForwards, single_rows_stay_single) {
  configs.drafter = {{"name", "none"}};
  run(17, {1}, 0);
  int padded = 0;
  for (const auto& s : seen) {
    EXPECT_EQ(s.longest, 1) << s.rows << " rows of " << s.sequences;
    padded += s.rows == 32;
  }
  EXPECT_GT(padded, 0);
}

// Seventeen chains of four rows, 68 rows in all, are padded to 80.
TEST_F(PaddedForwards, padding_is_no_longer_than_a_chain) {
  run(17, {1}, 3);
  int padded = 0;
  for (const auto& s : seen) {
    EXPECT_LE(s.longest, 4) << s.rows << " rows of " << s.sequences;
    padded += s.rows == 80;
  }
  EXPECT_GT(padded, 0);
}

// Seven chains of three rows, 21 rows in all, are padded to 32. Eleven rows of padding need four tables, although the
// device would pad seven tables to eight.
TEST_F(PaddedForwards, there_are_as_many_tables_as_padding_needs) {
  run(7, {1}, 2);
  int padded = 0;
  for (const auto& s : seen) {
    EXPECT_LE(s.longest, 3) << s.rows << " rows of " << s.sequences;
    padded += s.rows == 32;
  }
  EXPECT_GT(padded, 0);
}

TEST_F(PaddedForwards, a_prompt_is_padded_in_one_table) {
  configs.drafter = {{"name", "none"}};
  run(1, Tokens(19, 1), 0);
  EXPECT_EQ(seen.front().rows, 32);
  EXPECT_EQ(seen.front().sequences, 2);
}

// Sequences of a forward: every other one with a tree that branches, others with a chain or a bare root.
struct SeveralSequences {
  static constexpr int kCount = 7;
  std::vector<Sequence> sequences{kCount};
  std::vector<DraftTree> trees;
  std::vector<Segment> segments;

  explicit SeveralSequences(Backend& backend) {
    for (int i = 0; i < kCount; ++i) {
      Sequence& s = sequences[std::size_t(i)];
      s.id = SequenceId(i + 1);
      for (int n = 0; n < 1 + i; ++n) s.tokens.push_back(Token((n * 3 + i) % 5));
      DraftTree tree = DraftTree::rooted(backend, s.tokens.back(), 70);
      if (i % 2 == 0) {
        for (const int parent : {0, 0, 1, 2}) tree.guess(parent, Token((i + tree.nodes) % 5));
        while (i == 2 && tree.nodes < 70) tree.guess(tree.nodes / 2, Token(tree.nodes % 5));  // more than a word
      } else {
        for (int n = 0; n < i - 1; ++n) tree.guess(n, Token(n % 5));
      }
      trees.push_back(tree);
    }
    for (std::size_t i = 0; i < sequences.size(); ++i)
      segments.push_back({&sequences[i], sequences[i].length() - 1, &trees[i], 0});
  }
};

// Sequences whose trees branch come last in the layout; the caller gets logits in the order of its segments.
TEST(CachedModelTest, trees_that_branch_are_apart_and_logits_keep_their_order) {
  const auto models = conformance::table_models({.vocab = 5, .positions = 64});
  for (const bool pads : {false, true}) {
    SCOPED_TRACE(pads ? "padded" : "as they are");
    const std::unique_ptr<Backend> backend = pads ? std::make_unique<Rounding>() : make_reference_backend();
    std::vector<Watched::Seen> seen;
    PagePool pool(*backend, 4 * models.target->info().kv.bytes_per_row(), 64);
    const auto logits_of = [&](std::span<const Segment> segments) {
      CachedModel model(*backend, std::make_shared<Watched>(models.target, seen), pool, false);
      std::vector<Segment> fed(segments.begin(), segments.end());
      for (Segment& s : fed) {
        const auto unseen = [&] {
          s.chain = int(model.unseen(*s.sequence).size()) - 1;
          EXPECT_TRUE(model.reserve(*s.sequence, s.chain + s.tree->nodes));
        };
        unseen();
        if (s.chain < 3) continue;
        const Segment first{s.sequence, 2, nullptr, 0};  // so that contexts are deeper than sequences have rows
        (void)model.run({&first, 1});
        unseen();
      }
      const Tensor logits = model.run(fed).logits;
      for (const Segment& s : segments) model.forget(*s.sequence);
      return logits;
    };
    const SeveralSequences all(*backend);
    const Tensor together = logits_of(all.segments);
    EXPECT_EQ(seen.back().branching, 4);
    EXPECT_GE(seen.back().straight, 3);
    EXPECT_TRUE(seen.back().apart && seen.back().agree && seen.back().padded);
    std::int64_t at = 0;
    for (const Segment& s : all.segments) {
      const Tensor alone = logits_of({&s, 1});
      EXPECT_TRUE(seen.back().apart && seen.back().agree && seen.back().straight == 0);
      for (std::int64_t r = 0; r < alone.dim(0); ++r, ++at)
        EXPECT_EQ(std::memcmp(alone.row<float>(r), together.row<float>(at), std::size_t(alone.dim(1)) * 4), 0) << at;
    }
    EXPECT_EQ(at, together.dim(0));
  }
}

// The logits of all rows need no gathering where rows are in the order of the segments and padding is behind them all.
TEST(CachedModelTest, rows_that_are_all_wanted_are_in_order) {
  const auto models = conformance::table_models({.vocab = 5, .positions = 64});
  Rounding backend;
  std::vector<Watched::Seen> seen;
  PagePool pool(backend, 4 * models.target->info().kv.bytes_per_row(), 64);
  const auto all_wanted = [&](int roots, int trees, bool trees_first) {
    CachedModel model(backend, std::make_shared<Watched>(models.target, seen), pool, false);
    std::vector<Sequence> sequences{std::size_t(roots + trees)};
    std::vector<DraftTree> drafts;
    std::vector<Segment> segments;
    for (int i = 0; i < roots + trees; ++i) {
      Sequence& s = sequences[std::size_t(i)];
      s.id = SequenceId(i + 1), s.tokens = {Token(i % 5)};
      drafts.push_back(DraftTree::rooted(backend, s.last(), 3));
      if (trees_first ? i < trees : i >= roots)
        for (const int parent : {0, 0, 1}) drafts.back().guess(parent, Token(drafts.back().nodes));
      EXPECT_EQ(model.unseen(s).size(), 1u);
      EXPECT_TRUE(model.reserve(s, drafts.back().nodes));
    }
    for (std::size_t i = 0; i < sequences.size(); ++i) segments.push_back({&sequences[i], 0, &drafts[i], 0});
    EXPECT_EQ(model.run(segments).logits.dim(0), roots + 4 * trees);
    EXPECT_TRUE(seen.back().agree && seen.back().apart);
    EXPECT_EQ(seen.back().branching, trees);
    for (const Sequence& s : sequences) model.forget(s);
    return seen.back().all_wanted;
  };
  EXPECT_TRUE(all_wanted(4, 1, false));
  EXPECT_FALSE(all_wanted(4, 1, true)) << "the tree comes last in the layout";
  EXPECT_FALSE(all_wanted(9, 4, false)) << "32 rows, 7 of them padding between the parts";
}

// A caller that catches the failure of a forward goes on without the rows that were never written.
TEST(CachedModelTest, a_forward_that_fails_leaves_no_rows) {
  struct Failing final : Model {
    ModelInfo known;
    const ModelInfo& info() const override { return known; }
    Output forward(Backend&, const Rows&, std::span<const KvLayer>) override { throw Error("it fails"); }
  };
  const auto backend = make_reference_backend();
  const auto models = conformance::table_models({.vocab = 5, .positions = 64});
  PagePool pool(*backend, 4 * models.target->info().kv.bytes_per_row(), 4);
  const auto failing = std::make_shared<Failing>();
  failing->known = models.target->info();
  CachedModel model(*backend, failing, pool);
  Sequence s;
  s.id = 1, s.tokens = {1, 2, 3};
  EXPECT_EQ(model.unseen(s).size(), 3u);
  ASSERT_TRUE(model.reserve(s, 3));
  const DraftTree root = DraftTree::rooted(*backend, 3, 0);
  const Segment all{&s, 2, &root, 0};
  EXPECT_EQ(test::sentence_of([&] { model.run({&all, 1}); }), "it fails");
  EXPECT_EQ(model.unseen(s).size(), 3u);
}

TEST(CachedModelTest, RefusesSegmentsThatAreNotImplemented) {
  const auto backend = make_reference_backend();
  const auto models = conformance::table_models({.vocab = 5, .positions = 64});
  PagePool pool(*backend, 4 * models.target->info().kv.bytes_per_row(), 4);
  CachedModel model(*backend, models.target, pool);
  Sequence s;
  s.id = 1, s.tokens = {1, 2, 3};
  (void)model.unseen(s);
  ASSERT_TRUE(model.reserve(s, 3));
  const DraftTree root = DraftTree::rooted(*backend, 3, 0);
  const std::uint64_t addresses[3] = {};
  const Segment featured{&s, 2, &root, 0, addresses};
  const std::string name = models.target->info().name;
  EXPECT_TRUE(says(test::sentence_of([&] { model.run({&featured, 1}); }), name, "3 rows of 0 features", "3 addresses"));
  EXPECT_TRUE(says(test::sentence_of([&] { model.run({&featured, 1}, {1, 8}); }), name, "Rows::inputs"));
  (void)model.unseen(s);
  ASSERT_TRUE(model.reserve(s, 3));
  const Segment plain{&s, 2, &root, 0};
  EXPECT_EQ(model.run({&plain, 1}).logits.dim(0), 1);
}

// Remembers the layout of its last forward, of a chain in whose place a block may be fed.
struct SeenLayout final : Model {
  ModelInfo known;
  Layout layout;
  const ModelInfo& info() const override { return known; }
  Output forward(Backend& backend, const Rows& rows, std::span<const KvLayer>) override {
    layout = rows.layout;
    for (Tensor* column : {&layout.slots, &layout.positions, &layout.visible})
      *column = Tensor::host_copy<std::int32_t>(column->values<std::int32_t>(), DType::i32);
    return {rows.wanted ? backend.allocate({rows.wanted.dim(0), known.vocab}, DType::f32) : Tensor()};
  }
};

struct BlockInACache : ::testing::Test {
  std::unique_ptr<Backend> backend = make_reference_backend();
  conformance::Models models = conformance::table_models({.vocab = 5, .positions = 64});
  std::shared_ptr<SeenLayout> seen = std::make_shared<SeenLayout>();
  Sequence s;
  DraftTree block = DraftTree::rooted(*backend, 3, 3);
  std::optional<PagePool> pool;
  std::optional<CachedModel> model;

  void open(int window = 0) {
    seen->known = models.target->info();
    seen->known.kv = KvShape(1, 1, 8, DType::f32, window);
    pool.emplace(*backend, 4 * seen->known.kv.bytes_per_row(), 8);
    model.emplace(*backend, seen, *pool);
    s.id = 1, s.tokens = {1, 2, 3};
    (void)model->unseen(s);
    ASSERT_TRUE(model->reserve(s, 6));
  }
  Segment segment() const { return {.sequence = &s, .chain = 2, .tree = &block, .mutual = true}; }
};

// Every node of a block sees the last one, the chain before it is causal, and none of the nodes is kept.
TEST_F(BlockInACache, ItsRowsSeeOneAnotherAndAreNotKept) {
  open();
  for (int n = 0; n < 3; ++n) block.guess(n, 4);
  const Segment all = segment();
  (void)model->run({&all, 1});
  const auto column = [](const Tensor& t) {
    return std::vector<std::int32_t>(t.values<std::int32_t>().begin(), t.values<std::int32_t>().end());
  };
  EXPECT_TRUE(seen->layout.mutual);
  EXPECT_EQ(column(seen->layout.slots), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(column(seen->layout.positions), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(column(seen->layout.visible), (std::vector<std::int32_t>{1, 2, 6, 6, 6, 6}));
  EXPECT_EQ(seen->layout.deepest, 6);
  s.tokens = {1, 2, 3, 4, 4, 4};
  EXPECT_EQ(model->unseen(s).size(), 4u) << "the root's row saw rows that the sequence does not have";
}

TEST_F(BlockInACache, WhatIsNoChainIsRefused) {
  open();
  block.guess(0, 4), block.guess(0, 2);
  const Segment branches = segment();
  EXPECT_TRUE(says(test::sentence_of([&] { model->run({&branches, 1}); }), "Segment::mutual", "a chain"));
  const Segment chain{.sequence = &s, .chain = 2, .mutual = true};
  EXPECT_TRUE(says(test::sentence_of([&] { model->run({&chain, 1}); }), "Segment::mutual", "a chain"));
}

TEST_F(BlockInACache, AWindowIsRefused) {
  open(16);
  const Segment all = segment();
  EXPECT_TRUE(says(test::sentence_of([&] { model->run({&all, 1}); }), "a window of 16", "Segment::mutual"));
}

// A model with windows of two sizes.
class TwoWindows final : public Model {
 public:
  TwoWindows() {
    info_.name = "alternating", info_.vocab = 5, info_.positions = 64;
    info_.kv = KvShape(std::vector<LayerShape>{{1, 2, DType::f32, 16}, {1, 2, DType::f32, 8}});
  }
  const ModelInfo& info() const override { return info_; }
  Output forward(Backend&, const Rows&, std::span<const KvLayer>) override { return {}; }

 private:
  ModelInfo info_;
};

TEST(CachedModelTest, RefusesWindowsOfSeveralSizes) {
  const auto backend = make_reference_backend();
  PagePool pool(*backend, 64, 4);
  EXPECT_TRUE(says(test::sentence_of([&] { CachedModel(*backend, std::make_shared<TwoWindows>(), pool); }),
                   "alternating", "16", "one size is supported"));
}

}  // namespace
}  // namespace foretoken::test
