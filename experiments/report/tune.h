// The draft length for each size of the batch, chosen from stored results: `foretoken tune`; and the choice and its
// file for whoever has speedups from elsewhere. This module must not know how a policy uses it, nor where results are
// stored.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/result.h"
#include "experiments/report/statistics.h"

namespace foretoken {

constexpr int kTunedSchema = 1;
constexpr const char* kTunedKind = "tuned lengths";  // "kind" of the file

struct TuneOptions {
  std::string format = "terminal";  // terminal, markdown, csv, json
  int width = 118;
};

struct Tuned {
  // {"kind": "tuned lengths", "schema", "lengths": [[batch, length], ...], "target", "drafter", "verifier", "sampling",
  // "machine", "version", "commit", "made_from", "choices"}: what the option `file` of the policy `table` takes.
  nlohmann::json document;
  std::string text;  // the table, in the format that was asked for
};

// Of the runs of the policy `fixed` with chains: for each size of the batch the fastest length, and of those that are
// not clearly slower and within 2 % of it the shortest; 0 where no length is 2 % faster than plain decoding, or clearly
// faster. No such run, runs that differ in anything but batch, policy, /measure, /trace and the number of prompts, and
// results of several machines are an Error.
Tuned tune(const std::vector<Result>& results, const TuneOptions& options);

// A length at a batch.
struct TunedCandidate {
  int length = 0;
  Interval speedup = Interval::unknown();  // over plain decoding
  bool beyond = false;                     // predicted, from steps outside of those that were measured
};

// Of a batch.
struct TunedChoice {
  int batch = 1;
  TunedCandidate chosen{.length = 0, .speedup = Interval::of(1)}, fastest;
  std::size_t candidates = 0;
};

// The shortest of `fastest` and those of `as_good` that are within 2 % of it and pay; 0 where `fastest` does not: where
// it is neither 2 % faster than plain decoding nor clearly faster.
TunedChoice tuned_choice(int batch, const TunedCandidate& fastest, const std::vector<TunedCandidate>& as_good,
                         std::size_t candidates);

// The run without what may differ between runs among which a length is chosen. A larger batch needs more prompts.
nlohmann::json tuning_ground(nlohmann::json run);

// Where lengths come from.
struct TunedOrigin {
  nlohmann::json run;                    // complete: one of those that the lengths are for
  nlohmann::json members;                // "machine", "version", "commit", "made_from"
  std::string length, candidates, note;  // of the table: what its columns of these names mean
};

Tuned tuned_of(const std::vector<TunedChoice>& choices, const TunedOrigin& origin, const TuneOptions& options);

}  // namespace foretoken
