// Prompts from any JSON lines, and the selection of a workload.
#include "experiments/sweep/workload.h"

#include <limits>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "experiments/sweep/jobs.h"
#include "tests/experiments/sweep/demo_runs.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

TEST(Workload, TakesTheUsualShapesOfLines) {
  const TemporaryFolder folder;
  const auto prompts = read_prompts(folder.write("p.jsonl", R"({"prompt": "a", "category": "story"}

{"question_id": 81, "category": "writing", "turns": ["b", "then"], "reference": ["x"]}
{"question": "c", "answer": "#### 4"}
{"task_id": "HumanEval/0", "prompt": "d\n", "entry_point": "f", "category": 7}
{"text": "e"})"));
  ASSERT_EQ(prompts.size(), 5u);
  const char* texts[] = {"a", "b", "c", "d\n", "e"};
  const char* categories[] = {"story", "writing", "", "", ""};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(prompts[std::size_t(i)].number, i);
    EXPECT_EQ(prompts[std::size_t(i)].text, texts[i]);
    EXPECT_EQ(prompts[std::size_t(i)].category, categories[i]);
    EXPECT_EQ(prompts[std::size_t(i)].later, (i == 1 ? std::vector<std::string>{"then"} : std::vector<std::string>()));
  }
}

TEST(Workload, MalformedLinesAreNamed) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& text) {
    return sentence_of([&] { read_prompts(folder.write("p.jsonl", "{\"prompt\": \"a\"}\n" + text)); });
  };
  EXPECT_TRUE(says(refusal("{\"prompt\": \"b\""), "p.jsonl:2", "JSON"));
  EXPECT_TRUE(says(refusal("\n[1]"), "p.jsonl:3", "object"));
  EXPECT_TRUE(says(refusal("{\"answer\": \"b\"}"), "p.jsonl:2", "prompt", "turns"));
  EXPECT_TRUE(says(refusal("{\"prompt\": 3}"), "p.jsonl:2", "prompt"));
  EXPECT_TRUE(says(refusal("{\"turns\": []}"), "p.jsonl:2", "turns"));
  EXPECT_TRUE(says(refusal("{\"prompt\": \"\"}"), "p.jsonl:2", "empty"));
  EXPECT_TRUE(says(refusal("{\"turns\": [\"a\", \"\"]}"), "p.jsonl:2", "empty"));
  EXPECT_TRUE(says(refusal("{\"turns\": [\"a\", 3]}"), "p.jsonl:2", "a list of strings 'turns'"));
  EXPECT_TRUE(says(refusal("{\"prompt\": \"\xff\"}"), "p.jsonl:2"));
  EXPECT_TRUE(says(sentence_of([&] { read_prompts(folder.path() / "none.jsonl"); }), "none.jsonl"));
  EXPECT_TRUE(says(sentence_of([&] { read_prompts(folder.path()); }), "JSONL"));
  EXPECT_TRUE(says(sentence_of([&] { read_prompts(folder.write("empty.jsonl", "\n")); }), "no prompts"));
}

// A read error is not the end of the file, and nothing waits for the writer of a pipe.
TEST(Workload, WhatCannotBeReadToItsEndIsRefused) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(says(sentence_of([&] { read_prompts(folder.path() / "pipe"); }), "pipe'", "a pipe", "JSONL"));
  EXPECT_TRUE(says(sentence_of([] { read_prompts("/proc/self/mem"); }), "/proc/self/mem", "Input/output error"));
  EXPECT_TRUE(says(sentence_of([] { read_prompts("/dev/null"); }), "/dev/null", "device"));
}

TEST(Workload, TheSixtyPromptsAreTenOfEachFamily) {
  const auto all = read_prompts(locate("experiments/prompts.jsonl"));
  for (const int limit : {6, 18, 30}) {
    std::map<std::string, int> by_family;
    for (const Prompt& p : choose_prompts(all, {}, limit)) ++by_family[p.category];
    EXPECT_EQ(by_family.size(), 6u);
    for (const auto& [family, n] : by_family) EXPECT_EQ(n, limit / 6) << family;
  }
}

TEST(Workload, ChoosesInTheOrderOfTheFile) {
  std::vector<Prompt> all;
  for (int i = 0; i < 9; ++i) all.push_back({i, "x", i < 6 ? "a" : "b"});
  const auto numbers = [&](const std::vector<std::string>& categories, int limit, int skip = 0) {
    std::vector<int> found;
    for (const Prompt& p : choose_prompts(all, categories, limit, skip)) found.push_back(p.number);
    return found;
  };
  EXPECT_EQ(numbers({}, 4), (std::vector<int>{0, 1, 6, 7}));
  EXPECT_EQ(numbers({}, 8), (std::vector<int>{0, 1, 2, 3, 4, 6, 7, 8}));
  EXPECT_EQ(numbers({"b"}, 0), (std::vector<int>{6, 7, 8}));
  EXPECT_EQ(numbers({}, 0).size(), 9u);
  EXPECT_EQ(numbers({}, 100).size(), 9u);
  EXPECT_EQ(numbers({}, 4, 4), (std::vector<int>{2, 3, 4, 8})) << "none of the first four that are taken without";
  EXPECT_EQ(numbers({}, 0, 8), (std::vector<int>{5}));
  EXPECT_TRUE(says(sentence_of([&] { numbers({}, 0, 9); }), "'/workload/skip'", "9 prompts", "there are 9"));
  EXPECT_TRUE(says(sentence_of([&] { choose_prompts(all, {"c"}, 0); }), "'c'", "a, b"));
}

// A run that chooses takes more prompts than its limit where the batch needs them: another that skips the limit would
// measure some of these again.
TEST(Workload, SkippedPromptsAreThoseOfTheOther) {
  Workbench bench;
  const auto refusal = [&](int limit, int skip) {
    const json run = complete_run(demo({{"engine", {{"batch", 4}}}, {"workload", {{"limit", limit}, {"skip", skip}}}}),
                                  bench.registries(), "test");
    return sentence_of([&] { (void)jobs_of(run, bench, ""); });
  };
  EXPECT_TRUE(says(refusal(3, 3), "'/workload/limit' is 3", "the batch needs ", "'/workload/skip'", "raise the limit"));
  EXPECT_EQ(refusal(3, 0), "");
  EXPECT_EQ(refusal(0, 3), "");
  EXPECT_EQ(refusal(24, 24), "");
}

// The greatest numbers that a run may ask for: samples times repeats, and turns.
TEST(Workload, StreamsOfDifferentRequestsAreDifferent) {
  std::set<std::uint64_t> streams;
  const std::uint64_t samples[] = {0, 1, 65535, 65536, 1024 * 1000 - 1}, parts[] = {0, 1, 999, 4095};
  for (const int prompt : {0, 1, std::numeric_limits<int>::max()})
    for (const std::uint64_t sample : samples)
      for (const std::uint64_t part : parts) streams.insert(stream_of(prompt, sample, part));
  EXPECT_EQ(streams.size(), 3u * 5 * 4);
  EXPECT_EQ(stream_of(7, 3), 3ull << 32 | 7) << "as committed results have been drawn";
  EXPECT_TRUE(says(sentence_of([] { stream_of(0, 0, 4096); }), "number 4096", "'/workload/turns'", "soak test"));
  EXPECT_TRUE(
      says(sentence_of([] { stream_of(0, 1 << 20); }), "sample of a prompt is number 1048576", "'/sampling/samples'"));
}

}  // namespace
}  // namespace foretoken::test
