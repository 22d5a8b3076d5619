// The laws of chains as a list: name, what it says, whom it does not concern, and the scenarios in which it is asked.
// What is listed here is what `foretoken check` runs; a law that concerns somebody not is listed with its reason. Knows
// no subject by name.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "experiments/conformance/laws.h"

namespace foretoken::conformance {

// Where a law may ask besides the reference device, and how much.
struct Environment {
  struct Device {
    std::string name;  // "cpu, avx512"
    std::function<std::unique_ptr<Backend>()> make;
  };
  std::vector<Device> devices;
  std::function<Models(Backend&)> trained;  // trained models on one of the devices; null: there are none here
  double level = 1e-3;                      // of a family of chi-square tests
  int sampled_tests = 1;                    // how many belong to the family
  long most_ways = 32000;  // that are followed in one scenario, a quarter of it of an option: what the verifiers of
                           // this tree need, so that 60 s are enough for others
};

// Who is asked, and what is known of him before.
struct Candidate {
  Subject subject;
  bool own_policy = false;  // the policy was chosen; else each scenario takes a fixed length that suits it
  Soundness soundness;
  Needs needs;
  std::vector<std::string> model_options;  // options of the drafter that name a model
};
Candidate candidate(const Subject& subject, bool own_policy);

struct LawCase {
  std::string scenario;
  std::function<Finding()> run;
};

struct KitLaw {
  std::string name, statement;
  std::string counted;  // what the number of cases counts: "ways the draws fall"
  std::string measure;  // what Finding::measure is: "total variation"; empty: cases that fail are all there is
  std::function<std::string(const Candidate&, const Environment&)>
      silent;  // why it does not concern him; empty: it does
  std::function<std::vector<LawCase>(const Candidate&, const Environment&)> cases;
};
const std::vector<KitLaw>& kit_laws();

}  // namespace foretoken::conformance
