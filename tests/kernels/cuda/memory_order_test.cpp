// Rules of shared memory that no result shows: what is ordered by __syncwarp(), when a stage is released, and which
// code sets the limit of a kernel. Needs no GPU: reads the source.
#include <map>
#include <regex>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/source.h"

namespace foretoken::test {
namespace {

const std::regex kSyncwarp(R"(__syncwarp\(\))");

// The code of one function of a file, from its declaration on.
std::string code_of(const std::string& file, const std::string& name) {
  const std::string code = test::code_only(test::read_source(file));
  const std::vector<std::string> lines = test::split_lines(code);
  std::string text;
  for (const test::Function& function : test::functions_of(test::read_source(file)))
    if (function.name == name)
      for (int i = 0; i < function.lines; ++i) text += lines[std::size_t(function.first - 1 + i)] + '\n';
  return text;
}

TEST(MemoryOrder, the_limit_of_a_kernel_is_set_in_one_place_and_remembered) {
  std::map<std::string, int> set;
  for (const test::SourceFile& file : test::read_sources({"kernels"}, {".h", ".cpp", ".cu", ".cuh"})) {
    const std::string code = test::code_only(file.text), word = "cudaFuncAttributeMaxDynamicSharedMemorySize";
    for (std::size_t at = code.find(word); at != std::string::npos; at = code.find(word, at + 1)) ++set[file.path];
  }
  EXPECT_EQ(set, (std::map<std::string, int>{{"kernels/cuda/device.cu", 1}}));
  const std::regex remembered(R"(if \(bytes > a\.now\b[^{;]*\)\s*\{[^{}]*cudaFuncSetAttribute[^{}]*a\.now = a\.most;)");
  EXPECT_TRUE(std::regex_search(code_of("kernels/cuda/device.cu", "raised"), remembered))
      << "raised() sets the attribute of a kernel that has it already";
}

// A shuffle does not order memory: of a count that one lane acquired, the other lanes' reads come after __syncwarp().
TEST(MemoryOrder, lanes_read_partial_sums_after_the_lane_that_acquired_them) {
  const std::string code = code_of("kernels/cuda/products/stream_kernel.cuh", "add_slices");
  const std::size_t count = code.find("count_behind("), shuffle = code.find("__shfl_sync(", count),
                    read = code.find("__ldcg(partials", count);
  ASSERT_LT(count, shuffle) << code;
  ASSERT_LT(shuffle, read) << code;
  ASSERT_NE(read, std::string::npos) << code;
  EXPECT_TRUE(std::regex_search(code.substr(shuffle, read - shuffle), kSyncwarp)) << code;
}

// Counts the calls in a file that release a stage, arrive(... empty ...), and names those without __syncwarp() or a
// wait for products before them: after the function's beginning, and after the release before them.
void count_releases(const test::SourceFile& file, int& releases, std::string& unordered) {
  static const std::regex lambda(R"(const auto release = \[&\]\([^()]*\)\s*\{[^{}]*\};)"),
      arrival(R"(\barrive(_at)?\([^;]*\bempty\b)"), named(R"(\barrive(_at)?\([^;]*\bempty\b|\brelease\()"),
      order(R"(__syncwarp\(\)|\bwait_products<)");
  const std::vector<std::string> lines = test::split_lines(test::code_only(file.text));
  for (const test::Function& function : test::functions_of(file.text)) {
    std::string text;
    for (int i = 0; i < function.lines; ++i) text += lines[std::size_t(function.first - 1 + i)] + '\n';
    const std::regex& release = std::regex_search(text, lambda) ? named : arrival;
    text = std::regex_replace(text, lambda, "");
    for (std::smatch at; std::regex_search(text, at, release); text = std::string(at.suffix())) {
      ++releases;
      if (!std::regex_search(at.prefix().str(), order)) unordered += file.path + ", " + function.name + "()\n";
    }
  }
}

// The rule at the head of instructions/barriers.cuh.
TEST(MemoryOrder, a_stage_is_released_after_all_lanes_have_read_it) {
  int releases = 0;
  std::string unordered;
  for (const test::SourceFile& file : test::read_sources({"kernels/cuda"}, {".cu", ".cuh"}))
    count_releases(file, releases, unordered);
  EXPECT_GE(releases, 6) << "of the stream, the prompt, and twice of boxes and of coded tiles";
  EXPECT_EQ(unordered, "");
}

}  // namespace
}  // namespace foretoken::test
