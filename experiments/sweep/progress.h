// A progress bar with the remaining time: on a terminal one line that is redrawn, elsewhere an occasional line. Written
// to standard error, so tables can be piped.
#pragma once
#include <chrono>
#include <string>

namespace foretoken {

class Progress {
 public:
  // `total`: units of work, of about equal length; the work of `kept` of them was done before. `quiet`: prints nothing.
  // `units`: what they are.
  Progress(std::string title, int total, double kept, bool quiet, std::string units = "runs");
  ~Progress();
  // `done` of the total are complete, kept ones included; `note` names the current unit. `fraction`: what is done of
  // those that are not complete, in units.
  void show(int done, const std::string& note, double fraction = 0);
  void clear();  // the line, so that something else can be printed

 private:
  std::string line_of(const std::string& bar, int done, const std::string& left, const std::string& note) const;

  std::string title_, units_;
  int total_;
  double kept_;
  bool quiet_, terminal_, shown_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), last_{};
  int last_done_ = -1;
};

}  // namespace foretoken
