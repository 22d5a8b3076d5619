// What a check will run, made in each process that runs it, and its way as text to the process that collects the
// results. This module must not know how scenarios are distributed.
#pragma once
#include "experiments/conformance/check.h"

namespace foretoken::conformance {

struct Job {
  std::size_t report = 0;             // index of its LawReport
  int number = 0;                     // of the scenario in it
  std::string scenario;               // its name
  std::function<Finding()> run = {};  // not of an agenda that came as text
};

struct Agenda {
  std::vector<std::string> subjects;   // of the candidates
  std::vector<std::string> proposing;  // of those whose drafter proposes something
  std::vector<LawReport> reports;      // of every law and subject, not yet filled in
  std::vector<Job> jobs;               // breadth first: when the time is up, every law has run some scenarios
  std::vector<std::string> left_out{}, pairings{};
  std::vector<PluginFile> plugins{};
  double level = 0;
};

// `only`: the names of the laws that are run; empty: all.
Agenda agenda_of(const Prepared& prepared, const std::vector<std::string>& only);

// One line without a line break.
std::string line_of(const Agenda& agenda);
std::string line_of(const Finding& finding);
Agenda agenda_from(const std::string& line);
Finding finding_from(const std::string& line);

}  // namespace foretoken::conformance
