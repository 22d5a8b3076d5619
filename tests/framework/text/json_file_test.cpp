// JSON of users: what is read of it, and the sentence for everything that is wrong.
#include "framework/text/json_file.h"

#include <limits>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

std::string refusal(std::string_view text) {
  return sentence_of([&] { parse_json(text, "F"); });
}

TEST(JsonFile, NestsUpTo200Levels) {
  const std::string open(200, '['), close(200, ']');
  EXPECT_EQ(refusal(open + close), "");
  EXPECT_EQ(refusal("{\"a\":" + open.substr(1) + close.substr(1) + "}"), "");
  const std::string deeper =
      "F nests deeper than 200 levels, which nothing that is read here does; correct or replace it";
  EXPECT_EQ(refusal("[" + open + close + "]"), deeper);
  EXPECT_EQ(refusal("{\"a\":" + open + close + "}"), deeper);
  std::string many = "[";  // one level, many times
  for (int i = 0; i < 300; ++i) many += i % 2 ? "[]," : "{},";
  EXPECT_EQ(refusal(many + "0]"), "");
  EXPECT_EQ(refusal("[\"" + open + open + "\"]"), "") << "brackets in a string are no levels";
  EXPECT_EQ(refusal("[\"\\\"" + open + open + "\"]"), "") << "nor behind an escaped quote";
  EXPECT_EQ(refusal("[\"\\\\\"," + open + close + "]"), deeper) << "but behind an escaped backslash and a quote";
}

TEST(JsonFile, IntegersOfManyDigitsAreNotCut) {
  for (const char* text : {"4294967297", "-4294967295", "18446744073709551617", "18446744073709551615", "1.0", "\"1\""})
    EXPECT_EQ(integer_in(json::parse(text), -5, 5), std::nullopt) << text;
  EXPECT_EQ(integer_in(json(5), -5, 5), 5);
  EXPECT_EQ(integer_in(json(-5), -5, 5), -5);
  EXPECT_EQ(integer_in(json(6), -5, 5), std::nullopt);
}

// What lies behind a view is not part of it.
TEST(JsonFile, IsReadToItsEndAndNoFurther) {
  const std::string text(201, '[');
  EXPECT_TRUE(says(refusal(std::string_view(text).substr(0, 200)), "F is not valid JSON"));
  EXPECT_TRUE(says(refusal(text), "nests deeper"));
}

TEST(JsonFile, SaysWhyItIsNone) {
  EXPECT_EQ(refusal("[1,]"),
            "F is not valid JSON (parse error at line 1, column 4: syntax error while parsing value - unexpected ']'; "
            "expected '[', '{', or a literal); correct or replace it");
  EXPECT_EQ(refusal("{\"a\": {\"b\": 1, \"c\": 2, \"b\": 3}}"),
            "F has the key 'b' twice; JSON does not define which of them counts: correct or replace it");
  EXPECT_EQ(refusal("{\"a\": {\"b\": 1}, \"b\": [{\"b\": 1}, {\"b\": 2}]}"), "") << "objects of their own";
  EXPECT_EQ(parse_json("{\"a\": [1, 2.5, null]}", "F"), (json{{"a", {1, 2.5, nullptr}}}));
  const std::string why = refusal("\"" + std::string(400, 'x'));
  EXPECT_TRUE(says(why, "F is not valid JSON (parse error at line 1, column 402: ", "...); correct or replace it"));
  EXPECT_EQ(why.size(), std::string("F is not valid JSON (); correct or replace it").size() + 203);
}

TEST(JsonFile, ValuesAreShownUpTo60Bytes) {
  EXPECT_EQ(shown(nullptr), "null");
  EXPECT_EQ(shown("\xc3\xa9"), "\"\\u00e9\"");
  EXPECT_EQ(shown("\xff"), "\"\\ufffd\"");
  EXPECT_EQ(shown(json{{"b", 1}, {"a", {1, 2}}}), "{\"a\":[1,2],\"b\":1}");
  EXPECT_EQ(shown(std::string(58, 'x')), "\"" + std::string(58, 'x') + "\"");
  EXPECT_EQ(shown("y" + std::string(58, 'x')), "\"y" + std::string(55, 'x') + "...");
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(shown(infinity) + " " + shown(-infinity) + " " + shown(std::nan("")), "inf -inf nan");
}

const json kObject = {{"int", 5},        {"zero", 0},      {"big", 5000000000},     {"huge", 18446744073709551615u},
                      {"half", 0.5},     {"negative", -2}, {"yes", true},           {"text", "t"},
                      {"null", nullptr}, {"list", {1, 2}}, {"inner", {{"deep", 7}}}};

template <class F> std::string wrong(const F& read) {
  const Fields fields(kObject, "F", "part");
  return sentence_of([&] { read(fields); });
}

TEST(JsonFile, FieldsAreReadByType) {
  const Fields f(kObject, "F", "part");
  EXPECT_EQ(f.integer("int", 5, 5), 5);
  EXPECT_EQ(f.integer("negative", -2, 5), -2);
  EXPECT_EQ(f.integer_or("none", 0, 9, 3), 3);
  EXPECT_EQ(f.integer_or("null", 0, 9, 3), 3);
  EXPECT_EQ(f.integer_or("int", 0, 9, 3), 5);
  EXPECT_EQ(f.positive("half"), 0.5);
  EXPECT_EQ(f.positive("int"), 5);
  EXPECT_EQ(f.positive_or("none", 2), 2);
  EXPECT_EQ(f.positive_or("half", 2), 0.5);
  EXPECT_TRUE(f.boolean_or("yes", false) && f.boolean_or("none", true) && !f.boolean_or("none", false));
  EXPECT_EQ(f.string("text") + f.string_or("text", "o") + f.string_or("none", "o"), "tto");
  EXPECT_EQ(f.array("list"), (json{1, 2}));
  EXPECT_EQ(f.object("inner").integer("deep", 0, 9), 7);
  EXPECT_TRUE(f.has("int") && !f.has("null") && !f.has("none"));
  EXPECT_EQ(f.find("null"), nullptr);
  EXPECT_EQ(f.name("int"), "part.int");
  EXPECT_EQ(f.object("inner").name("deep"), "part.inner.deep");
  EXPECT_EQ(Fields(kObject, "F").name("int"), "int");
  EXPECT_EQ(f.where(), "F");
  EXPECT_EQ(f.all(), kObject);
}

TEST(JsonFile, FieldsOfOtherTypesAreRefused) {
  const auto integer = [](const char* key, int least, int most) {
    return wrong([=](const Fields& f) { f.integer(key, least, most); });
  };
  const auto not_within = [](const std::string& key, const std::string& value, const std::string& range) {
    return "F: 'part." + key + "' is " + value + ", but must be an integer from " + range;
  };
  EXPECT_EQ(integer("int", 6, 9), not_within("int", "5", "6 to 9"));
  EXPECT_EQ(integer("int", 0, 4), not_within("int", "5", "0 to 4"));
  EXPECT_EQ(integer("half", 0, 4), not_within("half", "0.5", "0 to 4"));
  EXPECT_EQ(integer("text", 0, 4), not_within("text", "\"t\"", "0 to 4"));
  EXPECT_EQ(integer("big", 0, 2147483647), not_within("big", "5000000000", "0 to 2147483647"));
  EXPECT_EQ(integer("huge", -1, 4), not_within("huge", "18446744073709551615", "-1 to 4"));
  EXPECT_EQ(integer("none", 0, 4), "F has no 'part.none'; add it, or replace the file");
  EXPECT_EQ(integer("null", 0, 4), "F has no 'part.null'; add it, or replace the file");
  EXPECT_EQ(wrong([](const Fields& f) { f.integer_or("half", 1, 2, 1); }), not_within("half", "0.5", "1 to 2"));
  for (const auto& [key, value] : {std::pair("zero", "0"), {"negative", "-2"}, {"text", "\"t\""}})
    EXPECT_EQ(wrong([k = key](const Fields& f) { f.positive_or(k, 1); }),
              std::string("F: 'part.") + key + "' is " + value + ", but must be a number above 0");
  EXPECT_EQ(wrong([](const Fields& f) { f.boolean_or("int", true); }), "F: 'part.int' is 5, but must be true or false");
  EXPECT_EQ(wrong([](const Fields& f) { f.string_or("int", ""); }), "F: 'part.int' is 5, but must be a string");
  EXPECT_EQ(wrong([](const Fields& f) { f.array("int"); }), "F: 'part.int' is 5, but must be an array");
  EXPECT_EQ(wrong([](const Fields& f) { f.object("int"); }), "F: part.int is 5, but must be a JSON object");
  EXPECT_EQ(wrong([](const Fields& f) { f.refuse("none", "x"); }), "F: 'part.none' is absent, but x");
  const json infinite = {{"n", std::numeric_limits<double>::infinity()}};
  EXPECT_EQ(sentence_of([&] { Fields(infinite, "F").positive("n"); }), "F: 'n' is inf, but must be a number above 0");
  EXPECT_EQ(sentence_of([] { Fields(json(3), "F"); }), "F: the top level is 3, but must be a JSON object");
}

TEST(JsonFile, PathsThatHoldNothingSayWhy) {
  const TemporaryFolder folder;
  const auto whole = folder.write("whole", "[1]"), empty = folder.write("empty", ""), none = folder.path() / "none";
  const auto loop = folder.path() / "loop", dangling = folder.path() / "dangling";
  std::filesystem::create_symlink(loop, loop);
  std::filesystem::create_symlink(none, dangling);
  EXPECT_EQ(absence_of(whole) + absence_of(folder.path()), "");
  EXPECT_EQ(absence_of(none), "does not exist; check the path");
  EXPECT_EQ(absence_of(dangling), "does not exist; check the path");
  EXPECT_EQ(absence_of(loop), "is a loop of symbolic links; make the link point to a file");
  EXPECT_EQ(absence_of(folder.path() / std::string(300, 'x')),
            "cannot be reached (File name too long); check the path and its permissions");
  EXPECT_TRUE(has_file(whole) && has_file(empty) && has_file(dangling) && has_file(loop) && has_file(folder.path()));
  EXPECT_FALSE(has_file(none));
  EXPECT_EQ(read_json(whole), json::array({1}));
  EXPECT_EQ(read_file(whole), "[1]");
  EXPECT_EQ(sentence_of([&] { read_file(empty); }), empty.string() + " is empty; replace it by a whole one");
  EXPECT_EQ(sentence_of([&] { read_file(none); }), none.string() + " does not exist; check the path");
  const std::string give =
      "; give the path of a directory with config.json, model.safetensors and tokenizer.json, or of a .gguf file";
  EXPECT_EQ(sentence_of([&] { expect_model_directory(folder.path()); }), "");
  EXPECT_EQ(sentence_of([&] { expect_model_directory(none); }),
            "the model directory " + none.string() + " does not exist" + give);
  EXPECT_EQ(sentence_of([&] { expect_model_directory(loop); }),
            "the model directory " + loop.string() + " is a loop of symbolic links" + give);
}

}  // namespace
}  // namespace foretoken::test
