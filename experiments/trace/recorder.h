// Records the rounds of an engine from its verifier's seat: a verifier around the run's own sees every tree, its
// distributions and what was decided. The engine knows nothing of it, and without a recorder nothing of this runs.
// This module must not know files, sweeps, or what is computed from a trace.
#pragma once
#include <exception>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/trace/trace.h"
#include "framework/components/registry.h"
#include "framework/components/verifier.h"

namespace foretoken {

// A verifier whose acceptance of other verifiers' trees is found.
struct Judge {
  std::unique_ptr<Verifier> verifier;
  Soundness soundness;
};

// With which probability a verifier accepts how much of a given tree, by the verifier's own rule: every outcome of its
// decisions is followed on the host, with the tree's tokens fixed.
class PathReach {
 public:
  // For each trial, of the tree cut to 1, 2, ... levels. On a device the distributions of all trees are copied to the
  // host first. A verifier of races is an Error: its decisions follow from the noise that the drafts were drawn with;
  // so is a tree with nodes that the verifier does not take.
  std::vector<Reach> of(Backend& backend, const Trials& trials, const Judge& judge, const std::string& name);

 private:
  HostTrials copies_;
};

// What is recorded besides the rounds themselves.
struct Recording {
  bool dense = false;                  // accept nothing, so that every position is seen (one_token())
  std::vector<std::string> verifiers;  // whose acceptance of each tree is found (PathReach); slow
};

class Recorder {
 public:
  // A request by its stream: index in Trace::requests, tokens of its prompt.
  struct Request {
    int index = 0, prompt_tokens = 0;
  };
  Recorder(Recording recording, std::map<std::uint64_t, Request> requests)
      : recording_(std::move(recording)), requests_(std::move(requests)) {}

  // `registries` with the verifier of `config` replaced by one that is the same to the engine and records. Both this
  // object and `registries` must outlive engines that are made with the result. An unknown name in
  // Recording::verifiers is an Error when an engine is made.
  Registries recording(const Registries& registries, const nlohmann::json& config);

  // The step that the engine just made, with the rounds recorded in it; without the round in which a sequence failed.
  // What could not be recorded is an Error.
  TracedStep step(const StepReport& report, bool baseline);
  // Indices of the requests that failed.
  const std::set<int>& failed() const { return failed_; }

 private:
  class RecordingVerifier;
  void record(Backend& backend, const Trials& trials, const Tensor& verdicts, const std::vector<Judge>& judges);
  TracedRound round_of(const Trials& trials, std::size_t i) const;
  void leave_out_failed(const StepReport& report);

  Recording recording_;
  std::map<std::uint64_t, Request> requests_;  // by stream
  PathReach path_reach_;
  std::vector<TracedRound> rounds_;  // of the current step
  double seconds_ = 0;               // that recording took in it
  std::set<int> failed_;
  std::exception_ptr broken_;  // why a round of this step could not be recorded
};

}  // namespace foretoken
