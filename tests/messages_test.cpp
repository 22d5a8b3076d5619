// What sentences name exists: options of commands, keys of runs, members of the interface.
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "experiments/sweep/run_document.h"
#include "tests/support/source.h"

namespace foretoken::test {
namespace {

const std::vector<std::string> kSpeaking = {"kernels", "framework", "drafters", "verifiers", "experiments"};
const std::vector<std::string> kCode = {".h", ".cpp", ".cu", ".cuh"};

// What `pattern` captures in a text.
std::vector<std::string> captured(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> all;
  for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at) all.push_back((*at)[1]);
  return all;
}

struct Literal {
  std::string file, text;
};

// Neighbours are one sentence, whatever is put between them: a name is never broken between two.
std::vector<Literal> literals() {
  static const std::regex literal(R"re("((?:[^"\\\n]|\\.)*)")re");
  std::vector<Literal> all;
  for (const SourceFile& file : read_sources(kSpeaking, kCode))
    for (const std::string& text : captured(without_comments(file.text), literal)) all.push_back({file.path, text});
  return all;
}

// Options of the program's commands, and of the launcher, which is written in Python.
std::set<std::string> options() {
  static const std::regex added(R"re(add_\w+\([^"]*"(--[a-z-]+)")re"), any(R"re((--[a-z][a-z-]+))re");
  std::set<std::string> all{"--help", "--version"};
  for (const SourceFile& file : read_sources({"experiments/program"}, {".cpp"}))
    for (const std::string& option : captured(file.text, added)) all.insert(option);
  for (const std::string& option : captured(read_source("foretoken"), any)) all.insert(option);
  return all;
}

bool is_key(const std::string& pointer) {
  for (const RunKey& key : run_keys()) {
    const bool above = key.pointer.starts_with(pointer + "/"),
               component = key.standard.is_object() && key.standard.contains("name");
    if (key.pointer == pointer || above || (component && pointer.starts_with(key.pointer + "/"))) return true;
  }
  return false;
}

TEST(Messages, NameOptionsThatExist) {
  static const std::regex named(R"re((?:^|[\s(])(--[a-z][a-z-]+))re");
  const std::set<std::string> known = options();
  int seen = 0;
  for (const Literal& literal : literals())
    for (const std::string& option : captured(literal.text, named)) {
      EXPECT_TRUE(known.contains(option)) << literal.file << " names " << option << ": " << literal.text;
      ++seen;
    }
  EXPECT_GT(seen, 40);
}

TEST(Messages, NameKeysThatExist) {
  static const std::regex named(
      R"re((?:^|[\s'(])(/(?:target|drafter|policy|verifier|sampling|engine|workload|measure))re"
      R"re((?:/[a-z_]+)*)(?![\w./]))re");
  int seen = 0;
  for (const Literal& literal : literals())
    for (const std::string& pointer : captured(literal.text, named)) {
      EXPECT_TRUE(is_key(pointer)) << literal.file << " names " << pointer << ": " << literal.text;
      ++seen;
    }
  EXPECT_GT(seen, 20);
}

// "fill Proposal::distributions": the header that declares the type has the member.
TEST(Messages, NameMembersThatExist) {
  static const std::regex named(R"re((?:^|[\s(])([A-Z]\w+::\w+))re"),
      type(R"re(\b(?:struct|class)\s+(?:alignas\(\d+\)\s+)?([A-Z]\w+))re");
  std::map<std::string, std::string> declares;  // type to code
  for (const SourceFile& file : read_sources({"framework", "kernels"}, {".h"}))
    for (const std::string& name : captured(code_only(file.text), type)) declares[name] += code_only(file.text);
  int seen = 0;
  for (const Literal& literal : literals())
    for (const std::string& full : captured(literal.text, named)) {
      const std::size_t colons = full.find("::");
      const std::string of = full.substr(0, colons), member = full.substr(colons + 2);
      EXPECT_TRUE(declares.contains(of) && std::regex_search(declares[of], std::regex("\\b" + member + "\\b")))
          << literal.file << " names " << full << ": " << literal.text;
      ++seen;
    }
  EXPECT_GT(seen, 10);
}

// A remedy that fits whatever is read: results, runs and prompts come from nowhere else.
TEST(Messages, DownloadsAreAdvisedWhereModelsAreRead) {
  for (const Literal& literal : literals())
    if (literal.text.find("download") != std::string::npos) {
      EXPECT_TRUE(literal.file.starts_with("framework/model/") || literal.file.starts_with("framework/text/"))
          << literal.file << ": " << literal.text;
      EXPECT_NE(literal.file, "framework/text/json_file.cpp")
          << "results and documents are read by it too: " << literal.text;
    }
}

}  // namespace
}  // namespace foretoken::test
