// The result of a run as `foretoken run` stores it: one line of a file of results, and all that it consists of. What is
// in a line, in which unit, is said once, in result_fields.h. This module must not know how a run is measured, nor
// which figures follow from it.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/components/step_report.h"

namespace foretoken {

constexpr int kResultSchema = 2;

// Bytes that a side's engine held.
struct MemoryUsed {
  std::int64_t target_weights = 0, draft_weights = 0, cache = 0, cache_used = 0;
  std::optional<std::int64_t> states_per_token, scratch;
};

// Sums over the steps of so many rows that read no prompt, recorded no forward and verified a tree: what step times are
// fitted to.
struct StepsOfRows {
  long rows = 0, steps = 0, sequences = 0, levels = 0, drafted = 0;
  double draft_seconds = 0, seconds = 0;
};

// Times of equal steps, in the order in which they were taken, by blocks.
struct BlockTimes {
  long rows = 0, steps = 0;
  std::vector<double> seconds, context;
};

struct SteadyWindow {
  double seconds = 0;
  long steps = 0;
};

// Turns of conversations that were not served.
struct TurnsLeftOut {
  struct Turn {
    long job = 0;
    int prompt = 0, turn = 0;
  };
  int context = 0;
  std::vector<Turn> turns;
};

struct ServedBefore {
  double seconds = 0;
  long tokens = 0, failed = 0;
};

struct RequestRecord {
  int prompt = 0, turn = 0;
  std::optional<std::string> category;
  long prompt_tokens = 0, tokens = 0, first_tokens = 0;
  double seconds = 0, share_seconds = 0, decode_seconds = 0, ttft = 0;
  long rounds = 0, drafted = 0, tested = 0, accepted = 0;
  std::optional<std::vector<long>> tested_at, accepted_at;
  std::optional<long> steady_tokens;
  std::optional<double> steady_seconds, log_probability, arrival, queued;
  std::string finish;
  std::optional<std::string> failure, output;

  bool failed() const { return finish == "failed"; }
  long decode_tokens() const { return tokens - first_tokens; }
};

// What one side of an alternation did: speculation, or its baseline.
struct SideRecord {
  double seconds = 0;
  std::optional<double> idle_seconds, stopped_seconds;
  long steps = 0, rows = 0, tokens = 0, rounds = 0, drafted = 0, tested = 0, accepted = 0, prompt_tokens = 0;
  long prefix_rows = 0, preempted = 0, cut = 0;
  std::optional<long> recorded, unrecorded;
  std::vector<long> histogram, drafted_at, tested_at, accepted_at;
  std::map<std::string, long> no_draft;
  std::optional<std::vector<std::vector<long>>> offered_children, accepted_children;
  std::vector<StepsOfRows> steps_of_rows;
  std::optional<BlockTimes> step_blocks;
  std::optional<SteadyWindow> steady;
  std::map<int, long> gaps;
  Phases phases;
  std::optional<MemoryUsed> memory;
  std::optional<TurnsLeftOut> left_out;
  std::optional<ServedBefore> served_before;
  std::optional<std::string> doubt, notice;
  std::vector<RequestRecord> requests;
};

struct Alternation {
  std::optional<std::string> first, began;
  SideRecord baseline, speculative;
};
using SideOf = SideRecord Alternation::*;

struct MachineInfo {
  struct Clocks {
    std::optional<long> sm, memory, sm_most;
  };
  std::string cpu, os;
  int cores = 0;
  long memory_gib = 0;
  std::string device, description, instructions;  // empty: of the host alone
  std::optional<int> threads;
  std::optional<std::string> driver;
  std::optional<double> power_limit_watts;
  std::optional<Clocks> clocks_mhz;
};

struct ModelIdentity {
  std::string name;
  std::optional<std::string> revision, hash;
};

// With what a run was measured, beside its document.
struct Origin {
  std::string commit, version, compiler;
  std::optional<std::string> program, nvcc;
  std::optional<MachineInfo> machine;
  std::map<std::string, std::string> sources;
  std::map<std::string, ModelIdentity> models;
};

struct Target {
  std::string name;
  long vocab = 0, weight_bytes = 0;
};

// Outputs of speculation that were compared with plain decoding's.
struct Agreement {
  bool compared = false;
  long compared_texts = 0, differing_texts = 0;
};

// Whether the alternations of a side gave equal outputs and counts.
struct Reproduced {
  struct Difference {
    std::string side;
    int repeat = 0;
    long requests = 0;
  };
  bool compared = false;
  std::vector<Difference> differing;
};

struct OutputHashes {
  std::string baseline, speculative;
};

struct SideSpeeds {
  std::string side;
  double ratio = 1, slower = 0;
};

struct Failure {
  long request = 0;
  int prompt = 0;
  std::string side;
  int repeat = 0;
  std::string failure;
};

// A measurement that does not count.
struct ThrownAway {
  std::string reason;
  double seconds = 0;
  std::optional<double> stopped_seconds;
  std::optional<long> recorded;
  long differing_texts = 0;
  std::string side;
  int repeat = 0;
};

// Of a run that does not have all of its alternations.
struct DoneOf {
  int done = 0, of = 0;
};

struct Result {
  int schema = kResultSchema;
  std::string key;
  nlohmann::json run = nlohmann::json::object(), axes = nlohmann::json::object();
  std::string date;
  Origin origin;
  double seconds = 0;
  std::optional<std::string> error;
  std::optional<std::string> promise;
  std::optional<Target> target;
  std::optional<Agreement> agreement;
  std::optional<Reproduced> alternations;
  std::optional<OutputHashes> outputs;
  std::optional<int> interleaved;
  std::optional<DoneOf> unfinished;
  bool shared_baseline = false;
  std::vector<SideSpeeds> two_speeds;
  std::vector<Failure> failures;
  std::vector<ThrownAway> thrown_away;
  std::vector<Alternation> repeats;

  bool failed() const { return error.has_value(); }
  std::string device() const { return origin.machine ? origin.machine->device : ""; }
};

nlohmann::json to_json(const Result& result);
nlohmann::json to_json(const MachineInfo& machine);
nlohmann::json to_json(const SideRecord& side);

// A field that is missing, of another type or unknown is an Error that names its place; `where` names the line.
Result result_of(const nlohmann::json& line, const std::string& where);

// The JSON Schema (2020-12) of a line.
nlohmann::json result_schema();

}  // namespace foretoken
