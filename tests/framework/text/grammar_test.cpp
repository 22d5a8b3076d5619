// Grammars of regular expressions and JSON schemas: what they accept and refuse, and every text that they can write.
#include <random>
#include <regex>

#include "framework/text/grammar/automaton.h"
#include "framework/text/grammar/json_grammar.h"
#include "framework/text/grammar/regex_grammar.h"
#include "kernels/error.h"
#include "tests/framework/text/tokenizer_file.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

Automaton of_regex(const std::string& pattern) {
  Grammar g;
  return Automaton(g.network(regex_part(g, pattern)));
}
Automaton of_schema(const json& schema) {
  Grammar g;
  return Automaton(g.network(json_schema_part(g, schema)));
}
Automaton of_objects() {
  Grammar g;
  return Automaton(g.network(json_object_part(g)));
}

bool matches(Automaton& a, const std::string& text) {
  Automaton::State s = a.start();
  for (const char c : text)
    if ((s = a.next(s, std::uint8_t(c))) == Automaton::kDead) return false;
  return a.accepts(s);
}

// A text of the language, by bytes drawn at random; empty where `most` bytes did not end it.
std::optional<std::string> drawn_text(Automaton& a, std::mt19937& draw, std::size_t most) {
  std::string text;
  for (Automaton::State s = a.start(); text.size() < most;) {
    std::vector<std::pair<std::uint8_t, Automaton::State>> next;
    for (int b = 0; b < 256; ++b)
      if (const auto t = a.next(s, std::uint8_t(b)); t != Automaton::kDead) next.emplace_back(std::uint8_t(b), t);
    if (next.empty() || (a.accepts(s) && draw() % 3 == 0)) return text;
    // Bytes that end something are as probable as all others together, so that texts end.
    std::vector<std::pair<std::uint8_t, Automaton::State>> ends;
    for (const auto& n : next)
      if (std::string("\"}],:0").find(char(n.first)) != std::string::npos) ends.push_back(n);
    const auto& from = ends.empty() || draw() % 2 == 0 ? next : ends;
    const auto& chosen = from[draw() % from.size()];
    text += char(chosen.first), s = chosen.second;
  }
  return std::nullopt;
}

struct Accepts {
  const char* pattern;
  std::vector<std::string> texts, others;
};

TEST(RegexGrammar, AcceptsWhatThePatternDescribesAndNothingElse) {
  const std::vector<Accepts> cases{{"", {""}, {"a"}},
                                   {"a|bc|", {"a", "bc", ""}, {"b", "ac", "abc"}},
                                   {"^a(?:b|c)*d{2,3}$", {"add", "abcbddd"}, {"ad", "adddd", "a"}},
                                   {"a{2}b{0}c{1,}", {"aac", "aaccc"}, {"aa", "aabc", "ac"}},
                                   {"[a-c\\-_]+?", {"a-c_", "b"}, {"", "d"}},
                                   {"[^a-z\\d]", {"A", "é", "中", "😀"}, {"a", "5", "", "AA"}},
                                   {"[]a]", {"]", "a"}, {"b"}},
                                   {"\\d\\D\\w\\W\\s\\S", {"1a_- x"}, {"11a- x", "1a_bx"}},
                                   {".", {"a", "é", "\xf0\x9f\x98\x80"}, {"\n", "", "\xc3", "\xed\xa0\x80", "\xff"}},
                                   {"\\x41\\u00e9\\.\\n", {"A\xc3\xa9.\n"}, {"Aé.n"}},
                                   {"[\\u00e9-\\u4e00]", {"é", "߿", "ࠀ", "一"}, {"è", "丁", "😀"}},
                                   {"((a|b)(c|d)){2}", {"acbd"}, {"ac", "acb"}}};
  for (const Accepts& c : cases) {
    Automaton a = of_regex(c.pattern);
    for (const std::string& text : c.texts) EXPECT_TRUE(matches(a, text)) << c.pattern << " accepts " << text;
    for (const std::string& text : c.others) EXPECT_FALSE(matches(a, text)) << c.pattern << " refuses " << text;
  }
}

TEST(RegexGrammar, EveryTextMatchesTheSamePatternOfTheStandardLibrary) {
  std::mt19937 draw(7);
  int texts = 0;
  for (const std::string pattern :
       {"(a|ab)(c|bcd)*", "[a-f]{1,3}(-[0-9]+)?", "x*(y|z){2,4}x?", "(0|[1-9][0-9]*)(,[a-z]+)*"}) {
    Automaton a = of_regex(pattern);
    const std::regex truth(pattern);
    for (int i = 0; i < 200; ++i) {
      const auto text = drawn_text(a, draw, 60);
      EXPECT_TRUE(!text || std::regex_match(*text, truth)) << pattern << ": " << text.value_or("");
      texts += text ? 1 : 0;
      std::string any;  // and the other way round
      for (unsigned n = draw() % 6; n > 0; --n) any += "abcdxyz0159,-"[draw() % 13];
      EXPECT_EQ(matches(a, any), std::regex_match(any, truth)) << pattern << ": " << any;
    }
  }
  EXPECT_GT(texts, 500);
}

TEST(RegexGrammar, WhatIsNotUnderstoodIsRefused) {
  for (const auto& [pattern, part] :
       std::vector<std::pair<std::string, std::string>>{{"a(b", "'(' without a ')'"},
                                                        {"a)b", "')' without a '('"},
                                                        {"[ab", "'[' without a ']'"},
                                                        {"*a", "nothing to repeat"},
                                                        {"a**", "repeats a repetition"},
                                                        {"a{3,2}", "below its beginning"},
                                                        {"a{20000}", "above 10000"},
                                                        {"(?=a)", "(?"},
                                                        {"\\1", "escape \\1"},
                                                        {"\\bword", "escape \\b"},
                                                        {"a$b", "not at the end"},
                                                        {"(^a)", "hold nothing"},
                                                        {"[b-a]", "below its beginning"},
                                                        {"a++", "possessive"},
                                                        {"[^\\s\\S]", "describes no text"},
                                                        {"\\ud83d", "describes no text"},
                                                        {std::string(20000, '.'), "at most 16384"},
                                                        {"\\", "ends too early"},
                                                        {"[[:alpha:]]", "class by name"},
                                                        {"(?:(?:a{10000}){10000}){10000}", "too large"},
                                                        {"(?:(?:(?:){10000}){10000}){10000}", "too large"},
                                                        {"\xff", "UTF-8"}})
    EXPECT_TRUE(says(sentence_of([&] { of_regex(pattern); }), part)) << pattern;
}

TEST(JsonGrammar, ObjectsOfAnyDepthAreAccepted) {
  Automaton a = of_objects();
  std::string deep = "1";
  for (int i = 0; i < 300; ++i) deep = (i % 2 == 0 ? "[" : "{\"k\": ") + deep + (i % 2 == 0 ? "]" : "}");
  EXPECT_TRUE(matches(a, deep));
  EXPECT_FALSE(matches(a, deep.substr(0, deep.size() - 1)));
  for (const char* text : {"{}", "{\"a\": [1, -2.5e3, {\"b\": null}], \"c\": \"\\u00e9\\n\"}", "{\n  \"a\": true\n}"})
    EXPECT_TRUE(matches(a, text)) << text;
  for (const char* text :
       {"[]", "{\"a\":1,}", "{a: 1}", "{\"a\": 01}", "{\"a\": \"\n\"}", "{} ", "{\"a\" 1}", "{\"a\": \"\\ud800\"}"})
    EXPECT_FALSE(matches(a, text)) << text;
  std::mt19937 draw(3);
  int texts = 0;
  for (int i = 0; i < 300; ++i)
    if (const auto text = drawn_text(a, draw, 400)) {
      EXPECT_TRUE(json::accept(*text)) << *text;
      ++texts;
    }
  EXPECT_GT(texts, 100);
}

struct Schema {
  const char* schema;
  std::vector<std::string> texts, others;
};

TEST(JsonGrammar, SchemasAcceptWhatTheyDescribe) {
  const std::vector<Schema> cases{
      {R"({"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}, "c": {"type": "null"}},
           "required": ["b", "a"], "additionalProperties": false})",
       {R"({"b": 1, "a": "x"})", R"({"b":-5,"a":"","c":null})", "{\n \"b\": 0, \"a\": \"\"\n}"},
       {R"({"a": "x", "b": 1})", R"({"b": 1})", R"({"b": 1, "a": "x", "d": 2})", R"({"b": 1.5, "a": "x"})", "{}"}},
      {R"({"properties": {"a": {}, "b": {"type": "boolean"}}})",
       {"{}", R"({"a": [{}]})", R"({"b": true})", R"({"a": 1, "b": false})"},
       {R"({"b": true, "a": 1})", R"({, "b": true})", R"({"a": 1,})"}},
      {R"({"type": "integer", "minimum": -5, "maximum": 120})",
       {"-5", "0", "99", "120", "-1"},
       {"-6", "121", "-0", "1.0", "007"}},
      {R"({"type": "integer", "exclusiveMinimum": 7, "exclusiveMaximum": 1024})",
       {"8", "99", "100", "1023"},
       {"7", "1024", "-8"}},
      {R"({"type": "integer", "minimum": 5})", {"5", "999999999999999999"}, {"4", "-5", "1000000000000000000"}},
      {R"({"type": ["string", "null"], "maxLength": 2})",
       {"null", R"("")", R"("é\n")", R"("\u00e9x")"},
       {R"("abc")", "nul"}},
      {R"({"type": "string", "minLength": 2})", {R"("ab")", R"("a\"b")"}, {R"("a")", R"("\"")"}},
      {R"({"type": "string", "pattern": "^[A-Z]\"?$"})", {R"("A")", R"("A\"")"}, {R"("a")", R"("A"")", R"("AB")"}},
      {R"({"type": "string", "pattern": "b|^c"})", {R"("abc")", R"("cx")", R"("\tb")"}, {R"("ac")"}},
      {R"({"type": "string", "format": "date"})", {R"("2024-07-31")"}, {R"("2024-13-01")", R"("2024-07-3")"}},
      {R"({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2})",
       {"[true]", "[true, false]"},
       {"[]", "[true,true,true]", "[1]"}},
      {R"({"prefixItems": [{"const": 1}, {"enum": ["x", {"y": [2]}]}], "items": false})",
       {R"([1, "x"])", R"([1,{"y":[2]}])"},
       {"[1]", R"(["x", 1])", R"([1,"x",2])"}},
      {R"({"anyOf": [{"type": "number"}, {"allOf": [{"const": "n"}]}]})",
       {"1e5", "-0.5", R"("n")"},
       {"1.", ".5", R"("m")"}},
      {R"({"type": "object", "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"x": 1, "y": 2})"},
       {R"({"x": "1"})"}},
      {R"({"$ref": "#/$defs/list", "$defs": {"list": {"anyOf": [{"type": "null"}, {"type": "object",
           "properties": {"head": {"type": "integer"}, "tail": {"$ref": "#/$defs/list"}},
           "required": ["head", "tail"]}]}}})",
       {"null", R"({"head": 1, "tail": {"head": 2, "tail": null}})"},
       {R"({"head": 1})", R"({"head": 1, "tail": 2})"}}};
  for (const Schema& c : cases) {
    Automaton a = of_schema(json::parse(c.schema));
    for (const std::string& text : c.texts) EXPECT_TRUE(matches(a, text)) << c.schema << " accepts " << text;
    for (const std::string& text : c.others) EXPECT_FALSE(matches(a, text)) << c.schema << " refuses " << text;
  }
}

TEST(JsonGrammar, EveryLimitOfIntegersHolds) {
  for (const auto& [low, high] : std::vector<std::pair<int, int>>{
           {0, 0}, {0, 7}, {3, 12}, {-12, -3}, {-7, 250}, {99, 100}, {95, 1005}, {-1000, 1}}) {
    Automaton a = of_schema({{"type", "integer"}, {"minimum", low}, {"maximum", high}});
    for (int n = -1100; n <= 1100; ++n)
      EXPECT_EQ(matches(a, std::to_string(n)), low <= n && n <= high) << low << " " << high << " " << n;
  }
}

TEST(JsonGrammar, KeywordsThatAreNotComputedAreNamed) {
  for (const auto& [schema, part] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type": "number", "multipleOf": 2})", "keyword 'multipleOf'"},
           {R"({"type": "object", "properties": {"a": {"oneOf": []}}})", "at '/properties/a': the keyword 'oneOf'"},
           {R"({"type": "object", "required": ["b"], "properties": {"a": {}}})", "'b', which is not among"},
           {R"({"$ref": "#/$defs/x"})", "which is not there"},
           {R"({"$ref": "http://x"})", "must point into the schema"},
           {R"({"type": "word"})", "not \"word\""},
           {R"({"type": "integer", "minimum": 2, "maximum": 1})", "above its maximum"},
           {R"({"type": "string", "minLength": 3, "maxLength": 2})", "'minLength' is above"},
           {R"({"type": "string", "pattern": "a", "maxLength": 2})", "only one of"},
           {R"({"type": "string", "format": "email"})", "'format' must be"},
           {R"([])", "must be an object"},
           {R"({"type": "string", "maxLength": 10000, "pattern": 5})", "only one of"},
           {R"({"type": ["integer", "number"], "minimum": 0})", "'minimum' is computed for integers alone"},
           {R"({"type": "string", "enum": [1, true]})", "none of its values has its type"},
           {R"({"$ref": "#"})", "describes no text"},
           {R"({"allOf": [{}, {}]})", "'allOf' of several"},
           {R"({"type": "array", "items": {"type": "array", "items": {"type": "string", "maxLength": 5000},
               "maxItems": 5000}})",
            "too large"}})
    EXPECT_TRUE(says(sentence_of([&] { of_schema(json::parse(schema)); }), part)) << schema;
}

// What can never end is not begun.
TEST(Grammar, DeadEndsAreTakenAway) {
  for (const char* pattern : {"a[^\\s\\S]b|cd", "(?:ab*[^\\s\\S])?cd"}) {
    Automaton a = of_regex(pattern);
    EXPECT_EQ(a.next(a.start(), 'a'), Automaton::kDead) << pattern;
    EXPECT_TRUE(matches(a, "cd")) << pattern;
  }
  const json endless{{"properties", {{"more", {{"$ref", "#"}}}}}, {"required", {"more"}}};
  EXPECT_TRUE(says(sentence_of([&] { of_schema(endless); }), "describes no text"));
}

TEST(Grammar, RulesMayCallThemselvesBehindSomethingElseAlone) {
  Grammar g;
  const Grammar::Part nested = g.rule();  // a^n b^n
  g.define(nested, g.optional(g.sequence({g.text("a"), nested, g.text("b")})));
  Automaton a(g.network(nested));
  EXPECT_TRUE(matches(a, "aaabbb"));
  EXPECT_FALSE(matches(a, "aaabb"));
  const Grammar::Part first = g.rule();
  g.define(first, g.choice({g.sequence({first, g.text("a")}), g.text("b")}));
  EXPECT_TRUE(says(sentence_of([&] { Automaton(g.network(first)); }), "refers to itself before it reads anything"));
  EXPECT_TRUE(says(sentence_of([&] { of_regex("(?:a?){5000}"); }), "more than 2000 ways at once"));
  Automaton hostile = of_regex("(?:a|b)*a(?:a|b){1000}");  // states by the last thousand letters
  std::mt19937 draw(1);
  Automaton::State s = hostile.start();
  long read = 0;
  for (; s != Automaton::kDead && read < 10'000'000; ++read) s = hostile.next(s, draw() % 2 == 0 ? 'a' : 'b');
  EXPECT_TRUE(hostile.full()) << read;
}

}  // namespace
}  // namespace foretoken::test
