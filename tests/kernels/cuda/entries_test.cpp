// The CUDA runtime keeps the current GPU for each thread, so every operation of the backend that calls it begins by
// making its own GPU the current one. Needs no GPU: reads the source.
#include <regex>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/source.h"

namespace foretoken::test {
namespace {

// Functions that make no CUDA call, or none that depends on the current GPU.
const std::set<std::string> kElsewhere = {
    "name",   "description", "device",    "serial",      "recordings", "records", "record_new",      "unrecorded",
    "padded", "waits",       "recording", "CudaBackend", "seconds",    "stream",  "activation_type", "lacks"};

std::set<std::string> overridden() {
  const std::string header = test::without_comments(test::read_source("kernels/cuda/cuda_backend.cuh"));
  const std::regex declaration(R"((\w+)\([^;{}]*\)\s*(const)?\s*override)");
  std::set<std::string> names;
  for (std::sregex_iterator at(header.begin(), header.end(), declaration), end; at != end; ++at)
    names.insert(at->str(1));
  return names;
}

TEST(CudaEntries, every_operation_begins_by_making_its_gpu_current) {
  std::set<std::string> entered, missing;
  for (const test::SourceFile& file : test::read_sources({"kernels/cuda"}, {".cu"})) {
    const std::regex begin(R"(CudaBackend::(\w+)\([^;{}]*\)\s*(const)?\s*\{\s*(enter\(\);)?)");
    const std::string code = test::code_only(file.text);
    for (std::sregex_iterator at(code.begin(), code.end(), begin), end; at != end; ++at)
      (at->str(3).empty() ? missing : entered).insert(at->str(1));
  }
  EXPECT_GT(overridden().size(), 30u);
  for (const std::string& name : overridden())
    if (!kElsewhere.count(name)) {
      EXPECT_TRUE(entered.count(name) && !missing.count(name)) << "CudaBackend::" << name << " does not enter()";
    }
}

}  // namespace
}  // namespace foretoken::test
