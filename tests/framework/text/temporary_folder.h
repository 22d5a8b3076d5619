// A folder that a test makes and that goes with it; the sentence of an Error; where third-party files are.
#pragma once
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <unistd.h>

#include "kernels/error.h"

namespace foretoken::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::temp_directory_path() /
            ("foretoken-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// What the Error that `body` throws says; "" if it throws none.
template <class F> std::string sentence_of(F body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Whether the sentence holds every one of the words.
template <class... Words> testing::AssertionResult says(const std::string& sentence, const Words&... words) {
  for (const std::string& word : {std::string(words)...})
    if (sentence.find(word) == std::string::npos)
      return testing::AssertionFailure() << "\"" << sentence << "\" lacks \"" << word << "\"";
  return testing::AssertionSuccess();
}

// Third-party files that the repository does not hold: FORETOKEN_DATA, or ../shared/data beside the checkout; empty if absent.
inline std::filesystem::path shared_data() {
  const char* named = std::getenv("FORETOKEN_DATA");
  const std::filesystem::path folder =
      named ? std::filesystem::path(named) : std::filesystem::path(FORETOKEN_SOURCE_DIR) / "../shared/data";
  return std::filesystem::is_directory(folder) ? folder : std::filesystem::path();
}

}  // namespace foretoken::test
