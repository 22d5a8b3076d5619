// The result of a run as `foretoken run` stores it: one line of a file of results, and all that it consists of: of each
// field its type, its name, and what it means, with its unit. Whoever writes, reads or documents lines does it by these
// (described.h). This module must not know how a run is measured, nor which figures follow from it.
#pragma once
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/preprocessor/seq/for_each.hpp>
#include <boost/preprocessor/stringize.hpp>
#include <boost/preprocessor/tuple/elem.hpp>
#include <boost/preprocessor/variadic/to_seq.hpp>
#include <nlohmann/json.hpp>

#include "framework/components/step_report.h"

namespace foretoken {

// Whether it is a day of the calendar, "2026-11-21", alone or with a time of UTC, "2026-11-21T08:00:00Z": such texts
// sort as time does.
bool is_date(std::string_view text);

constexpr int kResultSchema = 2;

// The members of a struct, each a (type, name, "meaning"), and fields(visitor, struct), which describe() calls.
#define FORETOKEN_MEMBER(r, data, field) BOOST_PP_TUPLE_ELEM(0, field) BOOST_PP_TUPLE_ELEM(1, field){};
#define FORETOKEN_VISIT(r, data, field)                                                         \
  visitor(BOOST_PP_STRINGIZE(BOOST_PP_TUPLE_ELEM(1, field)), self.BOOST_PP_TUPLE_ELEM(1, field), \
                             BOOST_PP_TUPLE_ELEM(2, field));
#define FORETOKEN_FIELDS(...)                                                        \
  BOOST_PP_SEQ_FOR_EACH(FORETOKEN_MEMBER, _, BOOST_PP_VARIADIC_TO_SEQ(__VA_ARGS__))  \
  template <class V, class T> static void fields(V& visitor, T& self) {              \
    BOOST_PP_SEQ_FOR_EACH(FORETOKEN_VISIT, _, BOOST_PP_VARIADIC_TO_SEQ(__VA_ARGS__)) \
  }

template <class T> using ByName = std::map<std::string, T>;
using Bins = std::map<int, long>;

// Bytes that a side's engine held.
struct MemoryUsed {
  FORETOKEN_FIELDS((std::int64_t, target_weights, "bytes of the target's weights, embeddings included"),
                   (std::int64_t, draft_weights,
                    "bytes of the drafting models' weights, each model once, without the target's"),
                   (std::int64_t, cache, "bytes of the pool of pages"),
                   (std::int64_t, cache_used, "bytes of the pool that were in use, at most"),
                   (std::optional<std::int64_t>, states_per_token,
                    "bytes of the target's pages that hidden states of a token take"),
                   (std::optional<std::int64_t>, scratch,
                    "bytes that a step held besides, at most; absent where the device does not count"))
};

// Sums over the steps of so many rows that read no prompt, recorded no forward and verified a tree: what step times are
// fitted to.
struct StepsOfRows {
  FORETOKEN_FIELDS((long, rows, "rows of the target's forward"), (long, steps, "steps with so many rows"),
                   (long, sequences, "sequences of these steps"),
                   (long, levels, "levels of the deepest tree of each step"), (long, drafted, "nodes below the roots"),
                   (double, draft_seconds, "seconds of drafting"), (double, seconds, "seconds of the steps"))
};

// Times of equal steps, in the order in which they were taken, by blocks.
struct BlockTimes {
  FORETOKEN_FIELDS((long, rows, "rows of the target's forward that most steps had; 0: no step was counted"),
                   (long, steps, "steps of a block"),
                   (std::vector<double>, seconds, "of each block, the median of its steps' seconds without drafting"),
                   (std::vector<double>, context, "of each block, the mean tokens of all sequences"))
};

struct SteadyWindow {
  FORETOKEN_FIELDS((double, seconds, "seconds of its steps"), (long, steps, "its steps"))
};

// Turns of conversations that were not served.
struct TurnsLeftOut {
  struct Turn {
    FORETOKEN_FIELDS((long, job, "number of the request among all that the workload has, from 0"),
                     (int, prompt, "number of its prompt, from 0"), (int, turn, "turn of the conversation, from 0"))
  };
  FORETOKEN_FIELDS((int, context, "tokens of the context, which the conversations had reached"),
                   (std::vector<Turn>, turns, "the turns"))
};

struct ServedBefore {
  FORETOKEN_FIELDS((double, seconds, "seconds that it took"), (long, tokens, "emitted tokens"),
                   (long, failed, "requests that failed"))
};

struct RequestRecord {
  FORETOKEN_FIELDS((int, prompt, "number of the prompt, from 0"), (int, turn, "turn of a conversation, from 0"),
                   (std::optional<std::string>, category, "category of the prompt, where it has one"),
                   (long, prompt_tokens, "tokens of the prompt"), (long, tokens, "emitted tokens"),
                   (long, first_tokens, "tokens that the first round emitted"),
                   (double, seconds, "seconds from the arrival to the end"),
                   (double, share_seconds,
                    "its shares of the steps that it was in: seconds of a step / sequences in it"),
                   (double, decode_seconds, "seconds after the first round"),
                   (double, ttft, "seconds from the arrival to the first token"),
                   (long, rounds, "rounds, each with a forward of the target"),
                   (long, drafted, "drafted tokens: nodes below the roots"),
                   (long, tested, "positions that were tested, up to the first rejection of a round"),
                   (long, accepted, "positions that were accepted"),
                   (std::optional<std::vector<long>>, tested_at, "rounds that tested each position, from 1"),
                   (std::optional<std::vector<long>>, accepted_at, "rounds that accepted each position, from 1"),
                   (std::optional<long>, steady_tokens, "tokens of the steady window"),
                   (std::optional<double>, steady_seconds, "its shares of the steps of the steady window, in seconds"),
                   (std::optional<double>, log_probability,
                    "sum over its tokens, where /sampling/logprobs asks for it"),
                   (std::optional<double>, arrival, "seconds from the start to its arrival, in an open loop"),
                   (std::optional<double>, queued, "seconds from the arrival to its first step, in an open loop"),
                   (std::string, finish, "why it ended: stop_token, stop_rule, length or failed"),
                   (std::optional<std::string>, failure, "why it failed"),
                   (std::optional<std::string>, output, "its text, where /measure/keep_outputs asks for it"))

  bool failed() const { return finish == "failed"; }
  long decode_tokens() const { return tokens - first_tokens; }
};

// What one side of an alternation did: speculation, or its baseline.
struct SideRecord {
  FORETOKEN_FIELDS(
      (double, seconds, "seconds until the last request ended"),
      (std::optional<double>, idle_seconds, "seconds in which no request was running, in an open loop"),
      (std::optional<double>, stopped_seconds, "seconds in which the process got no processor"),
      (long, steps, "steps of the engine"), (long, rows, "rows of the target's forwards"),
      (long, tokens, "emitted tokens"), (long, rounds, "rounds of all requests"), (long, drafted, "drafted tokens"),
      (long, tested, "positions that were tested, up to the first rejection of a round"),
      (long, accepted, "positions that were accepted"), (long, prompt_tokens, "tokens of the prompts"),
      (long, prefix_rows, "tokens of the prompts that were found in the cache"),
      (long, preempted, "preemptions of a sequence"),
      (long, cut, "trees with fewer nodes than the policy asked for, for want of rows or pages"),
      (std::optional<long>, recorded, "forwards that the device recorded for replay"),
      (std::optional<long>, unrecorded, "forwards without a recording that the device would have recorded"),
      (std::vector<long>, histogram, "rounds that accepted 0, 1, 2, ... positions"),
      (std::vector<long>, drafted_at, "rounds that drafted each position, from 1"),
      (std::vector<long>, tested_at, "rounds that tested each position, from 1"),
      (std::vector<long>, accepted_at, "rounds that accepted each position, from 1"),
      (ByName<long>, no_draft, "rounds without a draft, by reason: policy, end, rows, pages, context, states, nothing"),
      (std::optional<std::vector<std::vector<long>>>, offered_children,
       "by level and place among siblings: how often a child was there to test"),
      (std::optional<std::vector<std::vector<long>>>, accepted_children,
       "by level and place among siblings: how often a child was accepted"),
      (std::vector<StepsOfRows>, steps_of_rows,
       "sums over the steps without prompts, by the rows of the target's forward"),
      (std::optional<BlockTimes>, step_blocks,
       "times of the steps of the steady window that had the most frequent rows"),
      (std::optional<SteadyWindow>, steady,
       "the steady window: all slots of the batch were taken, and the first requests had emitted"),
      (Bins, gaps, "how often each time between a request's rounds was met; bin b begins at 1.01^b microseconds"),
      (Phases, phases, "where the time of steps went"), (std::optional<MemoryUsed>, memory, "what the engine held"),
      (std::optional<TurnsLeftOut>, left_out, "turns of conversations that were not served"),
      (std::optional<ServedBefore>, served_before, "requests that were served before a warm measurement"),
      (std::optional<std::string>, doubt,
       "that first drafts were accepted far less often than their own probabilities expect"),
      (std::optional<std::string>, notice, "what the drafter had to say"),
      (std::vector<RequestRecord>, requests, "the requests, in the order of the workload"))
};

struct Alternation {
  FORETOKEN_FIELDS((std::optional<std::string>, first, "the side that was measured first: baseline or speculative"),
                   (std::optional<std::string>, began, "when it began, UTC, as 2026-11-21T08:00:00Z"),
                   (SideRecord, baseline, "the same engine without speculation"),
                   (SideRecord, speculative, "speculation"))
};
using SideOf = SideRecord Alternation::*;

struct GpuClocks {
  FORETOKEN_FIELDS((std::optional<long>, sm, "MHz of the multiprocessors at the end of the last alternation"),
                   (std::optional<long>, memory, "MHz of the memory at the end of the last alternation"),
                   (std::optional<long>, sm_most, "most MHz of the multiprocessors"))
};

struct MachineInfo {
  FORETOKEN_FIELDS((std::string, cpu, "name of the processor"), (std::string, os, "operating system"),
                   (int, cores, "its logical cores"), (long, memory_gib, "GiB of main memory"),
                   (std::string, device, "device that was taken: cpu, reference or cuda"),
                   (std::string, description, "the device in words"),
                   (std::string, instructions, "instructions of a CPU that products were computed with"),
                   (std::optional<int>, threads, "threads of a CPU"),
                   (std::optional<std::string>, driver, "version of a GPU's driver"),
                   (std::optional<double>, power_limit_watts, "watts that a GPU may take"),
                   (std::optional<GpuClocks>, clocks_mhz, "clocks of a GPU"))
};

struct ModelIdentity {
  FORETOKEN_FIELDS((std::string, name, "its name where it comes from"),
                   (std::optional<std::string>, revision, "its revision, in a cache of Hugging Face or by config.json"),
                   (std::optional<std::string>, hash, "a hash of all its contents, as of sources"))
};

// With what a run was measured, beside its document.
struct Origin {
  FORETOKEN_FIELDS((std::string, commit, "commit of the program"), (std::string, version, "version of the program"),
                   (std::string, compiler, "compiler of the program"),
                   (std::optional<std::string>, program, "a hash of the program"),
                   (std::optional<std::string>, nvcc, "CUDA compiler of a program that has CUDA"),
                   (std::optional<MachineInfo>, machine,
                    "where it was measured; absent where a failed run could not tell"),
                   (ByName<std::string>, sources,
                    "a hash of all contents of each path of the run: prompts, models, files of options"),
                   (ByName<ModelIdentity>, models, "what each path of a model holds"))
};

struct Target {
  FORETOKEN_FIELDS((std::string, name, "name of the target"), (long, vocab, "tokens of its vocabulary"),
                   (long, weight_bytes, "bytes that a forward reads of its weights"))
};

// Outputs of speculation that were compared with plain decoding's.
struct Agreement {
  FORETOKEN_FIELDS((bool, compared, "whether outputs of both sides must be equal, and were compared"),
                   (long, compared_texts, "outputs that were compared, over all alternations"),
                   (long, differing_texts, "outputs that differed"))
};

// Whether the alternations of a side gave equal outputs and counts.
struct Reproduced {
  struct Difference {
    FORETOKEN_FIELDS((std::string, side, "baseline or speculative"), (int, repeat, "number of the alternation, from 0"),
                     (long, requests, "requests that differ from those of the first alternation"))
  };
  FORETOKEN_FIELDS((bool, compared, "whether alternations must be equal, and were compared"),
                   (std::vector<Difference>, differing, "alternations of a side that differ from its first one"))
};

struct OutputHashes {
  FORETOKEN_FIELDS((std::string, baseline, "of plain decoding"), (std::string, speculative, "of speculation"))
};

struct SideSpeeds {
  FORETOKEN_FIELDS((std::string, side, "baseline or speculative"),
                   (double, ratio, "how many times as long the slower steps took"),
                   (double, slower, "share of the slower steps"))
};

struct Failure {
  FORETOKEN_FIELDS((long, request, "number of the request, from 0"), (int, prompt, "number of its prompt, from 0"),
                   (std::string, side, "baseline or speculative"), (int, repeat, "number of the alternation, from 0"),
                   (std::string, failure, "why it failed"))
};

// A measurement that does not count.
struct ThrownAway {
  FORETOKEN_FIELDS((std::string, reason, "why it does not count"), (double, seconds, "seconds that it took"),
                   (std::optional<double>, stopped_seconds, "seconds of it in which the process got no processor"),
                   (std::optional<long>, recorded, "forwards that the device recorded in it"),
                   (long, differing_texts, "outputs that differ from those of the measurement that counts"),
                   (std::string, side, "baseline or speculative"), (int, repeat, "number of the alternation, from 0"))
};

// Of a run that does not have all of its alternations.
struct DoneOf {
  FORETOKEN_FIELDS((int, done, "alternations that it has; they may be more where the run measures by time"),
                   (int, of, "alternations that the run asks for at least"))
};

struct Result {
  int schema = kResultSchema;
  nlohmann::json run = nlohmann::json::object(), axes = nlohmann::json::object();
  Origin origin;
  FORETOKEN_FIELDS((std::string, key, "hash of the run, 16 hexadecimal digits"),
                   (std::string, date, "when it was measured, UTC, as 2026-11-21T08:00:00Z"),
                   (double, seconds, "seconds that measuring took, with loading and warm-up"),
                   (std::optional<std::string>, error, "why the run failed; it has no alternations then"),
                   (std::optional<std::string>, promise,
                    "what the verifier promises: exact; exact, path-identical; or lossy: the distribution"),
                   (std::optional<Target>, target, "the target model"),
                   (std::optional<Agreement>, agreement, "whether speculation gave the outputs of plain decoding"),
                   (std::optional<Reproduced>, alternations, "whether alternations gave equal outputs"),
                   (std::optional<OutputHashes>, outputs,
                    "a hash of all outputs of each side, in the first alternation"),
                   (std::optional<int>, interleaved, "runs of a round, the fewest of any"),
                   (std::optional<DoneOf>, unfinished,
                    "how far a run is that `show` reads before it is finished; in no file of results"),
                   (bool, shared_baseline, "whether the baseline was measured for several runs at once"),
                   (std::vector<SideSpeeds>, two_speeds, "sides whose steps had two speeds"),
                   (std::vector<Failure>, failures, "requests that failed"),
                   (std::vector<ThrownAway>, thrown_away, "measurements that do not count"),
                   (std::vector<Alternation>, repeats, "the alternations, in their order"))

  bool failed() const { return error.has_value(); }
  std::string device() const { return origin.machine ? origin.machine->device : ""; }
};

template <class V, class T>
  requires std::same_as<std::remove_const_t<T>, Phases>
void describe(V& v, T& t) {
  v("schedule", t.schedule, "seconds of scheduling on the host, and of what no other phase has");
  v("draft_forward", t.draft_forward, "seconds of forwards of drafters' models");
  v("draft_other", t.draft_other, "seconds of the rest of drafting: distributions, draws, trees");
  v("target_forward", t.target_forward, "seconds of the target's forwards");
  v("verify", t.verify, "seconds of the target's distributions and of the verifier");
  v("deliver", t.deliver, "seconds after the readback: appending tokens, callbacks, accounting");
  v("total", t.total, "seconds of all steps");
}

template <class V, class T>
  requires requires(V& v, T& t) { T::fields(v, t); } && (!std::same_as<std::remove_const_t<T>, Result>)
void describe(V& v, T& t) {
  T::fields(v, t);
}

nlohmann::json to_json(const Result& result);
nlohmann::json to_json(const MachineInfo& machine);
nlohmann::json to_json(const Phases& phases);
nlohmann::json to_json(const SideRecord& side);

// A field that is missing, of another type or unknown is an Error that names its place; `where` names the line.
Result result_of(const nlohmann::json& line, const std::string& where);

// The JSON Schema (2020-12) of a line.
nlohmann::json result_schema();

}  // namespace foretoken
