// Prompts from any JSON lines, and the selection of a workload.
#include "experiments/sweep/workload.h"

#include <cstdlib>
#include <filesystem>
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
  const char* categories[] = {"story", "writing", "GSM8K", "HumanEval", ""};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(prompts[std::size_t(i)].number, i);
    EXPECT_EQ(prompts[std::size_t(i)].text, texts[i]);
    EXPECT_EQ(prompts[std::size_t(i)].category, categories[i]);
    EXPECT_EQ(prompts[std::size_t(i)].later, (i == 1 ? std::vector<std::string>{"then"} : std::vector<std::string>()));
  }
}

// In words of our own; what tells a layout are its fields, not the name of its file.
TEST(Workload, PublishedDataSetsAreReadAsTheyAre) {
  struct Case {
    const char* line;
    std::vector<std::string> turns;
    const char* category;
  };
  const Case cases[] = {
      {R"({"question_id": 1, "category": "rag", "turns": ["Who?"]})", {"Who?"}, "rag"},
      {R"({"question_id": 2, "category": "math", "turns": ["Add.", "Again."], "reference": ["3", ""]})",
       {"Add.", "Again."},
       "math"},
      {R"({"task_id": "HumanEval/1", "prompt": "def f():", "canonical_solution": "x", "entry_point": "f"})",
       {"def f():"},
       "HumanEval"},
      {R"({"question": "How many?", "answer": "#### 2"})", {"How many?"}, "GSM8K"},
      {R"({"task_id": 11, "text": "Write it.", "code": "pass", "test_list": ["assert 1"], "test_setup_code": ""})",
       {"Write it."},
       "MBPP"},
      {R"({"task_id": 12, "prompt": "Write that.", "code": "pass", "test_imports": [], "test_list": ["assert 1"]})",
       {"Write that."},
       "MBPP"},
      {R"({"question_id": "a1", "category": "hard", "cluster": "Queues", "turns": [{"content": "Why?"}]})",
       {"Why?"},
       "hard"},
      {R"({"uid": "a2", "cluster": "Queues", "turns": [{"content": "Why?"}, {"content": "So?"}]})",
       {"Why?", "So?"},
       "Queues"},
      {R"({"uid": "a3", "category": "creative", "subcategory": "x", "prompt": "Tell."})", {"Tell."}, "creative"},
      {R"({"question_id": "b1", "category": "coding", "sub_category": "c", "turns": ["Sort.", "Now faster."],
           "source": "s", "src_id": "1", "difficulty": "easy", "multiturn": true})",
       {"Sort.", "Now faster."},
       "coding"},
      {R"({"question_id": "b2", "category": "qa", "messages": [{"role": "user", "content": "When?"},
           {"role": "user", "content": "Where?"}]})",
       {"When?", "Where?"},
       "qa"},
  };
  const TemporaryFolder folder;
  for (const Case& c : cases) {
    std::string line = c.line;
    std::erase(line, '\n');
    const auto prompts = read_prompts(folder.write("any.name", line));
    ASSERT_EQ(prompts.size(), 1u) << line;
    EXPECT_EQ(prompts[0].text, c.turns[0]) << line;
    EXPECT_EQ(prompts[0].later, std::vector<std::string>(c.turns.begin() + 1, c.turns.end())) << line;
    EXPECT_EQ(prompts[0].category, c.category) << line;
  }
}

TEST(Workload, AListIsReadAsLinesAre) {
  const TemporaryFolder folder;
  const auto prompts = read_prompts(folder.write(
      "p.json", "[\n  {\n    \"prompt\": \"a\",\n    \"test_list\": []\n  },\n  {\"question\": \"b\"}\n]\n"));
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0].category, "MBPP");
  EXPECT_EQ(prompts[1].number, 1);
  const auto refusal = [&](const std::string& text) {
    return sentence_of([&] { read_prompts(folder.write("p.json", text)); });
  };
  EXPECT_TRUE(says(refusal(R"([{"prompt": "a"}, {"answer": "b"}])"), "p.json, entry 2", "no prompt"));
  EXPECT_TRUE(says(refusal("[1]"), "entry 1", "object"));
  EXPECT_TRUE(says(refusal("[]"), "no prompts"));
  EXPECT_TRUE(says(refusal("PAR1\x15\x04"), "parquet", "JSON lines"));
}

TEST(Workload, CompressedFilesAreRead) {
  const TemporaryFolder folder;
  const std::string file = folder.write("p.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n").string();
  for (const std::string tool : {"gzip", "xz"}) {
    const std::string packed = file + (tool == "xz" ? ".xz" : ".gz");
    ASSERT_EQ(std::system((tool + " -c '" + file + "' > '" + packed + "'").c_str()), 0);
    ASSERT_EQ(read_prompts(packed).size(), 2u) << tool;
    EXPECT_EQ(read_prompts(packed)[1].text, "b");
    std::filesystem::resize_file(packed, std::filesystem::file_size(packed) - 6);
    EXPECT_TRUE(says(sentence_of([&] { read_prompts(packed); }), packed)) << tool << ", cut off";
  }
}

TEST(Workload, UnknownLayoutsListTheKnownOnes) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& line) {
    return sentence_of([&] { read_prompts(folder.write("p.jsonl", line)); });
  };
  for (const char* line : {R"({"instruction": "Do.", "output": "Done."})", R"({"turns": [{"text": "a"}]})",
                           R"({"messages": [{"role": "system", "content": "a"}]})", R"({"prompt": null})"})
    EXPECT_TRUE(says(refusal(line), "p.jsonl:1", "Spec-Bench", "MT-bench", "SPEED-Bench", "Arena-Hard", "HumanEval",
                     "GSM8K", "MBPP"))
        << line;
  EXPECT_TRUE(says(refusal(R"({"turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING X"]})"),
                   "p.jsonl:1", "SPEED-Bench", "fetch"));
}

// Whatever the prompts' own lengths: the demo prompts have some tens of tokens. The form has tokens before and behind
// each.
TEST(Workload, PromptsHaveExactlyTheTokensAskedFor) {
  const TemporaryFolder folder;
  for (const auto& entry : std::filesystem::directory_iterator(locate("experiments/models/target")))
    std::filesystem::create_symlink(std::filesystem::absolute(entry.path()), folder.path() / entry.path().filename());
  folder.write("chat_template.jinja", "Somebody asks: {{ messages[-1]['content'] }}\n\nThe answer is:");
  Workbench bench;
  const auto jobs = [&](const std::string& chat, const json& tokens) {
    json changes{{"target", {{"model", folder.path().string()}}}};
    changes["workload"] = {{"limit", 12}, {"chat", chat}, {"prompt_tokens", tokens}};
    return jobs_of(complete_run(demo(changes), bench.registries(), "test"), bench, "");
  };
  for (const auto& [chat, behind] : {std::pair("none", 0), std::pair("auto", 5)}) {
    const auto plain = jobs(chat, nullptr);
    for (const int tokens : {20, 300}) {
      const auto exact = jobs(chat, tokens);
      ASSERT_EQ(exact.size(), plain.size());
      std::set<std::vector<Token>> different;
      for (std::size_t i = 0; i < exact.size(); ++i) {
        const std::vector<Token>&now = exact[i].request.prompt, &before = plain[i].request.prompt;
        ASSERT_EQ(now.size(), std::size_t(tokens)) << chat;
        const auto text = std::ptrdiff_t(std::min(now.size(), before.size())) - behind - 1;  // the last piece may join
        EXPECT_TRUE(std::equal(now.begin(), now.begin() + text, before.begin())) << chat;
        EXPECT_TRUE(std::equal(now.end() - behind, now.end(), before.end() - behind)) << chat;
        different.insert(now);
      }
      EXPECT_TRUE(tokens == 20 || different.size() == exact.size()) << chat;
    }
  }
  EXPECT_TRUE(says(sentence_of([&] { jobs("auto", 4); }), "'/workload/prompt_tokens'", "is 4", "raise it"));
}

TEST(Workload, ATokenCountThatIsNoneIsRefused) {
  Workbench bench;
  const auto refusal = [&](const json& tokens, int turns = 1) {
    return sentence_of([&] {
      complete_run(demo({{"workload", {{"prompt_tokens", tokens}, {"turns", turns}}}}), bench.registries(), "test");
    });
  };
  for (const json& tokens : {json(0), json(-1), json("many"), json(1.5), json(1e8)})
    EXPECT_TRUE(says(refusal(tokens), "'/workload/prompt_tokens'", "integer", ">= 1")) << tokens;
  EXPECT_TRUE(says(refusal(100, 2), "'/workload/prompt_tokens'", "'/workload/turns' to 1"));
  EXPECT_EQ(refusal(100), "");
  const json without = complete_run(demo(json::object()), bench.registries(), "test");
  EXPECT_FALSE(without["workload"].contains("prompt_tokens")) << "runs without it keep their keys";
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
  EXPECT_TRUE(says(refusal("{\"turns\": [\"a\", 3]}"), "p.jsonl:2", "a list 'turns' of strings"));
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
