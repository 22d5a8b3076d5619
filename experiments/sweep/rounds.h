// The order in which a sweep measures. Runs go in rounds: alternation k of each before alternation k + 1 of any, so
// that a machine that changes slowly (its clock, its temperature, its neighbours) changes for all alike. The first
// round is breadth first: it begins with few runs that have every value of every axis among them.
#pragma once
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "experiments/report/results.h"
#include "experiments/sweep/alternation.h"
#include "experiments/sweep/runner.h"
#include "experiments/sweep/unfinished.h"

namespace foretoken {

// The target and the device of a run, as text: equal for runs of one group.
std::string target_of_group(const nlohmann::json& run);

// Runs that go in rounds together: those of one target on one device. Groups follow one another, since two targets need
// not fit into memory, and loading them once a round may cost more than measuring. Within a group runs that use the
// same drafting models and files are neighbours, in the order of the sweep, so that a process which holds those of two
// runs at a time loads each once a round.
std::vector<std::vector<Run>> groups_of(const std::vector<Run>& runs, const Registries& registries);

// The keys of runs that together have every value of every axis: again and again the run with the most values that
// those before it lack, of equal ones that with the values they have least often, then the first of the sweep. None
// where runs have no axes.
std::set<std::string> first_looks(const std::vector<Run>& runs);

// The order of the first round: the runs of first_looks() group by group, then the others.
std::vector<Run> first_round(const std::vector<Run>& runs, const Registries& registries);

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

  // The first alternation of the runs with these keys, of those that have none. Their models are loaded once more for
  // that than for the rounds alone. `progress` is called with the run in progress, `failed` with the reason.
  void look(const std::set<std::string>& keys, const std::function<void(const Run&)>& progress,
            const std::function<void(const Run&, const std::string&)>& failed);
  // Until every run has its line.
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
  // Alternation k of the runs that lack it, and of which `chosen` holds.
  void round(int k, const std::function<bool(const Run&)>& chosen, const std::function<void(const Run&)>& progress);
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
