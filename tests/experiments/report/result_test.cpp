// Writer, reader and schema of a result line follow from one description: they agree on every field.
#include "experiments/report/result.h"

#include <gtest/gtest.h>

#include "tests/experiments/report/made_results.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

// A value with every field that the schema has.
json full(const json& schema, const std::string& name = "") {
  if (schema.contains("properties")) {
    json found = json::object();
    for (const auto& [key, one] : schema["properties"].items()) found[key] = full(one, key);
    return found;
  }
  const std::string type = schema["type"];
  if (type == "object" && schema.contains("additionalProperties"))
    return {{"17", full(schema["additionalProperties"])}, {"4", full(schema["additionalProperties"])}};
  if (type == "object") return {{"/a", nullptr}, {"b", {1, "c"}}};
  if (type == "array") return json::array({full(schema["items"]), full(schema["items"])});
  if (type == "integer") return name == "schema" ? 2 : 7;
  if (type == "number") return 0.1;
  if (type == "boolean") return true;
  return name == "date" || name == "began" ? "2026-11-21T08:00:00Z" : "text \u00e9";
}
json full_line() { return full(result_schema()); }

std::string refusal(const json& line) {
  return sentence_of([&] { (void)foretoken::result_of(line, "r.jsonl:3"); });
}

// Calls with every pointer to a property of the line, its schema, and whether it is required.
template <class F> void for_each_field(const json& schema, const json::json_pointer& at, const F& found) {
  if (schema.contains("items")) return for_each_field(schema["items"], at / std::size_t(0), found);
  if (!schema.contains("properties")) return;
  for (const auto& [name, one] : schema["properties"].items()) {
    found(at / name, one, std::ranges::find(schema["required"], json(name)) != schema["required"].end());
    for_each_field(one, at / name, found);
  }
}

TEST(ResultLine, WithEveryFieldIsReadAndWrittenAsItWas) {
  const json line = full_line();
  EXPECT_EQ(to_json(foretoken::result_of(line, "a line")), line);
  const Result result = foretoken::result_of(line, "a line");
  EXPECT_EQ(result.repeats.at(1).baseline.requests.at(1).steady_tokens, 7);
  EXPECT_EQ(result.repeats[0].speculative.gaps.at(17), 7);
  EXPECT_EQ(result.origin.machine->clocks_mhz->sm_most, 7);
  EXPECT_EQ(result.run, json({{"/a", nullptr}, {"b", {1, "c"}}})) << "a document stays as it is";
}

TEST(ResultLine, WithoutOptionalFieldsIsWrittenWithoutThem) {
  json line = full_line();
  std::vector<json::json_pointer> optional;
  for_each_field(result_schema(), json::json_pointer(), [&](const json::json_pointer& at, const json&, bool required) {
    if (!required && at.to_string() != "/promise" && at.to_string() != "/agreement") optional.push_back(at);
  });
  EXPECT_GT(optional.size(), 40u);
  for (const json::json_pointer& at : optional) {
    if (!line.contains(at)) continue;  // its parent was one
    line[at.parent_pointer()].erase(at.back());
    ASSERT_EQ(to_json(foretoken::result_of(line, "a line")), line) << at;
  }
}

TEST(ResultLine, LacksNoRequiredField) {
  int fields = 0;
  for_each_field(result_schema(), json::json_pointer(), [&](const json::json_pointer& at, const json&, bool required) {
    json line = full_line();
    line[at.parent_pointer()].erase(at.back());
    const std::string why = refusal(line), place = "'" + at.to_string().substr(1) + "' is missing (";
    EXPECT_TRUE(!required || says(why, "r.jsonl:3", place, "remove it")) << at << ": " << why;
    fields += required;
  });
  EXPECT_GT(fields, 100);
}

TEST(ResultLine, HasNoOtherTypes) {
  for_each_field(result_schema(), json::json_pointer(), [&](const json::json_pointer& at, const json& one, bool) {
    const std::string type = one["type"], place = "'" + at.to_string().substr(1) + "' is ";
    std::vector<json> wrong{nullptr};
    wrong.push_back(type == "string" ? json(3) : json("x"));
    if (type == "integer") wrong.insert(wrong.end(), {-1, 1.5, 1e30});
    if (type == "object" || type == "array") wrong.push_back(3);
    for (const json& value : wrong) {
      json line = full_line();
      line[at] = value;
      const std::string why = refusal(line);
      EXPECT_TRUE(says(why, "r.jsonl:3", place + value.dump(), "but must be", "remove it")) << at << ": " << why;
    }
  });
}

TEST(ResultLine, HasNoUnknownField) {
  json line = full_line();
  line["repeats"][1]["speculative"]["requests"][0]["acepted"] = 3;
  EXPECT_TRUE(
      says(refusal(line), "r.jsonl:3", "'repeats/1/speculative/requests/0/acepted'", "did you mean 'accepted'"));
  line = full_line();
  line["repeats"][0]["baseline"]["gaps"]["x"] = 3;
  EXPECT_TRUE(says(refusal(line), "'repeats/0/baseline/gaps'", "numbers as names"));
  EXPECT_TRUE(says(refusal(json::array()), "the line is []", "an object"));
}

TEST(ResultLine, HasAlternationsOrAnError) {
  json line = full_line();
  line.erase("error");
  EXPECT_EQ(refusal(line), "");
  for (const char* needed : {"promise", "agreement"}) {
    json lacking = line;
    lacking.erase(needed);
    EXPECT_TRUE(says(refusal(lacking), "without an 'error'", needed));
  }
  line["repeats"] = json::array();
  EXPECT_TRUE(says(refusal(line), "without an 'error'", "'repeats'"));
  line["error"] = "out of memory";
  EXPECT_EQ(refusal(line), "");
}

TEST(ResultLine, ItsSchemaSaysWhatEveryFieldMeans) {
  const json schema = result_schema();
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(schema["properties"]["schema"]["const"], kResultSchema);
  for_each_field(schema, json::json_pointer(), [&](const json::json_pointer& at, const json& one, bool) {
    EXPECT_GT(one.value("description", "").size(), 5u) << at;
  });
}

}  // namespace
}  // namespace foretoken::test
