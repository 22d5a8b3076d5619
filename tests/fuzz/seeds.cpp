// Replaces libFuzzer in ordinary builds: runs every seed of a folder, prefixes of it, and copies with one byte changed,
// so tests cover the inputs that fuzzing found.
//   fuzz_NAME FOLDER
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

constexpr int kCopies = 24;

void feed(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

void feed_around(const std::string& seed) {
  feed(seed);
  std::mt19937 random(std::uint32_t(seed.size()));
  for (int i = 0; i < kCopies && !seed.empty(); ++i) {
    feed(seed.substr(0, random() % seed.size()));
    std::string copy = seed;
    copy[random() % seed.size()] = char(random());
    feed(copy);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) files.push_back(entry.path());
  std::ranges::sort(files);
  for (const auto& file : files) {
    std::printf("%s\n", file.filename().c_str());
    std::fflush(stdout);
    std::ifstream in(file, std::ios::binary);
    feed_around({std::istreambuf_iterator<char>(in), {}});
  }
  std::printf("%zu seeds\n", files.size());
  return files.empty() ? 1 : 0;
}
