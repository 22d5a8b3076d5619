// Results on disk: append-only JSON lines keyed by the hash of their run. A line is written whole and flushed before
// the next run begins, so that killing a sweep loses at most the run in flight, and starting it again goes on where it
// stopped.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace foretoken {

constexpr int kResultSchema = 1;

// All whole lines of a results file, the last one also where only its newline is missing. A torn last line is left out
// with a notice on standard error; any other bad line is an Error with its number.
std::vector<nlohmann::json> load_results(const std::filesystem::path& file);

class ResultsFile {
 public:
  // Opens or creates (with its folders); cuts off a torn last line. A file that another process is writing, that cannot
  // be written, or that holds anything but results is an Error, and stays as it is.
  explicit ResultsFile(const std::filesystem::path& file);
  ~ResultsFile();
  ResultsFile(const ResultsFile&) = delete;

  bool has(const std::string& key) const { return origins_.contains(key); }  // finished without an error
  // Its "commit", "machine" and "sources", null where the line does not say.
  const nlohmann::json& origin_of(const std::string& key) const { return origins_.at(key); }
  void append(const nlohmann::json& line);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  void note(const nlohmann::json& line);

  std::map<std::string, nlohmann::json> origins_;  // by key
};

// Renames FILE to FILE.1 (an older one is overwritten) so that a fresh one can begin; nothing happens where there is
// none. A file that another process is writing is an Error.
void set_aside(const std::filesystem::path& file);

}  // namespace foretoken
