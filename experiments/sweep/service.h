// What one request of a measurement got, and when.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/sweep/measure.h"

namespace foretoken {

struct Service {
  std::chrono::steady_clock::time_point submitted, first, last, finished;
  double share = 0, steady_share = 0;
  long steady_tokens = 0;
  std::vector<long> tested_at, accepted_at;
  long tokens = 0, first_tokens = 0, rounds = 0, drafted = 0, tested = 0, accepted = 0, prompt_tokens = 0;
  std::optional<double> log_probability;  // of its output, if requested
  double queued = 0;                      // from the arrival to its first step
  long from_cache = 0;                    // prompt tokens that its first reading found in the cache
  bool placed = false, started = false;
  bool left_out = false;  // it never began: its conversation had reached the context
  bool fills = false;     // it is one of those that first fill the places
  Finish finish = Finish::running;
  std::string failure;
};

// An element of "requests" of a MEASURE.
nlohmann::json to_json(const Job& job, const Service& s);

}  // namespace foretoken
