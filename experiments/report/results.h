// Results on disk: append-only JSON lines keyed by the hash of their run. A line is written whole and flushed as
// soon as its run has all of its alternations, so killing a sweep loses no finished run, and starting it again
// continues where it stopped.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

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

class MergedResults {
 public:
  // Adds a line of results unless a newer one of its run is there, by "date"; of lines of one second the last counts.
  // One of a run that is not finished counts only where there is no finished one, and a line with an error only where
  // there is no other. Whether it was added; a line that is there already is not.
  bool add(Result result);

  // One line for each run, in the order in which the runs were met first.
  const std::vector<Result>& lines() const { return lines_; }
  // The line of a run, or null.
  const Result* of(const std::string& key) const;
  // Whether a run has a line without an error, from which figures can be made.
  bool measured(const std::string& key) const;

 private:
  std::vector<Result> lines_;
  std::map<std::string, std::size_t> places_;  // in lines_, by key
};

class BenchFile {
 public:
  // `file`: "" stores nothing. The file must be absent, empty, or have lines with a machine, a commit and the key
  // `measured` ("products", "scenario", "soak" or "quality"), as `command` writes them; any other file is an Error and
  // is not changed.
  BenchFile(const std::string& file, const std::string& measured, const std::string& command = "foretoken bench");
  void append(const nlohmann::json& line);

 private:
  std::optional<JsonLinesFile> file_;
};

}  // namespace foretoken
