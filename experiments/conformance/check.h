// Asks every law of the kit of every chosen combination of drafter, policy and verifier, several scenarios at once, and
// keeps what was found. Knows no subject by name, nothing of terminals or files.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/conformance/law_table.h"

namespace foretoken::conformance {

// What is to be checked. A null config means every registered component that needs no option that only a user can give;
// a config with nothing but a name means all configs that the kit tries of it.
struct Choice {
  Registries registries;
  nlohmann::json drafter, policy, verifier;
};
// Every sound combination, under a fixed length; where no policy was chosen also one drafter under every other policy.
// None at all is an Error that says why.
std::vector<Candidate> candidates(const Choice& choice);
// What a null config leaves out, and how to ask for it: a sentence for each.
std::vector<std::string> left_out(const Choice& choice);

// One law and one candidate.
struct LawReport {
  enum class Ruling { holds, broken, silent, not_shown };
  std::string law, subject;
  Ruling ruling = Ruling::holds;
  std::string reason;            // why it is silent, broken or was not shown
  int scenarios = 0, asked = 0;  // there are, were asked before the time was up
  long cases = 0, accepted = 0, refused = 0;
  double measure = 0, seconds = 0;
  std::map<std::string, long> seen{};
  int cut = 0,
      least_depth =
          0;  // scenarios that were looked at less deep than they say, and how deep the shallowest was, in tokens
  std::vector<std::string> notes{};  // refusals of options
  // Counts `scenarios` that were cut, `depth` deep at the least.
  void count_cut(int scenarios, int depth);
};
const char* name_of(LawReport::Ruling r);  // "holds", "broken", "does not apply", "not shown"

struct CheckReport {
  std::vector<std::string> subjects;
  std::vector<std::string> left_out;   // sentences: who was not asked, since only a user knows an option of it
  std::vector<LawReport> laws;         // in the order of kit_laws(), then of the subjects
  std::vector<std::string> sentences;  // one for every law that is broken or was not shown
  bool of_all_laws = true;             // no laws were chosen by name
  double seconds = 0, level = 0, found = 0.01, power = 0.99;
  bool holds() const { return sentences.empty(); }
};
struct HowToCheck {
  int threads = 2;
  double seconds = 60;            // no scenario begins later; what was not asked is said
  std::vector<std::string> laws;  // names; empty: all. Others are listed as not asked; an unknown one is an Error
};
CheckReport check(const std::vector<Candidate>& candidates, Environment environment, const HowToCheck& how);

}  // namespace foretoken::conformance
