// The order in which a sweep measures. Runs go in rounds: alternation k of each before alternation k + 1 of any, so
// that a machine that changes slowly (its clock, its temperature, its neighbours) changes for all alike. The first
// round is breadth first: it begins with few runs that have every value of every axis among them.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "experiments/report/results.h"
#include "experiments/sweep/alternation.h"
#include "experiments/sweep/runner.h"

namespace foretoken {

// The results of a file, and behind them one of every run that has alternations and no result yet, as if it had no
// others, with how many it has (Result::unfinished). Those that no result can be made of are left out, with a warning.
// Errors as of load_results().
std::vector<Result> load_with_unfinished(const std::filesystem::path& results);

// Alternations of runs that do not have all of theirs yet: in a folder beside the file of results,
// NAME.jsonl.unfinished, with a file for each, so that a sweep that was stopped goes on from them. A file is written
// whole or not at all. Whoever writes to the folder has locked the file of results.
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
  struct RunProgress {
    Run run;
    int done = 0;                                      // alternations
    double part = 0;                                   // of the one in progress
    double measured = 0;                               // seconds of those that are done
    bool over = false;                                 // it has its line
    std::shared_ptr<const PreparedRun> prepared = {};  // from its first alternation in this process on

    bool wants_more() const { return !over && foretoken::wants_more(run.document, done, measured); }
  };

  void resume(RunProgress& one);
  void restore_baselines(int k);
  // Alternation k of the runs that lack it, and of which `chosen` holds.
  void round(int k, const std::function<bool(const Run&)>& chosen, const std::function<void(const Run&)>& progress);
  void next(RunProgress& one, int together, const std::function<void(const Run&)>& progress);
  void finish(RunProgress& one, std::vector<MeasuredAlternation> alternations);
  void end(RunProgress& one);
  void fail(RunProgress& one, const std::string& error, double seconds);

  Workbench& bench_;
  const SweepOptions& options_;
  ResultsFile& file_;
  Unfinished& unfinished_;
  std::vector<RunProgress> runs_;
  Baselines baselines_;  // of this round
  std::function<void(const Run&, const std::string&)> failed_;
};

}  // namespace foretoken
