// The list of laws that `foretoken check` runs: name, statement, when a law does not apply, and its scenarios. A law
// that does not apply is reported with the reason. This module must not know any subject by name.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "experiments/conformance/laws.h"

namespace foretoken::conformance {

// What is available besides the reference device, and how much work is allowed.
struct Environment {
  struct Device {
    std::string name;  // "cpu, avx512"
    std::function<std::unique_ptr<Backend>()> make;
  };
  std::vector<Device> devices;
  std::function<Models(Backend&)> trained;  // trained models on one of the devices; null: none
  double level = 1e-3;                      // family-wise level of the chi-square tests
  int sampled_tests = 1;                    // size of the family
  long most_ways = 32000;  // outcomes of the draws that one scenario enumerates, a quarter of it for an option: enough
                           // for the built-in verifiers; others then finish within 60 s
};

// A subject, with what its components declare.
struct Candidate {
  Subject subject;
  bool own_policy = false;   // the policy was chosen; else each scenario sets a fixed length
  bool own_verifier = true;  // the verifier is tested too, and not only a drafter or a policy beside it
  Soundness soundness;
  Needs needs;
  std::vector<std::string> model_options;  // options of the drafter that name a model
  bool policy_learns = false;              // PolicyTraits::learns
  Budget most{};                           // of the chosen policy
};
Candidate candidate(const Subject& subject, bool own_policy, bool own_verifier = true);

struct LawCase {
  std::string scenario;
  std::function<Finding()> run;
  // What the scenario depends on, where that is less than the whole candidate: of scenarios of one law with equal names
  // and equal `concerns`, check() runs the first alone. Empty: it depends on the whole candidate.
  std::string concerns{};
};
// The verifier alone. The drafter and the policy, and whether draws are races.
std::string verifier_of(const Candidate& c);
std::string drafter_of(const Candidate& c);

struct KitLaw {
  std::string name, statement;
  std::string counted;  // what the number of cases counts: "outcomes of the draws"
  std::string measure;  // what Finding::measure is: "total variation"; empty: the law has no measure
  std::function<std::string(const Candidate&, const Environment&)>
      inapplicable;  // why the law does not apply; empty: it does
  std::function<std::vector<LawCase>(const Candidate&, const Environment&)> cases;
};
const std::vector<KitLaw>& kit_laws();

// The scenarios of each law. Every scenario builds its own devices and models, so scenarios may run concurrently.
using Cases = std::vector<LawCase>;

// A law of requests that the subject decodes on the reference device, with table models.
LawCase on_tables(const std::string& scenario, const std::function<Finding(const Run&)>& law, const Subject& subject,
                  const Scenario& how, const TableModel::Options& target, std::vector<TestRequest> requests,
                  const std::string& concerns = "");
// "temperature 0", or with so many characters of it: "temperature 0.6".
std::string at_temperature(float temperature, std::size_t characters = 1);

Cases exact_cases(const Candidate& c, const Environment& e);
Cases round_cases(const Candidate& c, const Environment& e);
// Whether the distribution that a lossy verifier states is greedy at temperature 0: looked up for chains whose last
// token is any other than the target's, over many distributions of the target.
bool states_greedy(const Candidate& c);
Cases sampled_cases(const Candidate& c, const Environment& e);
Cases greedy_cases(const Candidate& c, const Environment& e);
Cases coupled_cases(const Candidate& c, const Environment& e);
Cases batch_cases(const Candidate& c, const Environment& e);
Cases memory_cases(const Candidate& c, const Environment& e);
Cases cache_cases(const Candidate& c, const Environment& e);
Cases acceptance_cases(const Candidate& c, const Environment& e);
Cases limits_cases(const Candidate& c, const Environment& e);
Cases options_cases(const Candidate& c, const Environment& e);
Cases causal_cases(const Candidate& c, const Environment& e);
Cases device_cases(const Candidate& c, const Environment& e);

// The candidate's subject under a fixed length, unless its policy was chosen. `nodes`: of a tree, the root included; 0:
// as many as a chain has.
Subject under_length(const Candidate& c, int length, int nodes = 0);

// The same under budgets of all sizes in turn, up to the largest tree and the longest chain.
Subject under_all_budgets(const Candidate& c);

// The candidate with other options of its drafter, or of its policy where that was chosen: one for each that neither
// the component nor the pairing refuses, and what tells it from the others.
struct OtherCandidate {
  Candidate candidate;
  std::string options;  // JSON
};
std::vector<OtherCandidate> with_other_options(const Candidate& c);

}  // namespace foretoken::conformance
