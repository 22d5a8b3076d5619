// Results on disk: append-only JSON lines keyed by the hash of their run. A line is written whole and flushed before
// the next run begins, so that killing a sweep loses at most the run in flight, and starting it again goes on where it
// stopped.
#pragma once
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/json_lines.h"

namespace foretoken {

constexpr int kResultSchema = 1;

// What a line must have to be a result: its schema, a run, and the key of that run.
const LineKind& result_lines();

// 16 hexadecimal digits. The same run gives the same key, on any machine: the order of keys does not matter.
std::string key_of(const nlohmann::json& run);

// All whole lines of a results file or of an open pipe, the last one also where only its newline is missing. A torn
// last line is left out with a notice on standard error; any other bad line is an Error with its number.
std::vector<nlohmann::json> load_results(const std::filesystem::path& file);

class ResultsFile {
 public:
  // Opens or creates as JsonLinesFile does. A run whose line holds no error, but nothing that figures could be made of,
  // counts as not measured, with a notice on standard error.
  explicit ResultsFile(const std::filesystem::path& file);

  bool has(const std::string& key) const { return origins_.contains(key); }  // measured, without an error
  // Its "commit", "machine" and "sources", null where the line does not say.
  const nlohmann::json& origin_of(const std::string& key) const { return origins_.at(key); }
  // The result under this key is not that of the run any more: has() is false until another is appended.
  void discard(const std::string& key);
  bool discarded(const std::string& key) const { return discarded_.contains(key); }
  void append(const nlohmann::json& line);
  const std::filesystem::path& path() const { return path_; }

 private:
  void note(const nlohmann::json& line);

  std::filesystem::path path_;
  JsonLinesFile file_;
  std::map<std::string, nlohmann::json> origins_;  // by key
  std::set<std::string> discarded_;
};

}  // namespace foretoken
