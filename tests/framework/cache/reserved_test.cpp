// Rows that are fed without pages of their own are an Error that says in which order a cache is asked.
#include <gtest/gtest.h>

#include "experiments/conformance/table_model.h"
#include "framework/cache/cached_model.h"
#include "kernels/reference/reference_backend.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using test::says;
using test::sentence_of;

struct Reserved : ::testing::Test {
  ReferenceBackend backend;
  std::shared_ptr<Model> model =
      std::make_shared<conformance::TableModel>(conformance::TableModel::Options{.vocab = 5});
  PagePool pool{backend, model->info().kv.page_bytes(2), 32};
  CachedModel cached{backend, model, pool};
  Sequence sequence;

  Reserved() { sequence.id = 7, sequence.tokens = {1, 2, 3, 4, 1}, sequence.prompt_length = 5; }
  void run(int rows) {
    const Segment chain{&sequence, rows, nullptr, 0};
    (void)cached.run({&chain, 1});
  }
};

TEST_F(Reserved, InOrderARowIsFed) {
  EXPECT_EQ(cached.unseen(sequence).size(), 5u);
  EXPECT_TRUE(cached.reserve(sequence, 4));
  EXPECT_EQ(sentence_of([&] { run(4); }), "");
  EXPECT_EQ(cached.unseen(sequence).size(), 1u);
}

TEST_F(Reserved, UnseenAfterReserveGivesThePagesBack) {
  (void)cached.unseen(sequence);
  EXPECT_TRUE(cached.reserve(sequence, 4));
  (void)cached.unseen(sequence);
  EXPECT_TRUE(says(sentence_of([&] { run(4); }), "sequence 7 would have 4 rows in the cache of the model ",
                   "which has pages for 0", "call CachedModel::unseen, then reserve, then run"));
  EXPECT_EQ(cached.unseen(sequence).size(), 5u) << "nothing was fed";
  EXPECT_TRUE(cached.reserve(sequence, 4));
  EXPECT_EQ(sentence_of([&] { run(4); }), "");
}

TEST_F(Reserved, MoreRowsThanWereReserved) {
  (void)cached.unseen(sequence);
  EXPECT_TRUE(cached.reserve(sequence, 2));
  EXPECT_TRUE(says(sentence_of([&] { run(3); }), "would have 3 rows", "which has pages for 2"));
}

TEST_F(Reserved, OfASequenceThatTheCacheDoesNotKnow) {
  EXPECT_TRUE(says(sentence_of([&] { (void)cached.reserve(sequence, 2); }), "reserved for sequence 7",
                   "call CachedModel::unseen first"));
  EXPECT_TRUE(says(sentence_of([&] { run(2); }), "sequence 7 would have 2 rows", "call CachedModel::unseen"));
}

}  // namespace
}  // namespace foretoken::test
