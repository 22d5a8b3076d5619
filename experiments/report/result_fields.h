// Every field of a result line: its name, and what it means, with its unit. Whoever writes, reads or documents lines
// does it by these descriptions (described.h).
#pragma once
#include "experiments/report/described.h"
#include "experiments/report/result.h"

namespace foretoken {

template <class V, Is<MemoryUsed> T> void describe(V& v, T& t) {
  v("target_weights", t.target_weights, "bytes of the target's weights, embeddings included");
  v("draft_weights", t.draft_weights, "bytes of the drafting models' weights, each model once, without the target's");
  v("cache", t.cache, "bytes of the pool of pages");
  v("cache_used", t.cache_used, "bytes of the pool that were in use, at most");
  v("states_per_token", t.states_per_token, "bytes of the target's pages that hidden states of a token take");
  v("scratch", t.scratch, "bytes that a step held besides, at most; absent where the device does not count");
}

template <class V, Is<StepsOfRows> T> void describe(V& v, T& t) {
  v("rows", t.rows, "rows of the target's forward");
  v("steps", t.steps, "steps with so many rows");
  v("sequences", t.sequences, "sequences of these steps");
  v("levels", t.levels, "levels of the deepest tree of each step");
  v("drafted", t.drafted, "nodes below the roots");
  v("draft_seconds", t.draft_seconds, "seconds of drafting");
  v("seconds", t.seconds, "seconds of the steps");
}

template <class V, Is<BlockTimes> T> void describe(V& v, T& t) {
  v("rows", t.rows, "rows of the target's forward that most steps had; 0: no step was counted");
  v("steps", t.steps, "steps of a block");
  v("seconds", t.seconds, "of each block, the median of its steps' seconds without drafting");
  v("context", t.context, "of each block, the mean tokens of all sequences");
}

template <class V, Is<SteadyWindow> T> void describe(V& v, T& t) {
  v("seconds", t.seconds, "seconds of its steps");
  v("steps", t.steps, "its steps");
}

template <class V, Is<TurnsLeftOut::Turn> T> void describe(V& v, T& t) {
  v("job", t.job, "number of the request among all that the workload has, from 0");
  v("prompt", t.prompt, "number of its prompt, from 0");
  v("turn", t.turn, "turn of the conversation, from 0");
}

template <class V, Is<TurnsLeftOut> T> void describe(V& v, T& t) {
  v("context", t.context, "tokens of the context, which the conversations had reached");
  v("turns", t.turns, "the turns");
}

template <class V, Is<ServedBefore> T> void describe(V& v, T& t) {
  v("seconds", t.seconds, "seconds that it took");
  v("tokens", t.tokens, "emitted tokens");
  v("failed", t.failed, "requests that failed");
}

template <class V, Is<Phases> T> void describe(V& v, T& t) {
  v("schedule", t.schedule, "seconds of scheduling on the host, and of what no other phase has");
  v("draft_forward", t.draft_forward, "seconds of forwards of drafters' models");
  v("draft_other", t.draft_other, "seconds of the rest of drafting: distributions, draws, trees");
  v("target_forward", t.target_forward, "seconds of the target's forwards");
  v("verify", t.verify, "seconds of the target's distributions and of the verifier");
  v("deliver", t.deliver, "seconds after the readback: appending tokens, callbacks, accounting");
  v("total", t.total, "seconds of all steps");
}

template <class V, Is<RequestRecord> T> void describe(V& v, T& t) {
  v("prompt", t.prompt, "number of the prompt, from 0");
  v("turn", t.turn, "turn of a conversation, from 0");
  v("category", t.category, "category of the prompt, where it has one");
  v("prompt_tokens", t.prompt_tokens, "tokens of the prompt");
  v("tokens", t.tokens, "emitted tokens");
  v("first_tokens", t.first_tokens, "tokens that the first round emitted");
  v("seconds", t.seconds, "seconds from the arrival to the end");
  v("share_seconds", t.share_seconds, "its shares of the steps that it was in: seconds of a step / sequences in it");
  v("decode_seconds", t.decode_seconds, "seconds after the first round");
  v("ttft", t.ttft, "seconds from the arrival to the first token");
  v("rounds", t.rounds, "rounds, each with a forward of the target");
  v("drafted", t.drafted, "drafted tokens: nodes below the roots");
  v("tested", t.tested, "positions that were tested, up to the first rejection of a round");
  v("accepted", t.accepted, "positions that were accepted");
  v("tested_at", t.tested_at, "rounds that tested each position, from 1");
  v("accepted_at", t.accepted_at, "rounds that accepted each position, from 1");
  v("steady_tokens", t.steady_tokens, "tokens of the steady window");
  v("steady_seconds", t.steady_seconds, "its shares of the steps of the steady window, in seconds");
  v("log_probability", t.log_probability, "sum over its tokens, where /sampling/logprobs asks for it");
  v("arrival", t.arrival, "seconds from the start to its arrival, in an open loop");
  v("queued", t.queued, "seconds from the arrival to its first step, in an open loop");
  v("finish", t.finish, "why it ended: stop_token, stop_rule, length or failed");
  v("failure", t.failure, "why it failed");
  v("output", t.output, "its text, where /measure/keep_outputs asks for it");
}

template <class V, Is<SideRecord> T> void describe(V& v, T& t) {
  v("seconds", t.seconds, "seconds until the last request ended");
  v("idle_seconds", t.idle_seconds, "seconds in which no request was running, in an open loop");
  v("stopped_seconds", t.stopped_seconds, "seconds in which the process got no processor");
  v("steps", t.steps, "steps of the engine");
  v("rows", t.rows, "rows of the target's forwards");
  v("tokens", t.tokens, "emitted tokens");
  v("rounds", t.rounds, "rounds of all requests");
  v("drafted", t.drafted, "drafted tokens");
  v("tested", t.tested, "positions that were tested, up to the first rejection of a round");
  v("accepted", t.accepted, "positions that were accepted");
  v("prompt_tokens", t.prompt_tokens, "tokens of the prompts");
  v("prefix_rows", t.prefix_rows, "tokens of the prompts that were found in the cache");
  v("preempted", t.preempted, "preemptions of a sequence");
  v("cut", t.cut, "trees with fewer nodes than the policy asked for, for want of rows or pages");
  v("recorded", t.recorded, "forwards that the device recorded for replay");
  v("unrecorded", t.unrecorded, "forwards without a recording that the device would have recorded");
  v("histogram", t.histogram, "rounds that accepted 0, 1, 2, ... positions");
  v("drafted_at", t.drafted_at, "rounds that drafted each position, from 1");
  v("tested_at", t.tested_at, "rounds that tested each position, from 1");
  v("accepted_at", t.accepted_at, "rounds that accepted each position, from 1");
  v("no_draft", t.no_draft, "rounds without a draft, by reason: policy, end, rows, pages, context, states, nothing");
  v("offered_children", t.offered_children, "by level and place among siblings: how often a child was there to test");
  v("accepted_children", t.accepted_children, "by level and place among siblings: how often a child was accepted");
  v("steps_of_rows", t.steps_of_rows, "sums over the steps without prompts, by the rows of the target's forward");
  v("step_blocks", t.step_blocks, "times of the steps of the steady window that had the most frequent rows");
  v("steady", t.steady, "the steady window: all places of the batch were taken, and the first requests had emitted");
  v("gaps", t.gaps, "how often each time between a request's rounds was met; bin b begins at 1.01^b microseconds");
  v("phases", t.phases, "where the time of steps went");
  v("memory", t.memory, "what the engine held");
  v("left_out", t.left_out, "turns of conversations that were not served");
  v("served_before", t.served_before, "requests that were served before a warm measurement");
  v("doubt", t.doubt, "that first drafts were accepted far less often than their own probabilities expect");
  v("notice", t.notice, "what the drafter had to say");
  v("requests", t.requests, "the requests, in the order of the workload");
}

template <class V, Is<Alternation> T> void describe(V& v, T& t) {
  v("first", t.first, "the side that was measured first: baseline or speculative");
  v("began", t.began, "when it began, UTC, as 2026-11-21T08:00:00Z");
  v("baseline", t.baseline, "the same engine without speculation");
  v("speculative", t.speculative, "speculation");
}

template <class V, Is<MachineInfo::Clocks> T> void describe(V& v, T& t) {
  v("sm", t.sm, "MHz of the multiprocessors at the end of the last alternation");
  v("memory", t.memory, "MHz of the memory at the end of the last alternation");
  v("sm_most", t.sm_most, "most MHz of the multiprocessors");
}

template <class V, Is<MachineInfo> T> void describe(V& v, T& t) {
  v("cpu", t.cpu, "name of the processor");
  v("cores", t.cores, "its logical cores");
  v("os", t.os, "operating system");
  v("memory_gib", t.memory_gib, "GiB of main memory");
  v("device", t.device, "device that was taken: cpu, reference or cuda");
  v("description", t.description, "the device in words");
  v("instructions", t.instructions, "instructions of a CPU that products were computed with");
  v("threads", t.threads, "threads of a CPU");
  v("driver", t.driver, "version of a GPU's driver");
  v("power_limit_watts", t.power_limit_watts, "watts that a GPU may take");
  v("clocks_mhz", t.clocks_mhz, "clocks of a GPU");
}

template <class V, Is<ModelIdentity> T> void describe(V& v, T& t) {
  v("name", t.name, "its name where it comes from");
  v("revision", t.revision, "its revision, in a cache of Hugging Face or by config.json");
  v("hash", t.hash, "a hash of all its contents, as of sources");
}

template <class V, Is<Origin> T> void describe(V& v, T& t) {
  v("commit", t.commit, "commit of the program");
  v("version", t.version, "version of the program");
  v("compiler", t.compiler, "compiler of the program");
  v("program", t.program, "a hash of the program");
  v("nvcc", t.nvcc, "CUDA compiler of a program that has CUDA");
  v("machine", t.machine, "where it was measured; absent where a failed run could not tell");
  v("sources", t.sources, "a hash of all contents of each path of the run: prompts, models, files of options");
  v("models", t.models, "what each path of a model holds");
}

template <class V, Is<Target> T> void describe(V& v, T& t) {
  v("name", t.name, "name of the target");
  v("vocab", t.vocab, "tokens of its vocabulary");
  v("weight_bytes", t.weight_bytes, "bytes that a forward reads of its weights");
}

template <class V, Is<Agreement> T> void describe(V& v, T& t) {
  v("compared", t.compared, "whether outputs of both sides must be equal, and were compared");
  v("compared_texts", t.compared_texts, "outputs that were compared, over all alternations");
  v("differing_texts", t.differing_texts, "outputs that differed");
}

template <class V, Is<Reproduced::Difference> T> void describe(V& v, T& t) {
  v("side", t.side, "baseline or speculative");
  v("repeat", t.repeat, "number of the alternation, from 0");
  v("requests", t.requests, "requests that differ from those of the first alternation");
}

template <class V, Is<Reproduced> T> void describe(V& v, T& t) {
  v("compared", t.compared, "whether alternations must be equal, and were compared");
  v("differing", t.differing, "alternations of a side that differ from its first one");
}

template <class V, Is<OutputHashes> T> void describe(V& v, T& t) {
  v("baseline", t.baseline, "of plain decoding");
  v("speculative", t.speculative, "of speculation");
}

template <class V, Is<SideSpeeds> T> void describe(V& v, T& t) {
  v("side", t.side, "baseline or speculative");
  v("ratio", t.ratio, "how many times as long the slower steps took");
  v("slower", t.slower, "share of the slower steps");
}

template <class V, Is<Failure> T> void describe(V& v, T& t) {
  v("request", t.request, "number of the request, from 0");
  v("prompt", t.prompt, "number of its prompt, from 0");
  v("side", t.side, "baseline or speculative");
  v("repeat", t.repeat, "number of the alternation, from 0");
  v("failure", t.failure, "why it failed");
}

template <class V, Is<ThrownAway> T> void describe(V& v, T& t) {
  v("reason", t.reason, "why it does not count");
  v("seconds", t.seconds, "seconds that it took");
  v("stopped_seconds", t.stopped_seconds, "seconds of it in which the process got no processor");
  v("recorded", t.recorded, "forwards that the device recorded in it");
  v("differing_texts", t.differing_texts, "outputs that differ from those of the measurement that counts");
  v("side", t.side, "baseline or speculative");
  v("repeat", t.repeat, "number of the alternation, from 0");
}

template <class V, Is<DoneOf> T> void describe(V& v, T& t) {
  v("done", t.done, "alternations that it has; they may be more where the run measures by time");
  v("of", t.of, "alternations that the run asks for at least");
}

template <class V, Is<Result> T> void describe(V& v, T& t) {
  v("schema", t.schema, "version of this schema");
  v("key", t.key, "hash of the run, 16 hexadecimal digits");
  v("run", t.run, "the complete run document, whose keys `foretoken keys` lists");
  v("axes", t.axes, "values of the sweep's axes, by JSON pointer into the run");
  v("date", t.date, "when it was measured, UTC, as 2026-11-21T08:00:00Z");
  describe(v, t.origin);
  v("seconds", t.seconds, "seconds that measuring took, with loading and warm-up");
  v("error", t.error, "why the run failed; it has no alternations then");
  v("promise", t.promise, "what the verifier promises: exact; exact, path-identical; or lossy: the distribution");
  v("target", t.target, "the target model");
  v("agreement", t.agreement, "whether speculation gave the outputs of plain decoding");
  v("alternations", t.alternations, "whether alternations gave equal outputs");
  v("outputs", t.outputs, "a hash of all outputs of each side, in the first alternation");
  v("interleaved", t.interleaved, "runs of a round, the fewest of any");
  v("unfinished", t.unfinished, "how far a run is that `show` reads before it is finished; in no file of results");
  v("shared_baseline", t.shared_baseline, "whether the baseline was measured for several runs at once");
  v("two_speeds", t.two_speeds, "sides whose steps had two speeds");
  v("failures", t.failures, "requests that failed");
  v("thrown_away", t.thrown_away, "measurements that do not count");
  v("repeats", t.repeats, "the alternations, in their order");
}

}  // namespace foretoken
