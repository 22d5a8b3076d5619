// Serves one workload with one engine and writes down everything: the MEASURE of a result line. Requests arrive as
// places become free (closed loop), so that latencies hold no queueing.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/engine/engine.h"

namespace foretoken {

struct Job {
  Request request;
  int prompt = 0;        // number of the prompt
  std::string category;  // empty: none
  int first = -1;        // the job of which this one is another sample; -1: none
};

struct Measured {
  nlohmann::json measure;
  std::vector<std::vector<Token>> texts;  // generated tokens, in the order of the jobs
  std::vector<std::string> failures;      // why a request failed, likewise; empty for those that did not
};

// `at_once`: requests in flight. `after_step` is called with the share of jobs that are done; it may throw to stop.
Measured measure(Engine& engine, const std::vector<Job>& jobs, int at_once,
                 const std::function<void(double)>& after_step);

}  // namespace foretoken
