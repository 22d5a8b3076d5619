// The rules of the house that a machine can check: arrows between folders, sizes, leftovers, lists that must agree.
#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "framework/components/registry.h"
#include "tests/support/source.h"

namespace foretoken::test {
namespace {

const std::vector<std::string> kRooms = {"kernels", "framework", "drafters", "verifiers", "experiments"};
constexpr int kMaxFileLines = 400;
constexpr int kMaxFunctionLines = 60;

// An exception is a visible act: the file, or "file: function", and why.
const std::map<std::string, std::string> kLongFiles = {};
const std::map<std::string, std::string> kLongFunctions = {};

// The arrows of the plan: who may include whom. Everyone may include himself; tests may include all.
const std::map<std::string, std::set<std::string>> kArrows = {
    {"kernels", {}},
    {"framework", {"kernels"}},
    {"drafters", {"framework", "kernels"}},
    {"verifiers", {"framework", "kernels"}},
    {"experiments", {"drafters", "verifiers", "framework", "kernels"}},
    {"tests", {"experiments", "drafters", "verifiers", "framework", "kernels"}},
};

// Layers inside a folder, lowest first. A layer may include itself and those before it, so that each can be read and
// tested without what is built on it.
const std::map<std::string, std::vector<std::string>> kLayers = {
    {"framework", {"text", "model", "decode", "cache", "components", "include", "engine"}},
    {"experiments",
     {"conformance", "session", "serve", "report", "trace", "sweep", "bench", "quality", "quantize", "costs", "load",
      "program", "python"}},
};

// Other people's libraries, and the folders that may know them.
const std::vector<std::pair<std::regex, std::vector<std::string>>> kLibraries = {
    {std::regex("^(cuda|cublas|nccl|cub/|thrust/|cooperative_groups).*"), {"kernels/cuda/"}},
    {std::regex("^Eigen/.*"), {"kernels/reference/", "experiments/quantize/", "tests/"}},
    {std::regex("^(immintrin|arm_neon).*"), {"kernels/cpu/", "tests/kernels/"}},
    {std::regex("^nlohmann/.*"), {"framework/", "drafters/", "verifiers/", "experiments/", "tests/"}},
    {std::regex("^(pcre2|utf8proc).*"), {"framework/text/"}},
    {std::regex("^xxhash.*"), {"framework/", "experiments/", "tests/framework/"}},
    {std::regex("^(lzma|zlib).*"), {"experiments/report/", "tests/experiments/"}},
    {std::regex("^boost/.*"), {"experiments/", "tests/"}},
    {std::regex("^(CLI|spdlog)/.*"), {"experiments/", "tests/experiments/"}},
    {std::regex("^(nanobind/.*|Python\\.h)"), {"experiments/python/"}},
    {std::regex("^(openssl|prometheus)/.*"), {"experiments/serve/"}},
    {std::regex("^gtest/.*"), {"tests/"}},
    {std::regex("^foretoken/.*"), {"drafters/", "verifiers/", "tests/plugins/"}},  // what plugins include
};

std::vector<SourceFile> all_code() {
  std::vector<std::string> folders = kRooms;
  folders.push_back("tests");
  return read_sources(folders, kCode);
}

struct Include {
  bool quoted;
  std::string path;
};

std::vector<Include> includes_of(const std::string& text) {
  static const std::regex include(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::vector<Include> found;
  std::smatch match;
  for (const std::string& line : split_lines(without_comments(text)))
    if (std::regex_search(line, match, include)) found.push_back({match.str(1) == "\"", match.str(2)});
  return found;
}

std::string room_of(const std::string& path) { return path.substr(0, path.find('/')); }

// "components" of "framework/components/registry.h"; empty for a file that lies in the folder itself.
std::string layer_of(const std::string& path) {
  const auto begin = path.find('/') + 1, end = path.find('/', begin);
  return end == std::string::npos ? "" : path.substr(begin, end - begin);
}

// Why an include from one layer of a folder to another is against the plan; empty where it is not.
std::string layer_objection(const std::string& folder, const std::string& from, const std::string& to) {
  const std::vector<std::string>& layers = kLayers.at(folder);
  const auto lower = std::ranges::find(layers, from), upper = std::ranges::find(layers, to);
  for (const auto& [layer, name] : {std::pair(lower, from), std::pair(upper, to)})
    if (layer == layers.end()) return folder + " has no layer '" + name + "'";
  return lower < upper ? folder + "/" + from + " may not know " + folder + "/" + to : "";
}

// Why an include is against the plan; empty where it is not.
std::string objection(const std::string& file, const Include& include) {
  const std::string from = room_of(file), to = room_of(include.path);
  if (include.quoted && include.path == "foretoken_version.h")
    return from == "experiments" || from == "tests" ? "" : "only experiments and tests know which commit this is";
  if (include.quoted && include.path == "foretoken_abi.h") return from == "framework" ? "" : "plugin.h has it";
  if (include.quoted && !kArrows.count(to)) return "includes of this repository start at its root";
  if (include.quoted && from != to && !kArrows.at(from).count(to)) return from + " may not know " + to;
  if (include.quoted && from == to && kLayers.count(from))
    return layer_objection(from, layer_of(file), layer_of(include.path));
  if (file.starts_with("experiments/session/") && include.path.starts_with("spdlog/"))
    return "what it tells is its caller's";
  for (const auto& [library, rooms] : kLibraries) {
    const auto inside = [&](const std::string& room) { return file.rfind(room, 0) == 0; };
    if (std::regex_match(include.path, library) && std::ranges::none_of(rooms, inside))
      return "this library belongs to " + rooms.front();
  }
  return "";
}

TEST(Architecture, IncludesFollowTheArrows) {
  for (const SourceFile& file : all_code())
    for (const Include& include : includes_of(file.text))
      EXPECT_EQ(objection(file.path, include), "") << file.path << " includes " << include.path;
}

TEST(Architecture, ArrowsAreNoticedWhenBroken) {
  EXPECT_NE(objection("kernels/x.h", {true, "framework/decode/sequence.h"}), "");
  EXPECT_NE(objection("drafters/x.cpp", {true, "verifiers/verifiers.h"}), "");
  EXPECT_NE(objection("framework/engine/x.cpp", {true, "tests/support/source.h"}), "");
  EXPECT_NE(objection("framework/engine/x.cpp", {false, "cuda_runtime.h"}), "");
  EXPECT_NE(objection("verifiers/x.cpp", {false, "spdlog/spdlog.h"}), "");
  EXPECT_NE(objection("kernels/cpu/x.cpp", {true, "gemm.h"}), "");
  EXPECT_NE(objection("framework/model/x.cpp", {true, "framework/components/registry.h"}), "");
  EXPECT_NE(objection("framework/text/x.h", {true, "framework/model/config.h"}), "");
  EXPECT_NE(objection("framework/decode/x.h", {true, "framework/cache/kv_cache.h"}), "");
  EXPECT_NE(objection("framework/cache/x.h", {true, "framework/components/drafter.h"}), "");
  EXPECT_NE(objection("framework/components/x.h", {true, "framework/engine/engine.h"}), "");
  EXPECT_NE(objection("framework/model/x.h", {true, "framework/unlisted/x.h"}), "");
  EXPECT_NE(objection("experiments/report/x.h", {true, "experiments/sweep/runner.h"}), "");
  EXPECT_NE(objection("experiments/session/x.h", {true, "experiments/report/result.h"}), "");
  EXPECT_NE(objection("experiments/session/x.cpp", {false, "spdlog/spdlog.h"}), "");
  EXPECT_NE(objection("experiments/bench/x.cpp", {true, "experiments/program/commands.h"}), "");
  EXPECT_EQ(objection("framework/engine/x.h", {true, "framework/engine/scheduler.h"}), "");
  EXPECT_EQ(objection("framework/cache/x.h", {true, "framework/decode/sequence.h"}), "");
  EXPECT_EQ(objection("experiments/bench/x.cpp", {true, "experiments/sweep/runner.h"}), "");
  EXPECT_EQ(objection("kernels/cuda/x.cu", {false, "cublasLt.h"}), "");
  EXPECT_EQ(objection("experiments/sweep/sweep.cpp", {true, "framework/engine/engine.h"}), "");
}

TEST(Architecture, KernelsAreLaunchedInOneFolder) {
  for (const SourceFile& file : all_code())
    if (file.path.rfind("kernels/cuda/", 0) != 0) {
      EXPECT_EQ(code_only(file.text).find("<<<"), std::string::npos) << file.path << " launches a CUDA kernel";
    }
}

TEST(Architecture, FilesAreShort) {
  std::set<std::string> excused;
  for (const SourceFile& file : all_code()) {
    const int lines = static_cast<int>(split_lines(file.text).size());
    if (lines > kMaxFileLines && kLongFiles.count(file.path))
      excused.insert(file.path);
    else
      EXPECT_LE(lines, kMaxFileLines) << file.path << ": split it into modules";
  }
  for (const auto& [path, why] : kLongFiles) EXPECT_TRUE(excused.count(path)) << path << " needs no exception";
}

TEST(Architecture, FunctionsAreShort) {
  std::set<std::string> excused;
  int functions = 0;
  for (const SourceFile& file : all_code())
    for (const Function& function : functions_of(file.text)) {
      const std::string name = file.path + ": " + function.name;
      ++functions;
      if (function.lines > kMaxFunctionLines && kLongFunctions.count(name))
        excused.insert(name);
      else
        EXPECT_LE(function.lines, kMaxFunctionLines) << name << " (line " << function.first << ")";
    }
  EXPECT_GT(functions, 10);
  for (const auto& [name, why] : kLongFunctions) EXPECT_TRUE(excused.count(name)) << name << " needs no exception";
}

TEST(Architecture, NothingIsLeftLying) {
  const std::regex leftover(
      "\\b(TO"
      "DO|FIX"
      "ME|XX"
      "X)\\b(?!\\(#\\d+\\))|^\\s*#\\s*if\\s+0\\b");
  for (const SourceFile& file : all_code())
    for (const std::string& line : split_lines(file.text))
      EXPECT_FALSE(std::regex_search(line, leftover)) << file.path << ": " << line;
}

TEST(Architecture, NoBuildTargetIsCommentedOut) {
  const std::regex dead(R"(^\s*#\s*(add|target|set|find|foretoken|gtest|file|include|option|if)\w*\s*\()");
  std::vector<std::string> folders = kRooms;
  folders.insert(folders.end(), {"tests", "cmake"});
  std::vector<SourceFile> files = read_sources(folders, {"CMakeLists.txt", ".cmake"});
  files.push_back({"CMakeLists.txt", read_source("CMakeLists.txt")});
  for (const SourceFile& file : files)
    for (const std::string& line : split_lines(file.text))
      EXPECT_FALSE(std::regex_search(line, dead)) << file.path << ": " << line;
}

// Names and the papers they implement.
using Sources = std::map<std::string, std::string>;

template <class T> void collect(const Registry<T>& registry, Sources& sources) {
  for (const auto& [name, entry] : registry.entries()) sources[name] = entry.source;
}

// Every registered name has one line in the folder's README.md, a table row or a list item that opens with the name and
// holds the paper.
void expect_listed(const std::string& folder, const Sources& registered) {
  ASSERT_FALSE(registered.empty());
  std::multimap<std::string, std::string> listed;
  const std::regex entry(R"re(^\s*[|*-]\s*`([^`]+)`)re");
  std::smatch match;
  for (const std::string& line : split_lines(read_source(folder + "/README.md")))
    if (std::regex_search(line, match, entry)) listed.emplace(match.str(1), line);
  for (const auto& [name, source] : registered) {
    ASSERT_EQ(listed.count(name), 1u) << folder << "/README.md should have one line for `" << name << "`";
    EXPECT_NE(listed.find(name)->second.find(source), std::string::npos) << "`" << name << "` implements " << source;
  }
  for (const auto& [name, line] : listed)
    EXPECT_TRUE(registered.count(name)) << folder << "/README.md lists `" << name << "`, unknown here";
}

TEST(Architecture, DraftersAndPoliciesAreListed) {
  Registries registries;
  register_drafters(registries);
  Sources sources;
  collect(registries.drafters, sources);
  collect(registries.policies, sources);
  expect_listed("drafters", sources);
}

TEST(Architecture, VerifiersAreListed) {
  Registries registries;
  register_verifiers(registries);
  Sources sources;
  collect(registries.verifiers, sources);
  expect_listed("verifiers", sources);
}

// tests/hello.cpp is the whole API in one look, built and run as a test of its own. If it grows, the API got worse.
TEST(Architecture, HelloIsShort) { EXPECT_LT(split_lines(read_source("tests/hello.cpp")).size(), 60u); }

TEST(SourceReader, FindsFunctionsAndTheirLengths) {
  const auto found = functions_of(R"(namespace a {
template <class T = int> struct S : B<T> {
  S(int x) : B<T>{x}, y_{f({1, 2})} {
    if (x) { y_ = '{'; }
  }
  bool operator==(const S&) const { return "}{"; }
  int y_{};  // }
};
const int kTable[] = {1, 2};
auto f(int a = g({}))
    -> int
{
  return [&] { return a; }();
}
TEST(Suite, Name) {
}
})");
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].name, "S");
  EXPECT_EQ(found[0].first, 3);
  EXPECT_EQ(found[0].lines, 3);
  EXPECT_EQ(found[2].name, "f");
  EXPECT_EQ(found[2].lines, 5);
  EXPECT_EQ(found[3].name, "TEST(Suite, Name)");
  EXPECT_THROW(functions_of("void f() {"), std::runtime_error);
}

}  // namespace
}  // namespace foretoken::test
