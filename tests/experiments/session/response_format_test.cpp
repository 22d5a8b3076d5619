// Response formats: those that were made are shared until they are crowded, and what is no format is refused.
#include "experiments/session/response_format.h"

#include "tests/framework/text/tokenizer_file.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

class ResponseFormats : public TokenizerFile {};

TEST_F(ResponseFormats, EqualOnesAreOne) {
  const auto tokenizer = load(tiny());
  const json letters{{"type", "regex"}, {"pattern", "[ab]*"}};
  const std::vector<Token> ends{260};
  const auto made = constraint_of(letters, tokenizer, ends);
  ASSERT_TRUE(made);
  EXPECT_EQ(constraint_of(letters, tokenizer, ends), made);
  EXPECT_NE(constraint_of(letters, tokenizer, std::vector<Token>{260, 261}), made);
  EXPECT_NE(constraint_of({{"type", "regex"}, {"pattern", "[ac]*"}}, tokenizer, ends), made);
  for (int i = 0; i < 20; ++i) {  // others come and go; the one that is used stays
    constraint_of({{"type", "regex"}, {"pattern", std::string(std::size_t(i + 1), 'x')}}, tokenizer, ends);
    EXPECT_EQ(constraint_of(letters, tokenizer, ends), made);
  }
  EXPECT_EQ(constraint_of(json(), tokenizer, ends), nullptr);
  EXPECT_EQ(constraint_of({{"type", "text"}}, tokenizer, ends), nullptr);
}

TEST_F(ResponseFormats, OnesThatAreFullAreMadeAnew) {
  const auto tokenizer = load(tiny());
  const json hostile{{"type", "regex"}, {"pattern", "(?:a|b)*a(?:a|b){1000}"}};
  const std::vector<Token> ends{260};
  const auto made = constraint_of(hostile, tokenizer, ends);
  Constraint::State s = made->start();
  for (unsigned i = 0; s != Constraint::kBroken && i < 1'000'000; ++i)
    s = made->after(s, i * i % 7 % 2 == 0 ? 'a' : 'b');
  ASSERT_FALSE(made->fault().empty());
  EXPECT_NE(constraint_of(hostile, tokenizer, ends), made);
}

TEST(ResponseFormat, WhatIsNoneIsRefused) {
  for (const auto& [format, part] : std::vector<std::pair<json, std::string>>{
           {"json", "an object with a type"},
           {{{"type", "jsonobject"}}, "did you mean 'json_object'"},
           {{{"type", "json_object"}, {"schema", 1}}, "'schema'"},
           {{{"type", "json_schema"}}, "needs 'json_schema'"},
           {{{"type", "json_schema"}, {"json_schema", {{"name", "x"}}}}, "needs 'schema'"},
           {{{"type", "regex"}, {"pattern", 5}}, "no string"}})
    EXPECT_TRUE(says(sentence_of([&] { expect_response_format(format); }), part)) << format;
  expect_response_format(json());
}

}  // namespace
}  // namespace foretoken::test
