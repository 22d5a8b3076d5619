// Results on disk: append-only JSON lines keyed by the hash of their run. A line is written whole and flushed as
// soon as its run has all of its alternations, so killing a sweep loses no finished run, and starting it again
// continues where it stopped.
#pragma once
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "experiments/report/json_lines.h"
#include "experiments/report/result.h"

namespace foretoken {

// Checks that a line is a result: its schema, a run, and the key of that run. An older schema is an Error that names
// `foretoken convert`.
const LineKind& result_lines();

// 16 hexadecimal digits. The same run gives the same key on any machine, whatever the order of its keys.
std::string key_of(const nlohmann::json& run);

// The results in lines of this file.
std::vector<Result> results_of(const std::vector<JsonLine>& lines, const std::filesystem::path& file);

// All whole lines of a results file or of an open pipe, also a last one without newline. A torn last line is left out
// with a notice on standard error; any other bad line is an Error with its number.
std::vector<Result> load_results(const std::filesystem::path& file);

class ResultsFile {
 public:
  // Opens or creates as JsonLinesFile does. A run whose line holds no error, but nothing that figures could be made of,
  // counts as not measured, with a notice on standard error.
  explicit ResultsFile(const std::filesystem::path& file);

  bool has(const std::string& key) const { return origins_.contains(key); }  // measured, without an error
  const Origin& origin_of(const std::string& key) const { return origins_.at(key); }
  // The result under this key is no longer valid for the run: has() is false until another is appended.
  void discard(const std::string& key);
  bool discarded(const std::string& key) const { return discarded_.contains(key); }
  void append(const Result& result);
  const std::filesystem::path& path() const { return path_; }

 private:
  void note(const Result& result);

  std::filesystem::path path_;
  JsonLinesFile file_;
  std::map<std::string, Origin> origins_;  // by key
  std::set<std::string> discarded_;
};

}  // namespace foretoken
