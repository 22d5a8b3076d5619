// How a forward is padded: the layout that a model sees where its device wants round numbers. And by which key a device may replay it.
#include <map>
#include <set>

#include "kernels/reference/reference_backend.h"
#include "tests/framework/engine/engine_scene.h"

namespace foretoken::testing {
namespace {

// Asks for the numbers of rows, tables and wanted rows that a device with few graphs asks for.
class Rounding final : public ReferenceBackend {
 public:
  int padded(int n) const override { return n <= 8 ? n : (n + 15) / 16 * 16; }
};

// The model that it stands for, with a note of every layout.
class Watched final : public Model {
 public:
  struct Seen {
    int rows = 0, sequences = 0, longest = 0, most = 0;  // most: rows of one table
    bool agree = true;                                   // begins and owner; every row has a table
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
    seen_.push_back(s);
    return model_->forward(backend, rows, kv);
  }

 private:
  std::shared_ptr<Model> model_;
  std::vector<Seen>& seen_;
};

struct PaddedForwards : EngineScene {
  std::vector<Watched::Seen> seen;

  void run(int sequences, Text prompt, int guesses) {
    backend = std::make_unique<Rounding>();
    cast.target = std::make_shared<Watched>(cast.target, seen);
    options.batch = sequences, options.step_rows = 256, options.pages = 1024;
    chairs.policy = {{"name", "fixed"}, {"length", guesses}};
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

// Seventeen single rows become 32: no table may then have more than one, or kernels would take decoding for a prompt.
TEST_F(PaddedForwards, single_rows_stay_single) {
  chairs.drafter = {{"name", "none"}};
  run(17, {1}, 0);
  int padded = 0;
  for (const auto& s : seen) {
    EXPECT_EQ(s.longest, 1) << s.rows << " rows of " << s.sequences;
    padded += s.rows == 32;
  }
  EXPECT_GT(padded, 0);
}

// Seventeen chains of four rows are 68 and become 80.
TEST_F(PaddedForwards, padding_is_no_longer_than_a_chain) {
  run(17, {1}, 3);
  int padded = 0;
  for (const auto& s : seen) {
    EXPECT_LE(s.longest, 4) << s.rows << " rows of " << s.sequences;
    padded += s.rows == 80;
  }
  EXPECT_GT(padded, 0);
}

// Seven chains of three rows are 21 and become 32: eleven rows of padding need four tables, where eight tables would be a round number.
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
  chairs.drafter = {{"name", "none"}};
  run(1, Text(19, 1), 0);
  EXPECT_EQ(seen.front().rows, 32);
  EXPECT_EQ(seen.front().sequences, 2);
}

using Numbers = std::vector<std::int64_t>;
std::int64_t address(const Tensor& t) { return std::int64_t(reinterpret_cast<std::uintptr_t>(t.raw())); }

// Notes of every body what it reads and writes outside of itself, by its key. Memory that comes back goes to the next who wants as much, as on a
// device with a pool of its own: the smallest block that is large enough, of those the first.
class Recording final : public ReferenceBackend {
 public:
  Tensor allocate(Shape shape, DType dtype) override {
    const std::int64_t bytes = std::max<std::int64_t>(shape.elements() * size_of(dtype), 1);
    auto found = free_->lower_bound({bytes, nullptr});
    if (found == free_->end() || found->first.first > 2 * bytes) found = free_->emplace(std::pair<std::int64_t, void*>(bytes, nullptr), Tensor::host({bytes}, DType::u8)).first;
    const auto [block, memory] = *found;
    free_->erase(found);
    sizes.insert(block.first);
    const auto back = [free = free_, memory = memory, size = block.first](void* at) { free->emplace(std::pair(size, at), memory); };
    return Tensor(std::shared_ptr<void>(memory.raw(), back), memory.raw(), shape, dtype, {});
  }
  Mirror mirror(std::int64_t bytes) override {
    const Tensor memory = allocate({bytes}, DType::u8);
    return {memory, memory};
  }
  void pick(const Tensor& known, const Tensor& at, Tensor to) override {
    note({address(known), address(at)});
    ReferenceBackend::pick(known, at, to);
  }
  void replay(std::span<const std::int64_t> key, const std::function<void()>& body, const Tensor&) override {
    Numbers seen;
    body_ = &seen;
    body();
    body_ = nullptr;
    const auto [known, fresh] = bodies.emplace(Numbers(key.begin(), key.end()), seen);
    recorded += fresh, replayed += !fresh, wrong += known->second != seen;
  }
  std::uint64_t recordings() const override { return std::uint64_t(recorded); }
  void note(const Numbers& numbers) {
    if (body_) body_->insert(body_->end(), numbers.begin(), numbers.end());
  }

  int recorded = 0, replayed = 0, wrong = 0;  // wrong: another body has the key
  std::map<Numbers, Numbers> bodies;
  std::set<std::int64_t> sizes;  // bytes of its blocks

 private:
  using Blocks = std::map<std::pair<std::int64_t, void*>, Tensor>;  // by size and address
  std::shared_ptr<Blocks> free_ = std::make_shared<Blocks>();       // models give memory back when this is gone
  Numbers* body_ = nullptr;
};

// The model that it stands for, as one whose forwards are bodies.
class Replayed final : public Model {
 public:
  explicit Replayed(std::shared_ptr<Model> model) : model_(std::move(model)) {}
  const ModelInfo& info() const override { return model_->info(); }
  bool replays() const override { return true; }
  Output forward(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) override {
    Recording& b = dynamic_cast<Recording&>(backend);
    const Layout& l = rows.layout;
    b.note({std::int64_t(reinterpret_cast<std::uintptr_t>(this)), l.rows, l.sequences, l.words, l.table_width, l.deepest, l.longest, rows.all_wanted});
    for (const Tensor* t : {&l.positions, &l.slots, &l.owner, &l.visible, &l.first, &l.ancestors, &l.tables, &l.begins, &rows.wanted, &rows.logits})
      b.note({address(*t), *t ? t->elements() : 0});
    for (const KvLayer& layer : kv) b.note({address(layer.pool), layer.pool.dim(0), layer.pool.row_stride(), layer.keys, layer.values, layer.page_rows});
    const Output out = model_->forward(backend, rows, kv);
    if (rows.logits) backend.copy(out.logits, rows.logits);
    return out;
  }

 private:
  std::shared_ptr<Model> model_;
};

struct ReplayedForwards : EngineScene {
  Recording* recording = nullptr;
  std::shared_ptr<Model> table = cast.target;

  ReplayedForwards() {
    auto made = std::make_unique<Recording>();
    recording = made.get(), backend = std::move(made);
    cast.target = std::make_shared<Replayed>(table);
  }
  // An engine that comes and goes; how many forwards its steps say that were recorded.
  int serve() {
    int recorded = 0;
    const auto e = engine();
    for (const Text& prompt : {Text{1}, Text{2, 3, 1}, Text(9, 2)}) e->submit(request(prompt, 12));
    while (!e->idle()) recorded += e->step().recorded;
    return recorded;
  }
};

TEST_F(ReplayedForwards, an_engine_goes_on_with_what_another_recorded) {
  EXPECT_GT(serve(), 0);
  EXPECT_EQ(serve(), 0);
  EXPECT_GT(recording->replayed, 0);
  EXPECT_EQ(recording->wrong, 0);
}

// Between two engines somebody else takes memory of every size but the pages': inputs and logits lie where they were all the same.
TEST_F(ReplayedForwards, an_engine_goes_on_whatever_memory_others_took) {
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

// Another model, other pages, another number of them: whatever lies at the same address, keys that are equal are of equal bodies.
TEST_F(ReplayedForwards, a_key_says_all_that_a_body_depends_on) {
  serve();
  cast.target = std::make_shared<Replayed>(table);
  EXPECT_GT(serve(), 0);
  for (const auto& [rows, pages] : {std::pair{2, 64}, {4, 32}, {2, 32}, {2, 63}}) {
    options.page_rows = rows, options.pages = pages;
    serve(), serve();
  }
  options.step_rows = 8, options.batch = 2;
  serve();
  // One memory after another is somebody else's, while all others are where they were.
  for (const std::int64_t bytes : std::set(recording->sizes)) {
    const Tensor held = recording->allocate({bytes}, DType::u8);
    serve();
  }
  EXPECT_EQ(recording->wrong, 0);
}

}  // namespace
}  // namespace foretoken::testing
