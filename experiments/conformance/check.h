// Runs every law of the kit on every chosen combination of drafter, policy and verifier, several scenarios at once in
// processes of their own, and collects the results. This module must not know terminals, files or any subject by name.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/conformance/law_table.h"

namespace foretoken::conformance {

// What to check. A null config means every registered component that has no required option that only a user can set; a
// config with nothing but a name means all configs of it that the kit tries.
struct Choice {
  Registries registries;
  nlohmann::json drafter, policy, verifier;
};
// Every sound combination, under a fixed length, beside a chosen drafter with exact verifiers alone, beside a chosen
// policy with two of them; if no policy was chosen, also one drafter under every other policy. A policy without a
// chosen drafter is checked beside one that serves what its budgets ask for: of its own plugin where that has one, else
// the draft model. No sound combination is an Error with the reason; so is a chosen component that cannot be made, or
// that needs what nothing serves.
std::vector<Candidate> candidates(const Choice& choice);
// The components that a null config leaves out, and how to check them: a sentence for each.
std::vector<std::string> left_out(const Choice& choice);
// Beside which drafter a policy is checked that was chosen without one: a sentence.
std::vector<std::string> pairings(const Choice& choice);

// One law and one candidate.
struct LawReport {
  enum class Ruling { holds, broken, inapplicable, not_shown };
  std::string law, subject;
  Ruling ruling = Ruling::holds;
  std::string reason;          // why the law does not apply, is broken or was not shown
  std::string where{};         // Finding::where of the least p-value
  int scenarios = 0, ran = 0;  // in all; run before the time was up
  long cases = 0, accepted = 0, rejected = 0;
  double measure = 0, seconds = 0;
  std::map<std::string, long> seen{};
  int cut = 0,
      least_depth = 0;               // scenarios of reduced depth; the least depth, in tokens
  std::vector<std::string> notes{};  // refusals of options
  // Adds `scenarios` of reduced depth, the least of them `depth` tokens.
  void count_cut(int scenarios, int depth);
};
const char* name_of(LawReport::Ruling r);  // "holds", "broken", "does not apply", "not shown"

struct CheckReport {
  std::vector<std::string> subjects{};
  std::vector<std::string> left_out{};  // sentences: components not checked, since only a user can set a required
                                        // option, or since nothing serves what they need
  std::vector<std::string> pairings{};  // sentences: beside what a component was checked
  std::vector<PluginFile> plugins{};
  std::vector<LawReport> laws{};         // in the order of kit_laws(), then of the subjects
  std::vector<std::string> sentences{};  // one for every law that is broken or was not shown
  bool of_all_laws = true;               // no laws were chosen by name
  double seconds = 0, level = 0, found = 0.01, power = 0.99;
  bool holds() const { return sentences.empty(); }
};
struct HowToCheck {
  int threads = 2;     // scenarios at once, each in a process
  double seconds = 0;  // of a processor, on average over `threads`: no scenario starts later, and the report
                       // names those that did not start; 0: 60, or 1800 for more than 15 combinations
  std::vector<std::string> laws{};  // names; empty: all. Others are reported as not run; an unknown name is an Error
  double scenario_seconds = 0;      // a scenario that takes longer is stopped and reported; 0: `seconds`
};
// What is checked, where.
struct Prepared {
  std::vector<Candidate> candidates;
  Environment environment;
  std::vector<std::string> left_out{};
  std::vector<PluginFile> plugins{};
  std::vector<std::string> pairings{};
};
// `prepare` is called in every process that runs scenarios, and never in the caller's: plugins that it loads, or a GPU
// that it uses, may do what they like there. What it throws is thrown here as an Error; so is the way in which a
// process ended that called it.
CheckReport check(const std::function<Prepared()>& prepare, const HowToCheck& how);
CheckReport check(const std::vector<Candidate>& candidates, const Environment& environment, const HowToCheck& how);

// What a check will run, made in each process that runs it, and its way as text to the one that collects the results.
struct Job {
  std::size_t report = 0;             // index of its LawReport
  int number = 0;                     // of the scenario in it
  std::string scenario;               // its name
  std::function<Finding()> run = {};  // not of an agenda that came as text
};

struct Agenda {
  std::vector<std::string> subjects{};   // of the candidates
  std::vector<std::string> proposing{};  // of those whose drafter proposes something
  std::vector<LawReport> reports{};      // of every law and subject, not yet filled in
  std::vector<Job> jobs{};               // breadth first: when the time is up, every law has run some scenarios
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
