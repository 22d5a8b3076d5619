// Files of results: what a crash leaves, what a second process gets, and what a full disk does.
#include "experiments/report/results.h"

#include <csignal>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

json line_of(const std::string& key) { return {{"schema", 1}, {"key", key}, {"run", json::object()}, {"commit", "c"}}; }
std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Results, AreFoundAgainAndFailuresAreNot) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "a" / "b" / "r.jsonl";
  {
    ResultsFile results(file);
    results.append(line_of("1"));
    json failed = line_of("2");
    failed["error"] = "no";
    results.append(failed);
    EXPECT_TRUE(results.has("1"));
    EXPECT_FALSE(results.has("2"));
  }
  ResultsFile again(file);
  EXPECT_TRUE(again.has("1"));
  EXPECT_EQ(again.origin_of("1"), json({{"commit", "c"}, {"machine", nullptr}, {"sources", nullptr}}));
  EXPECT_FALSE(again.has("2"));
  EXPECT_EQ(load_results(file).size(), 2u);
}

// A process may be killed after any byte.
TEST(Results, ATornLastLineIsCutOffWhereverItWasTorn) {
  const std::string first = line_of("1").dump() + "\n", second = line_of("2").dump() + "\n";
  for (std::size_t kept = 0; kept + 1 < second.size(); ++kept) {
    const TemporaryFolder folder;
    const auto file = folder.write("r.jsonl", first + second.substr(0, kept));
    testing::internal::CaptureStderr();
    EXPECT_EQ(load_results(file).size(), 1u) << kept;
    ResultsFile results(file);
    const std::string notice = testing::internal::GetCapturedStderr();
    EXPECT_EQ(notice.find("incomplete") != std::string::npos, kept > 0) << notice;
    EXPECT_EQ(bytes_of(file), first) << kept;
    EXPECT_TRUE(results.has("1"));
    EXPECT_FALSE(results.has("2"));
    results.append(line_of("2"));
    EXPECT_EQ(bytes_of(file), first + second) << kept;
  }
}

TEST(Results, ATornFirstLineIsCutOffToo) {
  for (const std::string torn : {"{", "{\"agre", "{\"agreement\":{\"compared\":tr", "{\"axes\":{\"/policy"}) {
    const TemporaryFolder folder;
    const auto file = folder.write("r.jsonl", torn);
    testing::internal::CaptureStderr();
    ResultsFile results(file);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("incomplete"), std::string::npos) << torn;
    EXPECT_EQ(bytes_of(file), "") << torn;
  }
}

// An editor may take the last newline away; the run is whole.
TEST(Results, AWholeLastLineWithoutNewlineIsKept) {
  const TemporaryFolder folder;
  const std::string both = line_of("1").dump() + "\n" + line_of("2").dump();
  const auto file = folder.write("r.jsonl", both);
  EXPECT_EQ(load_results(file).size(), 2u);
  EXPECT_EQ(bytes_of(file), both) << "reading changes nothing";
  {
    ResultsFile results(file);
    EXPECT_TRUE(results.has("2"));
    results.append(line_of("3"));
  }
  EXPECT_EQ(bytes_of(file), both + "\n" + line_of("3").dump() + "\n");
}

// Whatever was named by mistake survives: a document of one line, notes, a half of another JSON file.
TEST(Results, FilesOfOthersAreRefusedAndKept) {
  for (const std::string bytes :
       {"{\"base\": {}, \"axes\": {}}", "some notes", "{\"base\": {", "[1, 2", "   {\"a\"", "null"}) {
    const TemporaryFolder folder;
    const auto file = folder.write("sweep.json", bytes);
    EXPECT_TRUE(says(sentence_of([&] { ResultsFile results(file); }), "sweep.json:1", "name a")) << bytes;
    EXPECT_TRUE(says(sentence_of([&] { load_results(file); }), "sweep.json:1", "name a")) << bytes;
    EXPECT_EQ(bytes_of(file), bytes);
  }
}

TEST(Results, OtherDamageIsRefusedAndKept) {
  const TemporaryFolder folder;
  const std::string bytes = line_of("1").dump() + "\n{\"key\n" + line_of("2").dump() + "\n";
  const auto file = folder.write("r.jsonl", bytes);
  EXPECT_TRUE(says(sentence_of([&] { load_results(file); }), "r.jsonl:2"));
  EXPECT_TRUE(says(sentence_of([&] { ResultsFile results(file); }), "r.jsonl:2"));
  EXPECT_EQ(bytes_of(file), bytes);
  EXPECT_TRUE(
      says(sentence_of([&] { load_results(folder.write("s.jsonl", "{\"schema\": 2}\n")); }), "s.jsonl:1", "schema"));
  EXPECT_TRUE(says(sentence_of([&] { load_results(folder.path() / "none"); }), "none"));
}

TEST(Results, OneProcessAtATime) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "r.jsonl";
  const ResultsFile first(file);
  EXPECT_TRUE(says(sentence_of([&] { ResultsFile second(file); }), "another process", "--results"));
  EXPECT_TRUE(says(sentence_of([&] { set_aside(file); }), "another process"));
}

TEST(Results, PlacesThatCannotBeWrittenAreNamed) {
  const TemporaryFolder folder;
  EXPECT_TRUE(says(sentence_of([&] { ResultsFile results(folder.path()); }), folder.path().string(), "--results"));
  EXPECT_TRUE(says(sentence_of([&] { ResultsFile results("/dev/full"); }), "/dev/full", "--results"));
  EXPECT_TRUE(says(sentence_of([&] { ResultsFile results(folder.write("f", "") / "r.jsonl"); }), "--results"));
  if (::geteuid() != 0) {
    ::chmod(folder.path().c_str(), 0500);
    EXPECT_TRUE(says(sentence_of([&] { ResultsFile results(folder.path() / "r.jsonl"); }), "r.jsonl", "--results"));
    ::chmod(folder.path().c_str(), 0700);
  }
}

// A limit on the size of files stands for a full disk: a write is cut short, then refused.
TEST(Results, AFullDiskLeavesTheFileAsItWas) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "r.jsonl";
  ResultsFile results(file);
  results.append(line_of("1"));
  const std::string before = bytes_of(file);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit full{before.size() + 10, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  const std::string refusal = sentence_of([&] { results.append(line_of("2")); });
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(says(refusal, "r.jsonl", "kept"));
  EXPECT_EQ(bytes_of(file), before);
  EXPECT_FALSE(results.has("2"));
  results.append(line_of("2"));
  EXPECT_EQ(load_results(file).size(), 2u);
}

TEST(Results, AreSetAside) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "r.jsonl";
  set_aside(file);
  folder.write("r.jsonl", "new"), folder.write("r.jsonl.1", "old");
  set_aside(file);
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_EQ(bytes_of(file.string() + ".1"), "new");
}

}  // namespace
}  // namespace foretoken::test
