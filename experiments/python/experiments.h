// What the program does with files, in the process of a caller who goes on afterwards: a sweep, tables of results, the
// laws. Documents and reports are JSON. This module must not know Python, but for registries that it is given.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/components/registry.h"

namespace foretoken {

struct SweepCall {
  std::string document;          // JSON text
  std::filesystem::path file;    // its own, or what it is called; paths in it may lie beside it
  std::vector<std::string> set;  // POINTER=VALUE
  std::filesystem::path results;
  bool quiet = false, keep_going = false, share_baselines = false, rehearse = false;
};
struct SweepResult {
  int runs = 0, failed = 0, refused = 0;
  bool interrupted = false;
};
// As `foretoken run`, and as it obeys Ctrl-C. The caller's handler of signals must be put back afterwards.
SweepResult run_sweep(const SweepCall& call, const Registries& registries);

// What `foretoken show --json` prints of these files.
std::string results_json(const std::vector<std::string>& files, const std::vector<std::string>& where);

struct CheckCall {
  nlohmann::json drafter, policy, verifier;  // configs, or null
  std::vector<std::string> laws;
  double seconds = 0;
  int threads = 2;
};
// The report of the laws, as `foretoken check --json` prints it. `in_process` is called in every process that runs
// scenarios.
std::string check_report(const CheckCall& call, const Registries& registries, const std::function<void()>& in_process);

}  // namespace foretoken
