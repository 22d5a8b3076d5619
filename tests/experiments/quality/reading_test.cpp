// Readings on a thinned cache: which tokens decide their logits.
#include "experiments/quality/predictions.h"
#include "framework/cache/page_choices.h"
#include "tests/kernels/scenario.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

constexpr int kTokens = 240;

std::vector<Token> tokens_with(int changed = -1) {
  std::vector<Token> all;
  for (int i = 0; i < kTokens; ++i) all.push_back(3 + i * i % 89);
  if (changed >= 0) all[std::size_t(changed)] = 95;
  return all;
}

// Logits behind every token, `at_once` of them a call.
Tensor logits_of(Backend& backend, PageChoice chosen, const std::vector<Token>& tokens, int at_once) {
  Reading reading(backend, tiny_model(backend, "llama2"), kTokens, std::move(chosen));
  const Tensor all = Tensor::host({kTokens, reading.info().vocab}, DType::f32);
  reading.begin(tokens_with(7));  // another window before it leaves nothing
  (void)reading.logits(0, 100);
  reading.begin(tokens);
  for (int at = 0; at < kTokens; at += at_once) {
    const Tensor some = reading.logits(at, std::min(at_once, kTokens - at));
    std::ranges::copy(some.values<float>(), all.row<float>(at));
  }
  return all;
}

// Rows from which on both are equal.
int equal_from(const Tensor& a, const Tensor& b) {
  int row = kTokens;
  while (row > 0 && same_row(a, row - 1, b, row - 1)) --row;
  return row;
}

class ThinnedReading : public ::testing::Test {
 protected:
  std::unique_ptr<HostBackend> backend_ = cpu_backend(2);
  Tensor logits(PageChoice chosen, int changed = -1, int at_once = 50) {
    return logits_of(*backend_, std::move(chosen), tokens_with(changed), at_once);
  }
};

TEST_F(ThinnedReading, OfAllPagesIsThatOfTheWholeCache) {
  const Tensor whole = logits({});
  EXPECT_EQ(equal_from(logits(sinks_and_window(0, kTokens)), whole), 0);
  EXPECT_EQ(equal_from(logits(sinks_and_window(kTokens, 1)), whole), 0);
  EXPECT_EQ(equal_from(logits(sinks_and_window(4, 32), -1, 7), logits(sinks_and_window(4, 32), -1, 240)), 0);
  EXPECT_GT(equal_from(logits(sinks_and_window(4, 32)), whole), 200) << "a window leaves tokens out";
}

// A token is seen by those of the same page and of at most the two after the next, in each of two layers: what it wrote
// is out of reach behind that, also by way of other tokens, as if the cache never had it.
TEST_F(ThinnedReading, ForgetsWhatNoPageHolds) {
  const int from = equal_from(logits(sinks_and_window(0, 16)), logits(sinks_and_window(0, 16), 20));
  EXPECT_GT(from, 60);
  EXPECT_LE(from, 20 + 2 * 48);
  EXPECT_GT(equal_from(logits({}), logits({}, 20)), 200) << "the whole cache remembers it";
}

TEST_F(ThinnedReading, KeepsTheFirstTokens) {
  EXPECT_LE(equal_from(logits(sinks_and_window(0, 16)), logits(sinks_and_window(0, 16), 2)), 2 + 2 * 48);
  EXPECT_GT(equal_from(logits(sinks_and_window(4, 16)), logits(sinks_and_window(4, 16), 2)), 200);
}

}  // namespace
}  // namespace foretoken::test
