// The draft length for each size of the batch, chosen from stored results: `foretoken tune`. This module must not know
// how a policy uses it, nor where results are stored.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/result.h"

namespace foretoken {

constexpr int kTunedSchema = 1;
constexpr const char* kTunedKind = "tuned lengths";  // "kind" of the file

struct TuneOptions {
  std::string format = "terminal";  // terminal, markdown, csv, json
  int width = 118;
};

struct Tuned {
  // {"kind": "tuned lengths", "schema", "lengths": [[batch, length], ...], "target", "drafter", "verifier", "sampling",
  // "machine", "version", "commit", "choices"}: what the option `file` of the policy `table` takes.
  nlohmann::json document;
  std::string text;  // the table, in the format that was asked for
};

// Of the runs of the policy `fixed` with chains: for each size of the batch the fastest length, and of those that are
// not clearly slower and within 2 % of it the shortest; 0 where no length is 2 % faster than plain decoding, or clearly
// faster. No such run, runs that differ in anything but batch, policy, /measure, /trace and the number of prompts, and
// results of several machines are an Error.
Tuned tune(const std::vector<Result>& results, const TuneOptions& options);

}  // namespace foretoken
