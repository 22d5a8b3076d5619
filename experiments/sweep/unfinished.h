// Alternations of runs that do not have all of theirs yet: in a folder beside the file of results,
// NAME.jsonl.unfinished, with a file for each, so that a sweep that was stopped goes on from them. A file is written
// whole or not at all. Whoever writes to the folder has locked the file of results.
#pragma once
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/result.h"

namespace foretoken {

// The results of a file, and behind them one of every run that has alternations and no result yet, as if it had no
// others, with how many it has (Result::unfinished). Those that no result can be made of are left out, with a warning.
// Errors as of load_results().
std::vector<Result> load_with_unfinished(const std::filesystem::path& results);

class Unfinished {
 public:
  // Of this file of results. The folder exists while it holds something.
  explicit Unfinished(const std::filesystem::path& results);

  // {"key": of the run, "alternation": its number, from 0, ...}. An Error where it cannot be written.
  void add(const nlohmann::json& alternation);
  // How many the run has, from the first on without a gap; those that cannot be read, or that are of another run or
  // number than their names say, count as absent. One of another schema is an Error.
  int count(const std::string& key) const;
  // Number `k` of those.
  nlohmann::json at(const std::string& key, int k) const;
  void drop(const std::string& key);
  void drop_all();
  // Those that "sweep" names as this sweep's and that are of no run with one of these keys; how many. What is of
  // another sweep, or does not say, stays.
  int drop_orphans(const std::string& sweep, const std::set<std::string>& keys);
  bool any() const { return !files().empty(); }
  // Of the runs that it holds something of.
  std::set<std::string> keys() const;
  // Moves the alternations of a run, or all, to another file of results.
  void move(const std::string& key, const Unfinished& to) const;
  void move_all(const Unfinished& to) const;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path file(const std::string& key, int k) const;
  std::vector<std::filesystem::path> files() const;
  void move_files(const std::vector<std::filesystem::path>& files, const Unfinished& to) const;

  std::filesystem::path folder_;
};

}  // namespace foretoken
