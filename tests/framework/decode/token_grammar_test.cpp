// Grammars as constraints: masks of tokens against the definition of a constraint, on outputs that are drawn from them.
#include "framework/decode/token_grammar.h"

#include <random>

#include "framework/text/grammar/regex_grammar.h"
#include "tests/framework/text/tokenizer_file.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

bool matches(const std::string& pattern, const std::string& text) {
  Grammar g;
  Automaton a(g.network(regex_part(g, pattern)));
  Automaton::State s = a.start();
  for (const char c : text)
    if ((s = a.next(s, std::uint8_t(c))) == Automaton::kDead) return false;
  return a.accepts(s);
}

class TokensOfGrammars : public TokenizerFile {};

// After every token of an output that was drawn among the allowed ones, as masks and steps have it.
TEST_F(TokensOfGrammars, MasksHaveTheTokensThatKeepTheRule) {
  const auto tokenizer = load(tiny());
  const auto bytes = std::make_shared<const TokenBytes>(*tokenizer);
  const Token end = 260;
  std::mt19937 draw(5);
  for (const std::string pattern : {"(abc|aab)*c", "a{3}b?", "é+"}) {
    Grammar g;
    const TokenGrammar rule(bytes, g.network(regex_part(g, pattern)), {end});
    for (int run = 0; run < 20; ++run) {
      std::vector<Token> output;
      Constraint::State s = rule.start();
      for (int k = 0; k < 12; ++k) {
        std::vector<std::uint32_t> mask(std::size_t(tokenizer->vocab() + 31) / 32 + 1, 0xffffffff);
        const bool any = rule.allowed(s, mask);
        std::vector<Token> may;
        for (Token t = 0; t < tokenizer->vocab(); ++t) {
          const bool allowed = (mask[std::size_t(t) / 32] >> (t % 32) & 1) != 0;
          EXPECT_EQ(allowed, rule.after(s, t) != Constraint::kBroken) << pattern << " token " << t;
          if (allowed) may.push_back(t);
        }
        EXPECT_EQ(mask.back(), 0u);
        EXPECT_EQ(any, !may.empty());
        EXPECT_EQ(any, rule.allowed(s, {}));
        ASSERT_TRUE(any);
        output.push_back(may[draw() % may.size()]);
        s = rule.after(s, output.back());
        if (output.back() == end) break;
      }
      if (output.back() != end) continue;
      output.pop_back();
      EXPECT_TRUE(matches(pattern, tokenizer->decode_inside(output)));
      EXPECT_FALSE(rule.allowed(s, {})) << "nothing follows the end";
      EXPECT_EQ(rule.after(s, 97), Constraint::kBroken);
    }
  }
}

// A file may have a token that ends outputs and is no special one: its bytes are no text.
TEST_F(TokensOfGrammars, TheBytesOfAnEndAreNoText) {
  const auto tokenizer = load(tiny());
  Grammar g;
  const Token end = 261;  // <x>
  const TokenGrammar rule(std::make_shared<const TokenBytes>(*tokenizer), g.network(regex_part(g, ".*<x>.*")), {end});
  std::vector<std::uint32_t> mask(std::size_t(tokenizer->vocab() + 31) / 32);
  EXPECT_TRUE(rule.allowed(rule.start(), mask));
  EXPECT_EQ(mask[end / 32] >> (end % 32) & 1, 0u);
  EXPECT_EQ(rule.after(rule.start(), end), Constraint::kBroken);
}

// States by the last thousand letters: there is no room for all. What was read before stays as it was.
TEST_F(TokensOfGrammars, WhereThereIsNoRoomNothingIsAllowedAndTheReasonIsTold) {
  const auto tokenizer = load(tiny());
  Grammar g;
  const TokenGrammar rule(std::make_shared<const TokenBytes>(*tokenizer),
                          g.network(regex_part(g, "(?:a|b)*a(?:a|b){1000}")), {260});
  std::vector<std::uint32_t> mask(std::size_t(tokenizer->vocab() + 31) / 32);
  ASSERT_TRUE(rule.allowed(rule.start(), mask));
  const std::vector<std::uint32_t> first = mask;
  std::mt19937 draw(1);
  Constraint::State s = rule.start();
  for (int i = 0; s != Constraint::kBroken && rule.allowed(s, {}) && i < 1'000'000; ++i)
    s = rule.after(s, draw() % 2 == 0 ? 'a' : 'b');
  EXPECT_TRUE(says(rule.fault(), "more than 100000 states"));
  EXPECT_TRUE(rule.crowded());
  EXPECT_TRUE(rule.allowed(rule.start(), mask));
  EXPECT_EQ(mask, first);
}

TEST_F(TokensOfGrammars, AnOutputThatCannotEndIsRefused) {
  const auto bytes = std::make_shared<const TokenBytes>(*load(tiny()));
  Grammar g;
  const Network network = g.network(regex_part(g, "a*"));
  EXPECT_TRUE(says(sentence_of([&] { TokenGrammar(bytes, network, {}); }), "needs a token that ends the output"));
}

}  // namespace
}  // namespace foretoken::test
