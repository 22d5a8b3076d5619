// Windows predict every token once, from as many tokens before it as they promise.
#include <filesystem>
#include <numeric>

#include <gtest/gtest.h>

#include "experiments/quality/predictions.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

Document document(int tokens, int opening) {
  Document d{std::vector<Token>(std::size_t(tokens)), opening};
  std::iota(d.tokens.begin(), d.tokens.end(), 100);
  return d;
}

// Token by token how often it is predicted, and the fewest tokens before it in its window.
struct Coverage {
  std::vector<int> times, before;
};

Coverage coverage(const Document& d, const std::vector<Window>& windows, int number) {
  Coverage c{std::vector<int>(d.tokens.size()), std::vector<int>(d.tokens.size(), 1 << 20)};
  for (const Window& w : windows) {
    if (w.document != number) continue;
    for (int t = w.first; t < w.end; ++t) {
      ++c.times[std::size_t(t)];
      c.before[std::size_t(t)] = std::min(c.before[std::size_t(t)], d.opening + t - w.begin);
    }
  }
  return c;
}

TEST(Windows, PredictEveryTokenOnce) {
  for (const int opening : {0, 1, 2})
    for (int tokens = opening + 2; tokens < 60; ++tokens)
      for (const int window : {8, 13, 64})
        for (const int stride : {1, 3, window - opening - 1}) {
          const std::vector<Document> documents = {document(5, opening), document(tokens, opening)};
          const std::vector<Window> all = windows_of(documents, {window, stride, 0});
          const Coverage c = coverage(documents[1], all, 1);
          const int first = std::max(opening, 1);  // nothing is before the first token
          for (int t = 0; t < tokens; ++t) EXPECT_EQ(c.times[std::size_t(t)], t >= first) << t << " of " << tokens;
          for (int t = first; t < tokens; ++t) {
            const int least = t < window ? std::min(t, 1) : window - stride - opening;
            EXPECT_GE(c.before[std::size_t(t)], least) << t << " of " << tokens;
          }
          for (const Window& w : all) {
            const std::vector<Token> given = w.tokens(documents);
            EXPECT_LE(int(given.size()), window);
            EXPECT_EQ(int(given.size()), opening + w.end - w.begin);
            EXPECT_EQ(given.back(), documents[std::size_t(w.document)].tokens[std::size_t(w.end - 1)]);
            if (opening > 0) {
              EXPECT_EQ(given.front(), 100);
            }
          }
        }
}

TEST(Windows, BeginEveryStride) {
  const std::vector<Document> documents = {document(100, 1)};
  const std::vector<Window> all = windows_of(documents, {33, 10, 0});
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].begin, 1 + 10 * int(i));
  EXPECT_EQ(all[0].end, 33);
  EXPECT_EQ(all[1].first, 33);
  EXPECT_EQ(all.back().end, 100);
}

TEST(Windows, StopAfterTheTokensThatAreWanted) {
  const std::vector<Document> documents = {document(10, 0), document(100, 0), document(10, 0)};
  for (const long wanted : {1L, 8L, 9L, 10L, 50L, 108L, 109L, 1000L}) {
    long predicted = 0;
    for (const Window& w : windows_of(documents, {16, 8, wanted})) predicted += w.predictions();
    EXPECT_EQ(predicted, std::min(wanted, 9L + 99 + 9));
  }
}

// A tokenizer that begins every text with <s>, which is given before every window and never predicted.
TEST(Windows, KnowTheBeginningThatATokenizerAdds) {
  const auto tokenizer =
      Tokenizer::load(std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests" / "data" / "tokenizers" / "llama2");
  const std::string text = "The quick brown fox jumps over the lazy dog, and over the next one too.";
  const std::vector<Document> documents = {document_of(*tokenizer, text)};
  const Document& d = documents.front();
  const std::vector<Token> body = tokenizer->encode(text, false);
  ASSERT_EQ(d.tokens.size(), body.size() + 1);
  EXPECT_EQ(d.opening, 1);
  EXPECT_TRUE(std::equal(body.begin(), body.end(), d.tokens.begin() + 1));
  long predicted = 0;
  for (const Window& w : windows_of(documents, {6, 3, 0})) {
    EXPECT_EQ(w.tokens(documents).front(), d.tokens.front());
    EXPECT_GE(w.first, 1);
    predicted += w.predictions();
  }
  EXPECT_EQ(predicted, long(body.size()));
}

TEST(Windows, RefuseWhatCannotPredict) {
  const std::vector<Document> one = {document(1, 0)}, opening = {document(1, 1)}, none, enough = {document(50, 1)};
  EXPECT_THROW((void)windows_of(one, {8, 4, 0}), Error);
  EXPECT_THROW((void)windows_of(opening, {8, 4, 0}), Error);
  EXPECT_THROW((void)windows_of(none, {8, 4, 0}), Error);
  EXPECT_THROW((void)windows_of(enough, {8, 7, 0}), Error);
  EXPECT_THROW((void)windows_of(enough, {8, 0, 0}), Error);
  EXPECT_NO_THROW((void)windows_of(enough, {8, 6, 0}));
}

}  // namespace
}  // namespace foretoken
