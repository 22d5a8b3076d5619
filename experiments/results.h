// Results on disk: append-only JSON lines keyed by the hash of their run. A line is written whole and flushed before the next
// run begins, so that killing a sweep loses at most the run in flight, and starting it again goes on where it stopped.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace foretoken {

constexpr int kResultSchema = 1;

// All whole lines of a results file. A torn last line is left out with a notice on standard error; any other bad line is an
// Error with its number.
std::vector<nlohmann::json> load_results(const std::filesystem::path& file);

class ResultsFile {
 public:
  // Opens or creates (with its folders); cuts off a torn last line. A file that another process is writing, or that cannot be
  // written, is an Error.
  explicit ResultsFile(const std::filesystem::path& file);
  ~ResultsFile();
  ResultsFile(const ResultsFile&) = delete;

  bool has(const std::string& key) const { return keys_.contains(key); }  // finished without an error
  void append(const nlohmann::json& line);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::set<std::string> keys_;
};

}  // namespace foretoken
