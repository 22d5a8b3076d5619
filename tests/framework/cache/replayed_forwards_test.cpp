// The key by which a device replays a forward: it contains everything on which the body depends, and nothing else, so
// that a later engine with the same model and memory replays what was recorded.
#include <map>
#include <random>
#include <set>

#include "experiments/conformance/components.h"
#include "kernels/reference/reference_backend.h"
#include "tests/framework/cache/alone.h"
#include "tests/framework/engine/engine_scenario.h"

namespace foretoken::test {
namespace {

using Numbers = std::vector<std::int64_t>;
std::int64_t address(const Tensor& t) { return std::int64_t(reinterpret_cast<std::uintptr_t>(t.raw())); }

// Records by key which outside memory every body reads and writes. Freed memory is allocated again, as on a device with
// a memory pool: the smallest block that is large enough, of those the first.
class Recording final : public ReferenceBackend {
 public:
  Tensor allocate(Shape shape, DType dtype) override {
    const std::int64_t bytes = std::max<std::int64_t>(shape.elements() * size_of(dtype), 1);
    auto found = free_->lower_bound({bytes, nullptr});
    if (found == free_->end() || found->first.first > 2 * bytes)
      found = free_->emplace(std::pair<std::int64_t, void*>(bytes, nullptr), Tensor::host({bytes}, DType::u8)).first;
    const auto [block, memory] = *found;
    free_->erase(found);
    sizes.insert(block.first);
    const auto back = [free = free_, memory = memory, size = block.first](void* at) {
      free->emplace(std::pair(size, at), memory);
    };
    return Tensor(std::shared_ptr<void>(memory.raw(), back), memory.raw(), shape, dtype, {});
  }
  Mirror mirror(std::int64_t bytes) override {
    const Tensor memory = allocate({bytes}, DType::u8);
    return {memory, memory};
  }
  void pick(const Tensor& known, const Tensor& at, Tensor to, int vocab) override {
    note({address(known), address(at)});
    ReferenceBackend::pick(known, at, to, vocab);
  }
  void replay(std::span<const std::int64_t> key, const std::function<void()>& body, const Tensor&) override {
    Numbers seen;
    body_ = &seen;
    body();
    body_ = nullptr;
    const Numbers name(key.begin(), key.end());
    if (!records_new && !bodies.contains(name)) return void(++without);
    const auto [known, fresh] = bodies.emplace(name, seen);
    recorded += fresh, replayed += !fresh, wrong += known->second != seen;
  }
  int padded(int n) const override { return n <= few ? n : (n + 15) / 16 * 16; }
  std::uint64_t recordings() const override { return std::uint64_t(recorded); }
  void record_new(bool on) override { records_new = on; }
  std::uint64_t unrecorded() const override { return std::uint64_t(without); }
  void note(const Numbers& numbers) {
    if (body_) body_->insert(body_->end(), numbers.begin(), numbers.end());
  }

  int few = 1 << 20;  // sizes up to that are not padded
  bool records_new = true;
  int recorded = 0, replayed = 0, without = 0, wrong = 0;  // wrong: another body has the key
  std::map<Numbers, Numbers> bodies;
  std::set<std::int64_t> sizes;  // bytes of its blocks

 private:
  using Blocks = std::map<std::pair<std::int64_t, void*>, Tensor>;  // by size and address
  std::shared_ptr<Blocks> free_ = std::make_shared<Blocks>();  // shared: memory of models is freed after this backend
  Numbers* body_ = nullptr;
};

// Wraps a model as one that replays.
class Replayed final : public Model {
 public:
  explicit Replayed(std::shared_ptr<Model> model) : model_(std::move(model)) {}
  const ModelInfo& info() const override { return model_->info(); }
  bool replays() const override { return true; }
  Output forward(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) override {
    Recording& b = dynamic_cast<Recording&>(backend);
    const Layout& l = rows.layout;
    EXPECT_TRUE(!rows.all_wanted || rows.wanted.dim(0) == l.rows) << "the logits of all rows have no other rows";
    for (int i = 0; i < l.sequences; ++i)
      EXPECT_LE(l.begins.row<std::int32_t>(i)[1] - *l.begins.row<std::int32_t>(i), l.longest);
    for (int r = 0; r < l.rows; ++r) EXPECT_LT(*l.slots.row<std::int32_t>(r), l.deepest);
    b.note({std::int64_t(reinterpret_cast<std::uintptr_t>(this)), l.rows, l.sequences, l.words, l.table_width,
            l.deepest, l.longest, l.straight.rows, l.straight.sequences, l.straight.deepest, l.straight.longest,
            rows.all_wanted});
    for (const Tensor* t : {&l.positions, &l.slots, &l.owner, &l.visible, &l.first, &l.ancestors, &l.tables, &l.begins,
                            &rows.wanted, &rows.logits})
      b.note({address(*t), *t ? t->elements() : 0});
    for (const KvLayer& layer : kv)
      b.note(
          {address(layer.pool), layer.pool.dim(0), layer.pool.row_stride(), layer.keys, layer.values, layer.page_rows});
    const Output out = model_->forward(backend, rows, kv);
    if (rows.logits) backend.copy(out.logits, rows.logits);
    return out;
  }

 private:
  std::shared_ptr<Model> model_;
};

struct ReplayedForwards : EngineScenario {
  Recording* recording = nullptr;
  std::shared_ptr<Model> table = models.target;

  ReplayedForwards() { fresh(); }
  Recording& fresh() {
    models.target = table;  // frees its memory
    auto made = std::make_unique<Recording>();
    recording = made.get(), backend = std::move(made);
    models.target = std::make_shared<Replayed>(table);
    return *recording;
  }
  // Makes an engine, serves with it and destroys it; returns the number of recorded forwards in its reports.
  int serve() {
    int recorded = 0;
    const auto e = engine();
    for (const Tokens& prompt : {Tokens{1}, Tokens{2, 3, 1}, Tokens(9, 2)}) e->submit(request(prompt, 12));
    while (!e->idle()) recorded += e->step().recorded;
    return recorded;
  }
};

TEST_F(ReplayedForwards, an_engine_replays_what_another_recorded) {
  EXPECT_GT(serve(), 0);
  EXPECT_EQ(serve(), 0);
  EXPECT_GT(recording->replayed, 0);
  EXPECT_EQ(recording->wrong, 0);
}

// Between two engines other memory of every size but the pages' is allocated: inputs and logits keep their addresses.
TEST_F(ReplayedForwards, an_engine_replays_whatever_memory_others_allocated) {
  EXPECT_GT(serve(), 0);
  const std::int64_t pages = (options.pages + 1) * options.page_rows * table->info().kv.bytes_per_row();
  const std::set<std::int64_t> sizes = recording->sizes;
  ASSERT_TRUE(sizes.contains(pages));
  std::vector<Tensor> taken;
  for (const std::int64_t bytes : sizes)
    if (bytes != pages) taken.push_back(recording->allocate({bytes}, DType::u8));
  EXPECT_EQ(serve(), 0);
  EXPECT_EQ(recording->wrong, 0);
}

// Another model, other pages, another number of them: even with reused addresses, equal keys belong to equal bodies.
TEST_F(ReplayedForwards, a_key_contains_everything_that_a_body_depends_on) {
  serve();
  models.target = std::make_shared<Replayed>(table);
  EXPECT_GT(serve(), 0);
  for (const auto& [rows, pages] : {std::pair{2, 64}, {4, 32}, {2, 32}, {2, 63}}) {
    options.page_rows = rows, options.pages = pages;
    serve(), serve();
  }
  options.step_rows = 8, options.batch = 2;
  serve();
  // One block after another is allocated elsewhere, while all others keep their addresses.
  for (const std::int64_t bytes : std::set(recording->sizes)) {
    const Tensor held = recording->allocate({bytes}, DType::u8);
    serve();
  }
  EXPECT_EQ(recording->wrong, 0);
}

// Several batches, lengths and prompts, chains and trees, with padding and without it.
TEST_F(ReplayedForwards, equal_keys_belong_to_equal_bodies) {
  registries = conformance::with_scripted(conformance::all_registries());
  const nlohmann::json drafters[] = {configs.drafter, conformance::random_tree(5, "mixed", false)};
  for (const int few : {1 << 20, 4}) {
    fresh().few = few;
    std::mt19937 engine_of(7);
    const auto up_to = [&](unsigned n) { return 1 + int(engine_of() % n); };
    options.pages = 512;
    for (int i = 0; i < 60; ++i) {
      configs.policy = {{"name", "fixed"}, {"length", up_to(5) - 1}}, options.batch = up_to(6);
      configs.drafter = drafters[i % 2];
      const auto e = engine();
      for (int k = 0; k < 8; ++k) e->submit(request(Tokens(std::size_t(up_to(40)), up_to(5) - 1), up_to(12)));
      while (!e->idle()) (void)e->step();
    }
    EXPECT_GT(recording->replayed, 200);
    EXPECT_EQ(recording->wrong, 0) << few;
  }
}

// Chains beside trees that branch: the parts of a layout have sizes and bounds of their own.
TEST_F(ReplayedForwards, parts_of_other_sizes_are_another_body) {
  recording->few = 4;
  std::mt19937 engine_of(11);
  const auto up_to = [&](unsigned n) { return 1 + int(engine_of() % n); };
  Alone alone(*backend, models.target, 4, 256);
  SequenceId id = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<Sequence> sequences{std::size_t(1 + up_to(11))};
    const std::size_t chains = std::size_t(up_to(unsigned(sequences.size()) - 1));  // the others branch
    for (Sequence& s : sequences) s.id = ++id, s.tokens = Tokens(std::size_t(up_to(6)), 1);
    for (const bool again : {false, true}) {  // the second time the context is deeper than sequences have rows
      std::vector<DraftTree> trees;
      std::vector<Segment> segments;
      for (std::size_t k = 0; k < sequences.size(); ++k) {
        trees.push_back(DraftTree::rooted(*backend, sequences[k].last(), 3));
        for (int n = up_to(2); k >= chains && n >= 0; --n) trees.back().guess(0, Token(n));
      }
      for (std::size_t k = 0; k < sequences.size(); ++k) {
        segments.push_back({&sequences[k], int(alone.model.unseen(sequences[k]).size()) - 1, &trees[k], 0});
        ASSERT_TRUE(alone.model.reserve(sequences[k], segments[k].chain + trees[k].nodes));
      }
      (void)alone.model.run(segments);
      for (Sequence& s : sequences)
        if (again)
          alone.model.forget(s);
        else
          s.tokens.insert(s.tokens.end(), std::size_t(up_to(2)), 4);
    }
  }
  EXPECT_GT(recording->replayed, 1000);
  EXPECT_EQ(recording->wrong, 0);
}

// One engine whose inputs outgrow their memory between two equal forwards.
TEST_F(ReplayedForwards, inputs_with_a_new_address_are_another_body) {
  configs.drafter = {{"name", "none"}};
  options.pages = 4096, options.step_rows = 4096, options.batch = 64;
  const auto e = engine();
  for (const int requests : {1, 64, 1}) {
    for (int i = 0; i < requests; ++i) e->submit(request(Tokens(40, i % 5), 2));
    while (!e->idle()) (void)e->step();
  }
  EXPECT_EQ(recording->wrong, 0);
}

TEST_F(ReplayedForwards, a_device_that_records_nothing_new_emits_the_same) {
  configs.drafter = {{"name", "none"}};
  options.reuse_prefixes = false;
  const auto e = engine();
  std::set<std::vector<Token>> texts;
  const auto serve = [&](int requests) {
    for (int i = 0; i < requests; ++i) e->submit(request(Tokens(4, 1), 5));
    std::pair<int, int> of;  // recorded, and not
    while (!e->idle()) {
      const StepReport r = e->step();
      of.first += r.recorded, of.second += r.unrecorded;
      for (const Sequence& s : r.finished) texts.insert(s.tokens);
    }
    return of;
  };
  EXPECT_GT(serve(1).first, 0);
  backend->record_new(false);
  EXPECT_EQ(serve(1), std::pair(0, 0)) << "what it knows is replayed";
  const auto [none, unrecorded] = serve(3);
  EXPECT_TRUE(none == 0 && unrecorded > 0) << "sizes of three requests";
  backend->record_new(true);
  EXPECT_EQ(serve(3), std::pair(unrecorded, 0));
  EXPECT_EQ(texts.size(), 1u);
}

TEST_F(ReplayedForwards, a_forward_of_many_rows_is_not_recorded) {
  configs.drafter = {{"name", "none"}};
  options.pages = 4096, options.step_rows = 4096, options.batch = 64, options.reuse_prefixes = false;
  const auto e = engine();
  const auto recorded_by = [&](int requests, int tokens) {
    for (int i = 0; i < requests; ++i) e->submit(request(Tokens(std::size_t(tokens), i % 5), 1));
    const int before = recording->recorded;
    while (!e->idle()) (void)e->step();
    return recording->recorded - before;
  };
  EXPECT_GT(recorded_by(8, 60), 0);
  EXPECT_EQ(recorded_by(9, 60), 0) << "540 rows";
}

TEST_F(ReplayedForwards, logits_are_not_overwritten_while_a_tensor_refers_to_them) {
  Alone alone(*backend, models.target, 4, 16);
  const Output first = alone.after(1, {1, 2, 3});
  const std::vector<float> before(first.logits.data<float>(), first.logits.data<float>() + first.logits.elements());
  const Output second = alone.after(2, {2, 1, 4});
  EXPECT_NE(second.logits.raw(), first.logits.raw());
  EXPECT_EQ(std::vector<float>(first.logits.data<float>(), first.logits.data<float>() + first.logits.elements()),
            before);
  EXPECT_EQ(recording->wrong, 0);
}

TEST_F(ReplayedForwards, pages_of_another_size_at_the_same_address_are_another_body) {
  const void* place = nullptr;
  for (const int page_rows : {4, 3, 4}) {
    Alone alone(*backend, models.target, page_rows, 16);
    if (place == nullptr) place = alone.pool.memory().raw();
    ASSERT_EQ(alone.pool.memory().raw(), place) << "otherwise this tests nothing";
    (void)alone.after(1, {1, 2, 3});
  }
  EXPECT_EQ(recording->recorded, 2);
  EXPECT_EQ(recording->wrong, 0);
}

// Two caches of one pool whose pages have as many bytes but another layout: one keeps states beside keys and values.
TEST_F(ReplayedForwards, views_of_caches_with_another_layout_are_another_body) {
  const std::vector<Tap> taps{kNormed};
  const auto part = std::make_shared<Replayed>(table);
  PagePool pool(*backend, with_taps(table->info(), taps).page_bytes(4), 64);
  CachedModel plain(*backend, models.target, pool, false), tapped(*backend, models.target, pool, false, taps);
  ASSERT_NE(plain.cache().page_rows(), tapped.cache().page_rows()) << "otherwise this tests nothing";
  SequenceId id = 0;
  for (CachedModel* const whole : {&plain, &tapped, &plain, &tapped}) {
    CachedModel view(*backend, part, whole->cache());
    Sequence s;
    s.id = ++id, s.tokens = {1};
    (void)whole->unseen(s), (void)view.unseen(s);
    ASSERT_TRUE(view.reserve(s, 1));
    const DraftTree root = DraftTree::rooted(*backend, s.last(), 0);
    const Segment one{&s, 0, &root, 0};
    (void)view.run({&one, 1});
    view.forget(s), whole->forget(s);
  }
  EXPECT_EQ(recording->recorded, 2);
  EXPECT_EQ(recording->replayed, 2);
  EXPECT_EQ(recording->wrong, 0);
}

}  // namespace
}  // namespace foretoken::test
