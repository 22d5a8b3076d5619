// Every format of every table, of lines of every sort, as tests/data/report/ has it. With FORETOKEN_UPDATE_GOLDEN set
// the files are written anew: look at what changed.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "experiments/report/page.h"
#include "experiments/report/report.h"
#include "tests/experiments/report/made_results.h"
#include "tests/support/source.h"

namespace foretoken {
namespace {

using nlohmann::json;

// What newer versions count besides, with numbers of its own for every line, repeat and side.
void add_details(json& line, int number) {
  int i = 10 * number;
  for (json& repeat : line["repeats"])
    for (const char* name : {"speculative", "baseline"}) {
      json& side = repeat[name];
      ++i;
      side.update({{"recorded", i % 3},
                   {"unrecorded", i % 5},
                   {"cut", number % 2},
                   {"preempted", i % 4},
                   {"prefix_rows", 5 + i % 7}});
      side["memory"] = {{"target_weights", 5e8 + i},
                        {"draft_weights", 1.25e8},
                        {"cache", 2.5e8},
                        {"cache_used", 1e6 * i},
                        {"scratch", 3e7 + 1e5 * i}};
      side["gaps"] = {{"700", 90}, {std::to_string(720 + i), 9}, {"800", 1}};
      for (json& r : side["requests"]) {
        const int rounds = r["rounds"], accepted = r["accepted"];
        r.update({{"first_tokens", 2},
                  {"steady_tokens", r["tokens"].get<int>() / 2},
                  {"steady_seconds", (0.3 + 0.01 * (i % 5)) * r["share_seconds"].get<double>()},
                  {"log_probability", -1.5 * r["tokens"].get<double>()},
                  {"tested_at", {rounds, std::max(0, r["tested"].get<int>() - rounds)}},
                  {"accepted_at", {accepted / 2, accepted / 4}}});
      }
    }
}

// The line's prompts twice or more, so that its categories have intervals.
void add_prompts(json& line, int times) {
  for (json& repeat : line["repeats"])
    for (const char* name : {"speculative", "baseline"}) {
      json& side = repeat[name];
      const json requests = side["requests"];
      double seconds = side["seconds"];
      for (int k = 1; k < times; ++k)
        for (json r : requests) {
          r["prompt"] = r["prompt"].get<int>() + 100 * k;
          r["share_seconds"] = r["share_seconds"].get<double>() * (1 + 0.03 * k);
          seconds += r["share_seconds"].get<double>();
          side["requests"].push_back(r);
        }
      side["seconds"] = seconds;
      for (const char* key : {"tokens", "rounds", "drafted", "tested", "accepted", "prompt_tokens"})
        side[key] = times * side[key].get<int>();
    }
}

std::vector<json> lines_of_every_sort() {
  std::vector<json> lines = test::swept_lines();
  for (std::size_t i = 0; i < lines.size(); ++i) add_details(lines[i], int(i));
  add_prompts(lines[0], 3), add_prompts(lines[3], 2);
  lines[1]["shared_baseline"] = true;
  lines[2]["machine"] = {{"device", "cuda"}, {"description", "NVIDIA H200, 132 multiprocessors"}, {"cpu", "a CPU"}};
  lines[2]["repeats"].erase(1);
  lines[4]["repeats"].erase(1), lines[4]["commit"] = "def-dirty";
  lines[5]["agreement"] = {{"compared", true}, {"compared_texts", 12}, {"differing_texts", 3}};
  lines[6]["alternations"] = {{"compared", true},
                              {"differing", {{{"side", "baseline"}, {"repeat", 1}, {"requests", 2}}}}};
  lines[7].erase("repeats"), lines[7]["error"] = "the pool is too small; raise /engine/memory_mib";
  for (int i = 8; i < 12; ++i) lines[std::size_t(i)]["promise"] = "lossy: typical acceptance, epsilon .3";
  lines[12]["promise"] = "";
  lines[13]["run"]["policy"]["name"] = "rising";
  return lines;
}

// A few of them, for formats that say much of each.
std::vector<json> few_of_them() {
  std::vector<json> few;
  const std::vector<json> all = lines_of_every_sort();
  for (const std::size_t i : {0, 2, 5, 7, 9}) few.push_back(all[i]);
  return few;
}

// Equal but for the last digits of numbers, which compilers may calculate otherwise.
bool alike(const std::string& a, const std::string& b) {
  const char *x = a.c_str(), *y = b.c_str();
  while (*x && *y) {
    char *after_x = nullptr, *after_y = nullptr;
    const double p = std::strtod(x, &after_x), q = std::strtod(y, &after_y);
    if (after_x == x || after_y == y) {
      if (*x++ != *y++) return false;
    } else {
      if (!(std::abs(p - q) <= 1e-9 * std::max(1.0, std::abs(q))) && std::isfinite(q)) return false;
      x = after_x, y = after_y;
    }
  }
  return *x == *y;
}

void expect_written(const std::string& name, const std::string& found) {
  const std::string file = "tests/data/report/" + name;
  if (std::getenv("FORETOKEN_UPDATE_GOLDEN"))
    std::ofstream(std::filesystem::path(FORETOKEN_SOURCE_DIR) / file) << found;
  const auto now = test::split_lines(found), before = test::split_lines(test::read_source(file));
  EXPECT_EQ(now.size(), before.size()) << file;
  for (std::size_t i = 0; i < std::min(now.size(), before.size()); ++i)
    EXPECT_TRUE(alike(now[i], before[i])) << file << ", line " << i + 1 << ", is now\n"
                                          << now[i] << "\nand was\n"
                                          << before[i];
}

TEST(WrittenDown, TablesForPeople) {
  expect_written("show.txt", show(lines_of_every_sort(), {"terminal", {}, 118}));
  expect_written("show.md", show(lines_of_every_sort(), {"markdown", {}, 118}));
  std::vector<json> one{test::line_with_a_failure()};
  add_details(one[0], 1);
  expect_written("failure.txt", show(one, {"terminal", {}, 90}));
}

TEST(WrittenDown, TablesForPrograms) {
  for (const char* table : {"main", "theory", "positions", "categories", "latency", "phases", "memory", "best"})
    expect_written(table + std::string(".csv"), show(lines_of_every_sort(), {"csv", {table}, 0}));
  expect_written("show.json", show(few_of_them(), {"json", {}, 0}));
}

// Which digits a figure has, though CSV has all of them.
TEST(WrittenDown, EveryFigure) { expect_written("figures.md", figures_table(view_of(few_of_them())).markdown()); }

TEST(WrittenDown, ThePage) {
  json payload = page_payload(view_of(few_of_them()), {{"results/some.jsonl"}, "some.html"});
  payload.erase("made");
  expect_written("page.json", payload.dump(1));
}

TEST(WrittenDown, Comparisons) {
  std::vector<json> a = lines_of_every_sort(), b = lines_of_every_sort();
  for (std::size_t i = 0; i < b.size(); ++i)
    for (json& repeat : b[i]["repeats"])
      for (json& r : repeat["speculative"]["requests"]) r["tokens"] = r["tokens"].get<int>() + int(i % 5) - 1;
  for (std::size_t i = 0; i < b.size(); ++i)
    for (json& repeat : b[i]["repeats"])
      repeat["speculative"]["tokens"] =
          repeat["speculative"]["tokens"].get<int>() + (int(i % 5) - 1) * int(repeat["speculative"]["requests"].size());
  a.erase(a.begin() + 4), b.erase(b.begin() + 14);
  b[10]["promise"] = "exact";
  b[3]["sources"] = {{"experiments/prompts.jsonl", "xxh3:1"}, {"m", "xxh3:2"}};
  a[3]["sources"] = {{"experiments/prompts.jsonl", "xxh3:3"}, {"m", "xxh3:4"}};
  for (const auto& [format, ending] :
       {std::pair("terminal", ".txt"), {"markdown", ".md"}, {"csv", ".csv"}, {"json", ".json"}})
    expect_written(std::string("compare") + ending, compare(a, b, {format, "old", "new", {}, 118}));
}

}  // namespace
}  // namespace foretoken
