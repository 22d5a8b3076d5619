// Every kernel that reads a layout waits for the push of that layout, also without an embed() in between. The pushes of
// this backend complete long after the next kernel may start.
#include <gtest/gtest.h>

#include "kernels/staging.h"
#include "tests/kernels/cuda/gpu.h"

namespace foretoken::test {
namespace {

constexpr int kSteps = 6;

enum class First { rope_attend, rope_store, rope, store, attend, move };

struct Steps {
  First first = First::rope_attend;
  int sequences = 1, rows = 1, head_size = 128;
  bool replayed = false;
  DType cache = DType::bf16;
};

// The arrays of a layout in one push.
Layout pushed(Staging& staging, Layout l) {
  staging.begin(1 << 16);
  for (Tensor* t : columns_of(l)) {
    if (!*t) continue;
    const Staging::Array a = staging.array(t->shape(), t->dtype());
    std::memcpy(a.host.raw(), t->raw(), std::size_t(t->bytes()));
    *t = a.device;
  }
  staging.push();
  return l;
}

// Consecutive steps, each of which begins with the operation `s.first` after the push of its layout.
class Run {
 public:
  Run(Backend& backend, const Steps& s, bool pushes)
      : b_(backend),
        s_(s),
        pushes_(pushes),
        staging_(backend),
        cache_(s.sequences, 400, 16, 2, s.head_size, s.cache, 5) {
    fill(*make_cpu_backend(2), cache_, 400, 5);
    kv_ = on_gpu(cache_.layers[0], b_);
    frequencies_ = b_.upload(random_tensor({s.head_size / 2}, 3));
    const std::int64_t rows = std::int64_t(s.sequences) * s.rows;
    x_ = b_.allocate({rows, 12 * s.head_size}, DType::bf16), start_ = b_.upload(rounded(random_tensor(x_.shape(), 8)));
    y_ = b_.allocate({kSteps, rows, 8 * s.head_size}, DType::bf16);
    out_ = b_.allocate({rows, 8 * s.head_size}, DType::bf16);
  }

  std::vector<std::string> results() {
    for (int i = 0; i < kSteps; ++i) step(i);
    b_.synchronize();
    return {bytes(y_), bytes(kv_.pool), bytes(x_)};
  }

 private:
  std::string bytes(const Tensor& t) {
    const Tensor host = Tensor::host(t.shape(), t.dtype());
    b_.copy(t, host);
    return {host.data<char>(), std::size_t(host.bytes())};
  }
  void step(int i) {
    std::vector<ScenarioRow> rows;
    for (int s = 0; s < s_.sequences; ++s)
      for (int r = 0; r < s_.rows; ++r) rows.push_back(chain_row(s, 20 + 40 * i + s % 5 + r));
    Layout host = layout_of(rows, cache_.tables, 0);
    host.deepest = 400;
    b_.copy(start_, x_);
    const Layout layout = pushes_ ? pushed(staging_, host) : on_gpu(host, b_);
    if (s_.first == First::move) move(i);
    const Tensor y = y_.rows(i, 1).reshaped(out_.shape());
    const auto body = [&] { b_.copy(operation(layout), out_); };
    if (s_.replayed)
      b_.replay(std::array{std::int64_t(1)}, body);
    else
      body();
    b_.copy(out_, y);
  }
  // Slots that the rows of the step attend to, in every sequence.
  void move(int i) {
    std::vector<std::vector<Moves::Row>> rows;
    for (int s = 0; s < s_.sequences; ++s)
      rows.push_back(
          moved_rows(cache_, s, {40 * i + 9, 40 * i + 12, 40 * i + 19}, {40 * i + 3, 40 * i + 4, 40 * i + 5}));
    std::vector<Moves> moves;
    for (const auto& of_sequence : rows) moves.push_back({{&kv_, 1}, of_sequence});
    b_.move(moves);
  }
  Tensor operation(const Layout& layout) {
    const int n = s_.head_size;
    const Tensor q = x_.columns(0, 8 * n), k = x_.columns(8 * n, 2 * n), v = x_.columns(10 * n, 2 * n);
    switch (s_.first) {
      case First::rope_attend:
      case First::move:
        return b_.rope_attend(q, k, v, kv_, layout, frequencies_, 0.1f);
      case First::rope_store:
        b_.rope_store(q, k, v, kv_, layout, frequencies_);
        return b_.attend(q, kv_, layout, 0.1f);
      case First::rope:
        b_.rope(q, k, layout, frequencies_, n);
        return b_.attend(q, kv_, layout, 0.1f);
      case First::store:
        b_.store(k, v, kv_, layout);
        return b_.attend(q, kv_, layout, 0.1f);
      case First::attend:
        return b_.attend(q, kv_, layout, 0.1f);
    }
    return {};
  }

  Backend& b_;
  Steps s_;
  bool pushes_;
  Staging staging_;
  Cache cache_;
  KvLayer kv_;
  Tensor frequencies_, x_, start_, y_, out_;
};

void expect_same(const Steps& s) {
  SCOPED_TRACE(::testing::Message() << "operation " << int(s.first) << ", " << s.sequences << " sequences, " << s.rows
                                    << " rows, heads of " << s.head_size << ", " << name_of(s.cache)
                                    << (s.replayed ? ", replayed" : ""));
  const auto slow = make_gpu({.slow_pushes = true});
  Steps plain = s;
  plain.replayed = false;
  const std::vector<std::string> found = Run(*slow, s, true).results(), truth = Run(gpu(), plain, false).results();
  for (std::size_t i = 0; i < truth.size(); ++i)
    EXPECT_TRUE(found[i] == truth[i]) << (i == 0 ? "results" : i == 1 ? "pages" : "queries and keys");
}

TEST(Order, what_reads_a_layout_right_behind_its_push_waits_for_it) {
  for (const First first : {First::rope_attend, First::rope_store, First::rope, First::store, First::attend})
    for (const int head_size : {64, 128}) {
      expect_same({.first = first, .head_size = head_size});                              // decode; tiles and a fold
      expect_same({.first = first, .rows = 8, .head_size = head_size});                   // decode, two tiles
      expect_same({.first = first, .sequences = 70, .head_size = head_size});             // stream; tiles
      expect_same({.first = first, .sequences = 3, .rows = 40, .head_size = head_size});  // prompts
    }
  expect_same({.first = First::rope_store, .head_size = 80});
}

// The stream and a fold, tiles, the stream of one block each.
TEST(Order, what_reads_a_layout_and_a_cache_of_codes_right_behind_its_push_waits_for_it) {
  for (const First first : {First::rope_attend, First::rope_store, First::store, First::attend})
    for (const int head_size : {64, 128}) {
      for (const int rows : {1, 8, 40})
        expect_same({.first = first, .rows = rows, .head_size = head_size, .cache = DType::e4m3});
      expect_same({.first = first, .sequences = 70, .head_size = head_size, .cache = DType::e4m3});
    }
}

// The moves are a push of their own, behind that of the layout.
TEST(Order, a_move_waits_for_its_push_and_attention_for_the_move) {
  for (const DType cache : {DType::bf16, DType::e4m3})
    for (const int head_size : {64, 128})
      for (const auto& [sequences, rows] : {std::pair{1, 1}, {1, 8}, {3, 40}, {70, 1}})
        expect_same(
            {.first = First::move, .sequences = sequences, .rows = rows, .head_size = head_size, .cache = cache});
}

TEST(Order, a_replayed_body_that_begins_with_attention_reads_what_was_pushed) {
  for (const First first : {First::rope_attend, First::attend}) {
    expect_same({.first = first, .replayed = true});
    expect_same({.first = first, .sequences = 70, .head_size = 64, .replayed = true});
  }
}

}  // namespace
}  // namespace foretoken::test
