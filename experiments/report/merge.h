// Result lines of several files as those of one: what shards of a sweep measured, joined. This module must not know how
// a sweep is divided.
#pragma once
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/results.h"

namespace foretoken {

class MergedResults {
 public:
  // Lines are of one run where their runs have one key.
  explicit MergedResults(ResultsFile::Identity key = key_of) : key_(std::move(key)) {}

  // Adds a line of results unless a newer one of its run is there, by "date"; of lines of one second the last counts,
  // and a line with an error counts only where there is no other. Whether it was added; a line that is there already is
  // not.
  bool add(nlohmann::json line);

  // One line for each run, in the order in which the runs were met first.
  const std::vector<nlohmann::json>& lines() const { return lines_; }
  // The line of a run, or null.
  const nlohmann::json* of(const std::string& key) const;
  // Whether a run has a line without an error, from which figures can be made.
  bool measured(const std::string& key) const;

 private:
  ResultsFile::Identity key_;
  std::vector<nlohmann::json> lines_;
  std::map<std::string, std::size_t> places_;  // in lines_, by key
};

}  // namespace foretoken
