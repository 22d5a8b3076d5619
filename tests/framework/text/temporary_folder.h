// A temporary folder, removed at the end of the test; and the location of third-party files.
#pragma once
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <unistd.h>

#include "tests/support/sentence.h"

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

// Third-party files that the repository does not hold: FORETOKEN_DATA, or ../shared/data beside the checkout; empty if
// absent.
inline std::filesystem::path shared_data() {
  const char* named = std::getenv("FORETOKEN_DATA");
  const std::filesystem::path folder =
      named ? std::filesystem::path(named) : std::filesystem::path(FORETOKEN_SOURCE_DIR) / "../shared/data";
  return std::filesystem::is_directory(folder) ? folder : std::filesystem::path();
}

}  // namespace foretoken::test
