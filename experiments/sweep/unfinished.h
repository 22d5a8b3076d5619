// Alternations of runs that do not have all of theirs yet: in a folder beside the file of results,
// NAME.jsonl.unfinished, with a file for each, so that a sweep that was stopped goes on from them. A file is written
// whole or not at all. Whoever uses the folder has locked the file of results. This module must not know what an
// alternation is but for its key and number.
#pragma once
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace foretoken {

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
