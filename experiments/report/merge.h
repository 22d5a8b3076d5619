// Result lines of several files as those of one: what shards of a sweep measured, joined. This module must not know how
// a sweep is divided.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "experiments/report/results.h"

namespace foretoken {

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

}  // namespace foretoken
