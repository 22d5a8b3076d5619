// Structured output over a socket: every output has the form that its request asks for, streamed or not, drawn or
// greedy; forms that cannot be computed are refused in a sentence.
#include <regex>

#include "tests/experiments/serve/served.h"

namespace foretoken::test {
namespace {

struct Formed : ::testing::Test {
  static RunningServer& server() {
    static RunningServer one;
    return one;
  }
  static Answered asking(const json& format, const json& more = {}) {
    json body{{"model", "target"}, {"prompt", "Once upon a time"}, {"max_tokens", 120}, {"response_format", format}};
    if (!more.is_null()) body.update(more);
    return server().complete(body);
  }
};

TEST_F(Formed, regular_expressions_hold) {
  const std::string pattern = "[a-z]{3,8}( [a-z]{1,6}){2}: [0-9]{2,4}";
  for (const double temperature : {0.0, 1.0}) {
    const Answered a = asking(
        {{"type", "regex"}, {"pattern", pattern}},
        {{"temperature", temperature}, {"n", temperature > 0 ? 8 : 1}, {"seed", 3}, {"report_speculation", true}});
    ASSERT_EQ(a.status, 200) << a.body;
    for (const json& choice : a.document()["choices"]) {
      EXPECT_TRUE(std::regex_match(choice["text"].get<std::string>(), std::regex(pattern))) << choice["text"];
      EXPECT_EQ(choice["finish_reason"], "stop");
    }
    EXPECT_GT(a.document()["usage"]["speculation"]["drafted_tokens"], 0);
    const Answered streamed = asking({{"type", "regex"}, {"pattern", pattern}},
                                     {{"temperature", temperature}, {"seed", 3}, {"stream", true}});
    EXPECT_EQ(streamed.streamed_text(), a.document()["choices"][0]["text"]);
  }
}

TEST_F(Formed, schemas_hold) {
  const json schema{{"type", "object"},
                    {"properties",
                     {{"name", {{"type", "string"}, {"pattern", "^[A-Z][a-z]{1,6}$"}}},
                      {"age", {{"type", "integer"}, {"minimum", 1}, {"maximum", 99}}},
                      {"tags", {{"type", "array"}, {"items", {{"enum", {"red", "blue"}}}}, {"maxItems", 3}}}}},
                    {"required", {"name", "age", "tags"}},
                    {"additionalProperties", false}};
  const Answered a =
      asking({{"type", "json_schema"}, {"json_schema", {{"name", "one"}, {"schema", schema}, {"strict", true}}}},
             {{"temperature", 1}, {"n", 8}, {"seed", 5}});
  ASSERT_EQ(a.status, 200) << a.body;
  for (const json& choice : a.document()["choices"]) {
    ASSERT_EQ(choice["finish_reason"], "stop") << choice["text"];
    const json made = json::parse(choice["text"].get<std::string>());
    EXPECT_TRUE(std::regex_match(made["name"].get<std::string>(), std::regex("[A-Z][a-z]{1,6}")));
    EXPECT_TRUE(made["age"] >= 1 && made["age"] <= 99);
    EXPECT_LE(made["tags"].size(), 3u);
    EXPECT_EQ(made.size(), 3u);
  }
  EXPECT_TRUE(server().idle_within(10));
}

TEST_F(Formed, what_cannot_be_computed_is_refused) {
  for (const auto& [format, part] : std::vector<std::pair<json, std::string>>{
           {{{"type", "grammar"}}, "unknown type of response format 'grammar'"},
           {{{"type", "regex"}, {"pattern", "a("}}, "'(' without a ')'"},
           {{{"type", "json_schema"}, {"json_schema", {{"schema", {{"type", "number"}, {"multipleOf", 2}}}}}},
            "'multipleOf'"},
           {"json", "an object with a type"}}) {
    const Answered a = asking(format);
    EXPECT_EQ(a.status, 400) << format;
    EXPECT_NE(a.message().find(part), std::string::npos) << a.message();
  }
  EXPECT_EQ(asking({{"type", "json_object"}}, {{"ignore_eos", true}}).status, 400);
  EXPECT_EQ(asking({{"type", "text"}}, {{"max_tokens", 3}}).status, 200);
}

}  // namespace
}  // namespace foretoken::test
