// Tokens that a view reads again, in pages of its own, and how much attention they give to each page.
#include <gtest/gtest.h>

#include "framework/cache/cached_model.h"
#include "kernels/reference/reference_backend.h"
#include "tests/support/sentence.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

constexpr int kPageRows = 4;

TEST(Mass, OfTokensThatAreReadAgainInPagesOfTheView) {
  ReferenceBackend backend;
  const std::shared_ptr<Model> model = tiny_model(backend, "llama2");
  PagePool pool(backend, model->info().kv.page_bytes(kPageRows), 16);
  CachedModel target(backend, model, pool, false), view(backend, part_of(model, {}), target.cache());
  Sequence s;
  s.id = 1, s.prompt_length = 15;
  for (int i = 0; i < 15; ++i) s.tokens.push_back(Token(i * 7 % 90 + 1));
  (void)target.unseen(s);
  ASSERT_TRUE(target.reserve(s, 15));
  const Segment prompt{&s, 14};
  (void)target.run({&prompt, 1});
  (void)target.unseen(s);
  EXPECT_EQ(view.cache().settle_before(s, 11), 8) << "whole pages";
  ASSERT_TRUE(view.reserve(s, 5));
  const Segment again{&s, 5};  // tokens 8 to 12
  const Tensor mass = view.mass({&again, 1});
  EXPECT_EQ(mass.dim(0), 1);
  double sum = 0;
  for (int page = 0; page < 4; ++page) {
    EXPECT_GT(mass.data<float>()[page], 0) << page;
    sum += double(mass.data<float>()[page]);
  }
  const double heads = 4, layers = 2;
  EXPECT_NEAR(sum, 5 * heads * layers, 1e-4) << "each row and head of each layer has a mass of 1";
  EXPECT_EQ(view.unseen(s).size(), 1u);
  EXPECT_EQ(pool.in_use(), 4);
  const std::string said = sentence_of([&] { (void)target.cache().settle_before(s, 4); });
  EXPECT_TRUE(says(said, "no view of all pages"));
}

}  // namespace
}  // namespace foretoken::test
