// The order in which a sweep measures. Runs go in rounds: alternation k of each before alternation k + 1 of any, so
// that a machine that changes slowly (its clock, its temperature, its neighbours) changes for all alike.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "experiments/report/results.h"
#include "experiments/sweep/alternation.h"
#include "experiments/sweep/runner.h"
#include "experiments/sweep/unfinished.h"

namespace foretoken {

// Runs that go in rounds together: those of one target on one device. Groups follow one another, since two targets need
// not fit into memory, and loading them once a round may cost more than measuring. Within a group runs that use the
// same drafting models and files are neighbours, in the order of the sweep, so that a process which holds those of two
// runs at a time loads each once a round.
std::vector<std::vector<Run>> groups_of(const std::vector<Run>& runs, const Registries& registries);

// Runs that have their line, and how many runs' worth of work is done.
struct Work {
  int finished = 0;
  double done = 0;
  Work operator+(const Work& other) const { return {finished + other.finished, done + other.done}; }
};

// The runs of one group.
class Rounds {
 public:
  // They go on from what is unfinished, unless the program, the machine or a file that a run reads has changed since.
  // All must outlive it.
  Rounds(const std::vector<Run>& runs, Workbench& bench, const SweepOptions& options, ResultsFile& file,
         Unfinished& unfinished);

  // Until every run has its line. `progress` is called with the run in progress, `failed` with the reason.
  void measure(const std::function<void(const Run&)>& progress,
               const std::function<void(const Run&, const std::string&)>& failed);
  Work work() const;

 private:
  // A run, and how far it is.
  struct Course {
    Run run;
    int done = 0;                                   // alternations
    double part = 0;                                // of the one in progress
    double measured = 0;                            // seconds of those that are done
    bool over = false;                              // it has its line
    std::shared_ptr<const Prepared> prepared = {};  // from its first alternation in this process on

    bool wants_more() const { return !over && foretoken::wants_more(run.document, done, measured); }
  };

  void resume(Course& course);
  void restore_baselines(int k);
  void next(Course& course, int together, const std::function<void(const Run&)>& progress);
  void finish(Course& course, std::vector<MeasuredAlternation> alternations);
  void end(Course& course);
  void fail(Course& course, const std::string& error, double seconds);

  Workbench& bench_;
  const SweepOptions& options_;
  ResultsFile& file_;
  Unfinished& unfinished_;
  std::vector<Course> courses_;
  Baselines baselines_;  // of this round
  std::function<void(const Run&, const std::string&)> failed_;
};

}  // namespace foretoken
