// What the notes of a run say in the main table, and what they mean.
#pragma once
#include <string>
#include <vector>

#include "experiments/report/summary.h"

namespace foretoken {

// The first word of a promise: "exact" of "exact, path-identical", "lossy" of "lossy: <the law>".
std::string kind_of(const std::string& promise);
// The verdict of a speedup's interval: "loses" below 1, "unclear" if it contains 1, empty above.
std::string standing(const Interval& speedup);
// "2 of 3 alternations" of a run that is not finished, else empty.
std::string unfinished_of(const Summary& s);

// The notes of runs, and what those mean that were made.
class Notes {
 public:
  // "exact ✓, loses": the promise, whether the outputs kept it, and what else is to be known of the run's figures.
  std::string of(const Summary& s);
  const std::vector<std::string>& meanings() const { return meanings_; }

 private:
  void mean(const std::string& meaning);
  void note(const std::string& text, const std::string& meaning);
  void alternations(const Summary& s);
  // "no draft: context 58 %": the reasons for which at least one round of twenty verified no draft, but for ends of
  // outputs.
  void no_draft(const SideFigures& side);

  std::string found_;
  std::vector<std::string> meanings_;
};

}  // namespace foretoken
