// Which measurements count: those that were made again say why, and alternations are compared. This module must not
// know runs or engines.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/sweep/measure.h"

namespace foretoken {

// Hashes by which outputs are compared, of each request; null where it failed.
nlohmann::json outputs_of(const Measured& measured);

// One hash of all of these, in the order of prompts, samples and turns; with the failed ones.
std::string hash_of_outputs(const nlohmann::json& outputs);

// Outputs that were compared, and that differ. A request that failed on one side is not compared.
struct Agreement {
  long compared = 0, different = 0;
  void add(const nlohmann::json& outputs_a, const nlohmann::json& outputs_b);
};

// A measurement that counts, and those before it that do not: [{"reason", "seconds", "stopped_seconds",
// "differing_texts"}], whose outputs were compared with its.
struct Taken {
  Measured measured;
  nlohmann::json thrown_away = nlohmann::json::array();
};
// Measures again, after again(), where the process was stopped for more than 2 % of the time. Stopped in each of three
// measurements is an Error. Where `any` is true, the first counts, whatever was stopped.
Taken measure_kept(const std::function<Measured()>& measure, const std::function<void()>& again, bool any = false);

// The numbers of the jobs that a MEASURE left out, whose requests it lacks.
std::set<std::size_t> left_out_of(const nlohmann::json& measure);

// Whether all alternations of a side did the same: its requests have equal counts of tokens, rounds and drafts, and
// equal outputs, since their draws are equal. {"compared", "differing": [{"side", "repeat", "requests"}]}; what learns
// is not compared.
class SameAgain {
 public:
  explicit SameAgain(bool compared) : compared_(compared) {}
  // `measure` and the outputs of alternation number `repeat` of a side.
  void add(const nlohmann::json& measure, const nlohmann::json& outputs, const char* side, int repeat);
  nlohmann::json as_json() const { return {{"compared", compared_}, {"differing", differing_}}; }

 private:
  struct First {
    std::vector<std::vector<long>> counts;  // of each job; empty where it was left out
    nlohmann::json outputs;
  };
  bool compared_;
  std::map<std::string, First> first_;  // by side
  nlohmann::json differing_ = nlohmann::json::array();
};

}  // namespace foretoken
