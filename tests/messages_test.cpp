// What sentences name exists: options of commands, keys of runs, members of the interface.
#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "experiments/session/run_document.h"
#include "tests/support/source.h"

namespace foretoken::test {
namespace {

const std::vector<std::string> kSpeaking = {"kernels", "framework", "drafters", "verifiers", "experiments"};

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

using Names = std::set<std::string>;

// Options of each of the program's commands: those that the function with its add_subcommand() adds, and those of the
// functions that it calls for that.
std::map<std::string, Names> options_of_commands() {
  static const std::regex added(R"re(add_\w+\([^"]*"(--[a-z-]+)")re"), command(R"re(add_subcommand\(\s*"([a-z-]+)")re");
  std::map<std::string, std::string> functions;  // name to text
  for (const SourceFile& file : read_sources({"experiments/program"}, {".cpp"})) {
    const std::vector<std::string> lines = split_lines(without_comments(file.text));
    for (const Function& function : functions_of(file.text))
      for (int i = 0; i < function.lines; ++i)
        functions[function.name] += lines[std::size_t(function.first - 1 + i)] + '\n';
  }
  std::map<std::string, Names> all;
  for (const auto& [name, text] : functions)
    for (const std::string& of : captured(text, command)) {
      for (const std::string& option : captured(text, added)) all[of].insert(option);
      for (const auto& [helper, its] : functions)
        if (!std::regex_search(its, command) && std::regex_search(text, std::regex("\\b" + helper + "\\(")))
          for (const std::string& option : captured(its, added)) all[of].insert(option);
    }
  return all;
}

// Which commands say the sentences of a file; the first that fits. Elsewhere: any of them.
const std::vector<std::pair<std::string, Names>> kSpeakers = {
    {"experiments/bench/", {"bench"}},
    {"experiments/conformance/", {"check"}},
    {"experiments/costs/calibrate", {"calibrate"}},
    {"experiments/costs/costs_file.cpp", {"calibrate"}},
    {"experiments/costs/known_acceptance.cpp", {"predict", "tune"}},
    {"experiments/costs/predicted_lengths.cpp", {"tune"}},
    {"experiments/costs/", {"predict"}},
    {"experiments/quality/", {"quality"}},
    {"experiments/quantize/", {"quantize"}},
    {"experiments/serve/gateway", {"gateway"}},
    {"experiments/program/gateway", {"gateway"}},
    {"experiments/load/", {"load"}},
    {"experiments/program/load", {"load"}},
    {"experiments/serve/", {"serve"}},
    {"experiments/program/check", {"check"}},
    {"experiments/program/serve", {"serve"}},
    {"experiments/program/generate", {"generate"}},
    {"experiments/sweep/sweep.cpp", {"run", "generate"}},
    {"experiments/sweep/", {"run", "quickstart"}},
    {"experiments/session/", {"run", "quickstart", "generate"}},
    {"experiments/report/tree_shape.cpp", {"tree-shape"}},
    {"experiments/report/tune.cpp", {"tune"}},
    {"experiments/report/page", {"run", "report"}},
    {"experiments/report/results.cpp", {"run", "convert"}},
    {"experiments/report/", {"run", "show", "compare", "quickstart", "bench", "quality"}},
};

// The options that a literal may name: the launcher's, of its usage, only where it names ./foretoken.
Names options_for(const Literal& literal) {
  static const std::map<std::string, Names> commands = options_of_commands();
  static const std::string launcher = read_source("foretoken"), quotes = "\"\"\"";
  static const std::string usage = launcher.substr(0, launcher.find(quotes, launcher.find(quotes) + 3));
  const auto speaks = [&](const auto& entry) { return literal.file.starts_with(entry.first); };
  const auto speaker = std::ranges::find_if(kSpeakers, speaks);
  Names all{"--help", "--version"};
  for (const auto& [command, options] : commands)
    if (speaker == kSpeakers.end() || speaker->second.contains(command)) all.insert(options.begin(), options.end());
  if (literal.text.find("./foretoken") != std::string::npos)
    for (const std::string& option : captured(usage, std::regex("(--[a-z][a-z-]+)"))) all.insert(option);
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
  int seen = 0;
  for (const Literal& literal : literals())
    for (const std::string& option : captured(literal.text, named)) {
      EXPECT_TRUE(options_for(literal).contains(option)) << literal.file << " names " << option << ": " << literal.text;
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

// "/engine/memory_mib" is a key, "engine.memory_mib" is none.
TEST(Messages, NameKeysByTheirPointers) {
  static const std::regex dotted(
      R"re((?:^|[\s'(;,])((?:target|drafter|policy|verifier|sampling|engine|workload|measure)\.[a-z]\w*))re");
  for (const Literal& literal : literals())
    for (const std::string& key : captured(literal.text, dotted))
      ADD_FAILURE() << literal.file << " names " << key << " instead of a JSON pointer: " << literal.text;
}

TEST(Messages, CommandsHaveTheirOwnOptions) {
  const std::map<std::string, Names> commands = options_of_commands();
  EXPECT_EQ(commands.at("show"), (Names{"--across", "--by", "--figures", "--format", "--json", "--set", "--stand-ins",
                                        "--sweep", "--tables", "--where"}));
  EXPECT_TRUE(commands.at("run").contains("--plugin") && commands.at("run").contains("--set"));
  EXPECT_TRUE(commands.at("generate").contains("--top-k") && !commands.at("check").contains("--top-k"));
  EXPECT_GE(commands.size(), 10u);
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
