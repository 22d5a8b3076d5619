// Files of JSON lines that this program did not write, or not alone, are not changed.
#include "experiments/report/json_lines.h"

#include <gtest/gtest.h>

#include "tests/experiments/report/results_files.h"

namespace foretoken::test {
namespace {

// A last line without newline is cut off only if this program wrote it.
TEST(JsonLines, ANoteWithoutNewlineIsRefusedAndKept) {
  const std::string first = written(line_of("1")), second = written(line_of("2"));
  for (const std::string& note :
       {std::string("measured while another job ran"), std::string("{\"note\": \"x"),
        std::string("{\"axes\":{\"/policy"), std::string("42"), std::string("\"words\""),
        second.substr(0, 60) + std::string(3, '\0') + "my note", second.substr(0, second.size() - 2) + " my note",
        second.substr(0, 40) + std::string(8, '\0')}) {
    const TemporaryFolder folder;
    const auto file = folder.write("r.jsonl", first + note);
    EXPECT_TRUE(says(sentence_of([&] { ResultsFile results(file); }), "r.jsonl:2", "name a")) << note;
    EXPECT_TRUE(says(sentence_of([&] { load_results(file); }), "r.jsonl:2")) << note;
    EXPECT_EQ(bytes_of(file), first + note);
  }
}

TEST(JsonLines, ANoteThatIsAppendedMeanwhileStaysALineOfItsOwn) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "r.jsonl";
  ResultsFile results(file);
  results.append(made(line_of("1")));
  std::ofstream(file, std::ios::app) << "my note";
  results.append(made(line_of("2")));
  EXPECT_EQ(bytes_of(file), written(line_of("1")) + "my note\n" + written(line_of("2")));
  EXPECT_TRUE(says(sentence_of([&] { load_results(file); }), "r.jsonl:2", "added by hand", "remove it"));
}

TEST(JsonLines, AreSetAsideAndReplaceNothing) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "r.jsonl";
  EXPECT_EQ(set_aside(file, result_lines()), "");
  folder.write("r.jsonl", "");
  EXPECT_EQ(set_aside(file, result_lines()), "") << "an empty file can be written to";
  const std::string first = written(line_of("1")), second = written(line_of("2"));
  folder.write("r.jsonl", first), folder.write("r.jsonl.1", "somebody's");
  EXPECT_EQ(set_aside(file, result_lines()), file.string() + ".2");
  folder.write("r.jsonl", second);
  EXPECT_EQ(set_aside(file, result_lines()), file.string() + ".3");
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_EQ(bytes_of(file.string() + ".1"), "somebody's");
  EXPECT_EQ(bytes_of(file.string() + ".2"), first);
  EXPECT_EQ(bytes_of(file.string() + ".3"), second);
}

TEST(JsonLines, FilesOfOthersAreNotSetAside) {
  for (const std::string bytes : {"older\n", "some notes", "{\"base\": {}}", "{}\n"}) {
    const TemporaryFolder folder;
    const auto file = folder.write("r.jsonl", bytes);
    EXPECT_TRUE(says(sentence_of([&] { set_aside(file, result_lines()); }), "r.jsonl:1", "name")) << bytes;
    EXPECT_TRUE(says(sentence_of([&] { expect_json_lines(file, result_lines()); }), "r.jsonl:1", "name")) << bytes;
    EXPECT_EQ(bytes_of(file), bytes);
    EXPECT_FALSE(std::filesystem::exists(file.string() + ".1"));
  }
}

}  // namespace
}  // namespace foretoken::test
