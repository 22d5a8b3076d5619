// The page of `foretoken report`: what it holds, and that results cannot leave their place in it.
#include "experiments/report/page.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "experiments/report/report.h"
#include "experiments/report/terminal.h"
#include "tests/experiments/report/made_results.h"
#include "tests/experiments/report/plot_marks.h"
#include "tests/support/sentence.h"

namespace foretoken {
namespace {

using nlohmann::json;
using test::swept_lines;

json payload_of(const std::vector<json>& lines) {
  return page_payload(view_of(lines), {{"results/some.jsonl"}, "some.html"});
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// What a browser finds in the element of the payload.
json read_back(const std::string& page) {
  const std::string opening = "<script type=\"application/json\" id=\"payload\">";
  const std::size_t begin = page.find(opening) + opening.size();
  return json::parse(page.substr(begin, page.find("</script", begin) - begin));
}

TEST(Page, TablesAreThoseOfShow) {
  const View view = view_of(swept_lines());
  const json tables = payload_of(swept_lines()).at("tables");
  std::vector<Table> shown = shown_tables(view, {});
  for (Table& table : shown) table = table.brief();
  ASSERT_EQ(tables.size(), shown.size());
  for (std::size_t t = 0; t < shown.size(); ++t) {
    EXPECT_EQ(tables[t]["title"], shown[t].title);
    ASSERT_EQ(tables[t]["rows"].size(), shown[t].rows.size());
    ASSERT_EQ(tables[t]["columns"].size(), shown[t].columns.size());
    for (std::size_t r = 0; r < shown[t].rows.size(); ++r)
      for (std::size_t c = 0; c < shown[t].rows[r].cells.size(); ++c) {
        const json& cell = tables[t]["rows"][r]["cells"][c];
        EXPECT_EQ(cell.is_array() ? cell[0] : cell, shown[t].rows[r].cells[c].shown());
      }
  }
}

TEST(Page, CellsHaveTheirNumbersAsSortKeys) {
  const json table = payload_of(swept_lines()).at("tables")[0];
  const auto place = [&](const std::string& name) {
    for (std::size_t i = 0; i < table["columns"].size(); ++i)
      if (table["columns"][i]["name"] == name) return i;
    return std::size_t(99);
  };
  const json& cells = table["rows"][0]["cells"];
  EXPECT_EQ(cells[place("policy.length")], json({"2", 2.0})) << "an axis of numbers is sorted by them";
  EXPECT_EQ(cells[place("drafter")], "draft_model");
  const json& speedup = cells[place("speedup")];
  ASSERT_EQ(speedup.size(), 4u);
  EXPECT_LT(speedup[2].get<double>(), speedup[1].get<double>());
  EXPECT_LT(speedup[1].get<double>(), speedup[3].get<double>());
  EXPECT_EQ(payload_of({test::worked_line()})["tables"][0]["rows"][0]["cells"][3][1], 2.0) << "tau, unrounded";
}

TEST(Page, FailedRunsHaveASentenceAndNoMarks) {
  std::vector<json> lines = swept_lines();
  lines[3].erase("repeats");
  lines[3]["error"] = "the pool is too small";
  const json payload = read_back(page(lines, {}));
  std::size_t failed = 99;
  for (std::size_t i = 0; i < payload["runs"].size(); ++i)
    if (payload["runs"][i].value("error", "") == "the pool is too small") failed = i;
  ASSERT_NE(failed, 99u);
  for (const json& plot : payload["plots"])
    for (const json& figure : plot["figures"])
      for (const json& mark : test::marks_of(figure))
        EXPECT_EQ(std::ranges::count(mark["runs"], json(failed)), 0) << plot["id"];
}

TEST(Page, OriginsAreListed) {
  std::vector<json> lines = swept_lines();
  lines[0]["machine"] = {{"cpu", "Xeon"}, {"cores", 16}, {"memory_gib", 126}, {"description", "NVIDIA H200"}};
  lines[0]["commit"] = "def";
  const json payload = payload_of(lines);
  EXPECT_EQ(payload["machines"], json({"NVIDIA H200; Xeon, 16 cores, 126 GiB, an OS", "a CPU, 2 cores, 4 GiB, an OS"}));
  EXPECT_EQ(payload["commits"], json({"abc", "def"}));
  EXPECT_EQ(payload["dates"], json({"2026-11-21"}));
}

TEST(Page, ResultsCannotLeaveTheirPlace) {
  const std::string nasty = "</script><script>alert(1)</script><!-- @PAYLOAD@ @TITLE@ & \"'\u2028\n";
  std::vector<json> lines = swept_lines();
  lines[0]["run"]["target"]["model"] = nasty;
  lines[1].erase("repeats");
  lines[1]["error"] = nasty;
  const std::string plain = page(swept_lines(), {}), found = page(lines, {{nasty + "\xff"}, nasty});
  for (const char* part : {"<script", "</script", "<!--", "alert(1)</"})
    EXPECT_EQ(count(found, part), count(plain, part)) << part << " is only where the template has it";
  const json payload = read_back(found);
  EXPECT_EQ(payload["title"], nasty + "\ufffd");
  bool told = false;
  for (const json& run : payload["runs"]) told |= run.value("error", "") == nasty;
  EXPECT_TRUE(told) << "the text is kept as it is";
  EXPECT_NE(found.find("<title>&lt;/script&gt;"), std::string::npos);
}

TEST(Page, ScriptsReadJsonBack) {
  const json value = {{"<", "</script>"}, {"\u2029", {1.5, std::numeric_limits<double>::quiet_NaN()}}};
  const std::string text = script_json(value);
  EXPECT_EQ(text.find('<'), std::string::npos);
  for (const char c : text) EXPECT_LT(static_cast<unsigned char>(c), 128);
  EXPECT_EQ(json::parse(text), (json{{"<", "</script>"}, {"\u2029", {1.5, nullptr}}}));
}

TEST(Page, LoadsNothing) {
  const std::string found = page(swept_lines(), {});
  for (const char* part : {"<link", " src=", "@import", "url("}) EXPECT_EQ(count(found, part), 0) << part;
  EXPECT_NE(found.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(found.find("Copyright (c) 2010-2016, Michael Bostock"), std::string::npos);
  EXPECT_EQ(count(found, "@TITLE@") + count(found, "@PAYLOAD@") + count(found, ".js@") + count(found, "@D3@"), 0);
}

TEST(Page, IsKnownByItsBeginning) {
  const std::string found = page(swept_lines(), {});
  EXPECT_TRUE(is_page(found));
  EXPECT_FALSE(is_page(""));
  EXPECT_FALSE(is_page("<!doctype html>\n<html lang=\"en\">\n<head>\n<title>notes</title>"));
  EXPECT_FALSE(is_page(swept_lines()[0].dump()));
}

// The library takes about 240 kB; what a run adds is some 5 kB.
TEST(Page, HundredsOfRunsAreAFewMegabytes) {
  std::vector<json> lines;
  for (int length = 1; length <= 50; ++length)
    for (const double temperature : {0.0, 0.5, 1.0})
      for (const int batch : {1, 4}) lines.push_back(test::swept_line("ngram", length, temperature, batch, 1.5));
  ASSERT_EQ(lines.size(), 300u);
  const std::size_t one = page({lines[0]}, {}).size(), all = page(lines, {}).size();
  EXPECT_LT(one, 400'000u);
  EXPECT_LT(all, one + 300 * 10'000);
}

TEST(Page, NoLinesAreAnError) {
  EXPECT_TRUE(test::says(test::sentence_of([] { page(std::vector<json>{}, {}); }), "there are no results to show"));
}

TEST(Page, ValuesOfAnotherTypeAreAnError) {
  json line = test::worked_line();
  line["axes"] = {{"not a pointer", 1}};
  EXPECT_TRUE(test::says(test::sentence_of([&] { page({line}, {}); }), "measure again")) << "as show has it";
}

TEST(Repeat, ASweepIsTheProductOfItsAxes) {
  std::vector<json> lines = swept_lines();
  const json sweep = sweep_document(view_of(lines).cells);
  ASSERT_FALSE(sweep.is_null());
  EXPECT_FALSE(sweep["base"].contains("drafter"));
  EXPECT_FALSE(sweep["base"]["policy"].contains("length"));
  EXPECT_EQ(sweep["base"]["policy"]["name"], "fixed");
  EXPECT_EQ(sweep["axes"]["/policy/length"], json({2, 8}));
  EXPECT_EQ(sweep["axes"]["/drafter"].size(), 2u);
  lines.pop_back();
  EXPECT_TRUE(sweep_document(view_of(lines).cells).is_null()) << "one combination is missing";
}

TEST(Repeat, OtherResultsHaveNoSweep) {
  std::vector<json> lines = swept_lines();
  lines[0]["run"]["sampling"]["seed"] = 7;
  EXPECT_TRUE(sweep_document(view_of(lines).cells).is_null()) << "two bases";
  lines = swept_lines();
  lines[0].erase("axes");
  EXPECT_TRUE(sweep_document(view_of(lines).cells).is_null());
  json alone = test::worked_line();
  alone.erase("axes");
  EXPECT_EQ(sweep_document(view_of(std::vector<json>{alone}).cells), alone["run"]);
}

TEST(Repeat, CommandsNameTheFilesAndTheCommit) {
  const auto texts = [](const std::vector<json>& lines, const PageFiles& files) {
    const json commands = repeating_commands(view_of(lines), files);
    std::string found;
    for (const json& line : commands.at("lines")) found += line["text"].get<std::string>() + "\n";
    return found;
  };
  std::vector<json> lines = swept_lines();
  for (json& line : lines) line["commit"] = "abc-dirty";
  EXPECT_EQ(texts(lines, {{"my results.jsonl"}, "it's.html"}),
            "git checkout abc\n./foretoken run sweep.json --results again.jsonl\n"
            "./foretoken compare 'my results.jsonl' again.jsonl\n./foretoken show 'my results.jsonl'\n"
            "./foretoken report 'my results.jsonl' --out 'it'\\''s.html'\n");
  PageFiles files{{"a.jsonl", "b.jsonl"}, "r.html", {"/engine/batch=4"}, {.x = "/policy/length", .y = "tau"}};
  EXPECT_TRUE(
      texts(lines, files)
          .ends_with(
              "./foretoken show a.jsonl b.jsonl --where /engine/batch=4\n./foretoken report a.jsonl b.jsonl --where "
              "/engine/batch=4 --x /policy/length --y tau --out r.html\n"))
      << texts(lines, files);
  EXPECT_EQ(texts(lines, files).find("compare"), std::string::npos) << "of two files";
  lines.pop_back();
  lines[0]["commit"] = "def";
  const std::string found = texts(lines, {});
  EXPECT_EQ(found.find("checkout"), std::string::npos) << "several commits measured";
  EXPECT_EQ(found.find("sweep.json"), std::string::npos);
}

TEST(Repeat, WordsOfAShell) {
  EXPECT_EQ(shell_word("a/b-c.jsonl"), "a/b-c.jsonl");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("$(reboot)"), "'$(reboot)'");
}

}  // namespace
}  // namespace foretoken
