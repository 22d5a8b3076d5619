// Files of results after a crash, with a second process, and on a full disk.
#include "experiments/report/results.h"

#include <csignal>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/experiments/report/results_files.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

TEST(Results, AreFoundAgainAndFailuresAreNot) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "a" / "b" / "r.jsonl";
  {
    ResultsFile results(file);
    results.append(made(line_of("1")));
    json failed = line_of("2");
    failed["error"] = "no";
    results.append(made(failed));
    EXPECT_TRUE(results.has(key("1")));
    EXPECT_FALSE(results.has(key("2")));
  }
  ResultsFile again(file);
  EXPECT_TRUE(again.has(key("1")));
  EXPECT_EQ(again.origin_of(key("1")).commit, "c\u00e9\n");
  EXPECT_FALSE(again.has(key("2")));
  EXPECT_EQ(load_results(file).size(), 2u);
}

// A process may be killed after any byte.
TEST(Results, ATornLastLineIsCutOffWhereverItWasTorn) {
  const std::string first = written(line_of("1")), second = written(empty_line_of("2"));
  for (std::size_t kept = 0; kept + 1 < second.size(); ++kept) {
    const TemporaryFolder folder;
    const auto file = folder.write("r.jsonl", first + second.substr(0, kept));
    testing::internal::CaptureStderr();
    EXPECT_EQ(load_results(file).size(), 1u) << kept;
    ResultsFile results(file);
    const std::string notice = testing::internal::GetCapturedStderr();
    EXPECT_EQ(notice.find("incomplete") != std::string::npos, kept > 0) << notice;
    EXPECT_EQ(bytes_of(file), first) << kept;
    EXPECT_TRUE(results.has(key("1")));
    results.append(made(empty_line_of("2")));
    EXPECT_EQ(bytes_of(file), first + second) << kept;
  }
}

TEST(Results, ATornMeasurementIsNotDone) {
  const std::string whole = written(line_of("2"));
  for (const std::size_t kept : {std::size_t(1), whole.size() / 2, whole.size() - 2}) {
    const TemporaryFolder folder;
    const auto file = folder.write("r.jsonl", whole.substr(0, kept));
    ResultsFile results(file);
    EXPECT_FALSE(results.has(key("2"))) << kept;
    results.append(made(line_of("2")));
    EXPECT_TRUE(results.has(key("2"))) << kept;
  }
}

TEST(Results, ATornFirstLineIsCutOffToo) {
  const std::string line = written(empty_line_of("1"));
  for (std::size_t kept = 1; kept + 1 < line.size(); ++kept) {
    const TemporaryFolder folder;
    const auto file = folder.write("r.jsonl", line.substr(0, kept));
    testing::internal::CaptureStderr();
    ResultsFile results(file);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("incomplete"), std::string::npos) << kept;
    EXPECT_EQ(bytes_of(file), "") << kept;
  }
}

// The line with another value on one side.
json line_with(const char* field, const json& value) {
  json line = line_of("1");
  line["repeats"][0]["speculative"][field] = value;
  return line;
}

// A run is done only if figures can be computed from its line; its last line counts.
TEST(Results, ALineWithoutMeasurementOrErrorIsNotDone) {
  const json whole = line_of("1");
  for (const json& line : {line_with("requests", json::array()), line_with("seconds", 9)}) {
    const TemporaryFolder folder;
    const auto file = folder.write("r.jsonl", whole.dump() + "\n" + line.dump() + "\n");
    testing::internal::CaptureStderr();
    ResultsFile results(file);
    const std::string notice = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(says(notice, "r.jsonl:2", "measured again")) << line;
    EXPECT_FALSE(results.has(key("1"))) << line;
    results.append(made(whole));
    testing::internal::CaptureStderr();
    EXPECT_TRUE(results.has(key("1")));
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  }
}

TEST(Results, AKeyThatIsNotThatOfItsRunIsRefused) {
  const TemporaryFolder folder;
  json line = line_of("2");
  line["run"]["name"] = "3";
  const std::string bytes = line_of("1").dump() + "\n" + line.dump() + "\n";
  const auto file = folder.write("r.jsonl", bytes);
  EXPECT_TRUE(says(sentence_of([&] { load_results(file); }), "r.jsonl:2", "'key'", key("3"), "remove it"));
  EXPECT_TRUE(says(sentence_of([&] { ResultsFile results(file); }), "r.jsonl:2", "'key'"));
  EXPECT_EQ(bytes_of(file), bytes);
}

TEST(Results, TypesOfOtherFieldsAreChecked) {
  const TemporaryFolder folder;
  for (const char* field : {"commit", "error", "promise", "axes", "machine", "agreement", "sources"}) {
    json line = line_of("1");
    line[field] = 7;
    const auto file = folder.write("r.jsonl", line.dump() + "\n");
    EXPECT_TRUE(says(sentence_of([&] { load_results(file); }), "r.jsonl:1", field, "is 7", "remove it"));
  }
}

TEST(Results, OfAnEarlierSchemaAreConvertedFirst) {
  const TemporaryFolder folder;
  json line = line_of("1");
  line["schema"] = 1;
  const auto file = folder.write("r.jsonl", line.dump() + "\n");
  for (const std::string& refusal :
       {sentence_of([&] { load_results(file); }), sentence_of([&] { ResultsFile results(file); })})
    EXPECT_TRUE(says(refusal, "r.jsonl:1", "schema 1", "foretoken convert FILE --out NEW")) << refusal;
}

TEST(Results, ThatAreDiscardedCountAgainWhenTheyAreMeasured) {
  const TemporaryFolder folder;
  ResultsFile results(folder.path() / "r.jsonl");
  results.append(made(line_of("1")));
  results.discard(key("1"));
  EXPECT_FALSE(results.has(key("1")));
  EXPECT_TRUE(results.discarded(key("1")));
  results.append(made(line_of("1")));
  EXPECT_TRUE(results.has(key("1")));
  EXPECT_FALSE(results.discarded(key("1")));
}

// An editor may remove the last newline; the run is complete.
TEST(Results, AWholeLastLineWithoutNewlineIsKept) {
  const TemporaryFolder folder;
  const std::string both = line_of("1").dump() + "\n" + line_of("2").dump();
  const auto file = folder.write("r.jsonl", both);
  EXPECT_EQ(load_results(file).size(), 2u);
  EXPECT_EQ(bytes_of(file), both) << "reading changes nothing";
  {
    ResultsFile results(file);
    EXPECT_TRUE(results.has(key("2")));
    results.append(made(line_of("3")));
  }
  EXPECT_EQ(bytes_of(file), both + "\n" + written(line_of("3")));
}

// Files named by mistake are not changed: a document of one line, notes, half of another JSON file.
TEST(Results, FilesOfOthersAreRefusedAndKept) {
  for (const std::string bytes : {"{\"base\": {}, \"axes\": {}}", "{\"axes\":{\"/policy/length\":[1,2]},\"base\":{}",
                                  "{\"axes\":", "some notes", "{\"base\": {", "[1, 2", "   {\"a\"", "null"}) {
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
      says(sentence_of([&] { load_results(folder.write("s.jsonl", "{\"schema\": 3}\n")); }), "s.jsonl:1", "schema"));
  EXPECT_TRUE(says(sentence_of([&] { load_results(folder.path() / "none"); }), "none"));
}

TEST(Results, OneProcessAtATime) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "r.jsonl";
  const ResultsFile first(file);
  EXPECT_TRUE(says(sentence_of([&] { ResultsFile second(file); }), "another process", "--results"));
  EXPECT_TRUE(says(sentence_of([&] { set_aside(file, result_lines()); }), "another process"));
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

// A limit on the size of files simulates a full disk: a write is cut short, then refused.
TEST(Results, AFullDiskLeavesTheFileAsItWas) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "r.jsonl";
  ResultsFile results(file);
  results.append(made(line_of("1")));
  const std::string before = bytes_of(file);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit full{before.size() + 10, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  const std::string refusal = sentence_of([&] { results.append(made(line_of("2"))); });
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(says(refusal, "r.jsonl", "kept"));
  EXPECT_EQ(bytes_of(file), before);
  EXPECT_FALSE(results.has(key("2")));
  results.append(made(line_of("2")));
  EXPECT_EQ(load_results(file).size(), 2u);
}

}  // namespace
}  // namespace foretoken::test
