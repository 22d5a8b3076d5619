// Pages: references, idle pages and the order of their eviction; and the index of prefixes by content.
#include "framework/cache/page_pool.h"

#include <gtest/gtest.h>

#include "framework/cache/prefix_index.h"
#include "kernels/error.h"

namespace foretoken::test {
namespace {

struct PagePoolTest : ::testing::Test {
  std::unique_ptr<Backend> backend = make_reference_backend();
  PagePool pool{*backend, 64, 3};
};

TEST_F(PagePoolTest, hands_out_every_page_once_and_then_none) {
  std::vector<bool> seen(3);
  for (int i = 0; i < 3; ++i) {
    const auto page = pool.take();
    ASSERT_TRUE(page);
    EXPECT_FALSE(seen[std::size_t(*page)]);
    seen[std::size_t(*page)] = true;
  }
  EXPECT_FALSE(pool.take());
  EXPECT_EQ(pool.available(), 0);
}

TEST_F(PagePoolTest, a_shared_page_stays_until_its_last_reference_goes) {
  const PageId page = *pool.take();
  pool.share(page);
  pool.drop(page);
  EXPECT_EQ(pool.in_use(), 1);
  pool.drop(page);
  EXPECT_EQ(pool.in_use(), 0);
}

TEST_F(PagePoolTest, idle_pages_go_least_recently_used_first_and_free_ones_before_them) {
  std::vector<PageId> evicted, pages{*pool.take(), *pool.take(), *pool.take()};
  const auto note = [&](PageId p) { evicted.push_back(p); };
  pool.keep(pages[0], note);
  pool.keep(pages[1], note);
  pool.drop(pages[1]);
  pool.drop(pages[0]);
  pool.drop(pages[2]);
  EXPECT_EQ(pool.available(), 3);
  EXPECT_EQ(*pool.take(), pages[2]) << "the page that is not kept";
  EXPECT_TRUE(evicted.empty());
  EXPECT_EQ(*pool.take(), pages[1]);
  EXPECT_EQ(*pool.take(), pages[0]);
  EXPECT_EQ(evicted, (std::vector<PageId>{pages[1], pages[0]}));
}

TEST_F(PagePoolTest, an_idle_page_that_is_shared_again_is_not_evicted) {
  bool evicted = false;
  const PageId page = *pool.take();
  pool.keep(page, [&](PageId) { evicted = true; });
  pool.drop(page);
  pool.share(page);
  EXPECT_TRUE(pool.take() && pool.take());
  EXPECT_FALSE(pool.take());
  EXPECT_FALSE(evicted);
}

TEST_F(PagePoolTest, a_discarded_page_is_free_without_a_call) {
  const PageId page = *pool.take();
  pool.keep(page, [](PageId) { FAIL() << "a discarded page must not be evicted"; });
  pool.drop(page);
  pool.discard(page);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.take());
}

TEST_F(PagePoolTest, an_empty_pool_is_refused) { EXPECT_THROW(PagePool(*backend, 64, 0), Error); }

TEST(PrefixIndexTest, finds_equal_content_after_equal_content_only) {
  PrefixIndex index;
  const std::vector<Token> a{1, 2}, b{3, 4};
  const auto first = index.insert(PrefixIndex::kStart, a, 7);
  index.insert(first, b, 8);
  EXPECT_EQ(index.find(PrefixIndex::kStart, a)->page, 7);
  EXPECT_EQ(index.find(first, b)->page, 8);
  EXPECT_FALSE(index.find(PrefixIndex::kStart, b)) << "the same tokens at another position";
  EXPECT_FALSE(index.find(first, a));
  index.erase(7);
  EXPECT_FALSE(index.find(PrefixIndex::kStart, a));
  const auto again = index.insert(PrefixIndex::kStart, a, 9);
  EXPECT_FALSE(index.find(again, b)) << "content after an evicted page is not found after a new page of equal content";
}

}  // namespace
}  // namespace foretoken::test
