#include "experiments/sweep/alternation.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include <spdlog/spdlog.h>

#include "experiments/report/described.h"
#include "experiments/report/machine.h"
#include "experiments/report/result.h"
#include "experiments/report/summary.h"
#include "experiments/report/two_speeds.h"
#include "experiments/session/arrival_rate.h"
#include "experiments/session/interrupt.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/provenance.h"
#include "experiments/sweep/tracing.h"
#include "foretoken_version.h"
#include "framework/text/utf8.h"
#include "kernels/error.h"
#include "kernels/out_of_memory.h"

namespace foretoken {

using nlohmann::json;

namespace {

using Clock = std::chrono::steady_clock;

constexpr Side kSides[] = {Side::baseline, Side::speculative};

const char* name_of(Side side) { return side == Side::baseline ? "baseline" : "speculative"; }

// If all requests of a side failed, nothing was measured.
void expect_some(const SideRecord& record, Side side) {
  const std::vector<RequestRecord>& requests = record.requests;
  if (requests.empty() || std::ranges::any_of(requests, [](const RequestRecord& r) { return !r.failure; })) return;
  throw Error("all " + std::to_string(requests.size()) + " requests failed (" + name_of(side) +
              "); the first: " + *requests.front().failure);
}

// Whether speculation must give plain decoding's output, token by token: at temperature 0, or with a path-identical
// verifier.
bool comparable(const json& run, const Soundness& soundness) {
  return run["sampling"]["temperature"] == 0 || soundness.path_identical();
}

class Measuring {
 public:
  Measuring(const Run& run, int k, const PreparedRun& prepared, Workbench& bench, const std::filesystem::path& beside,
            const std::function<void(double)>& progress, Baselines* shared)
      : run_(run.document),
        key_(run.key),
        k_(k),
        bench_(bench),
        beside_(beside),
        progress_(progress),
        shared_(shared),
        jobs_(prepared.jobs),
        before_(prepared.before) {}

  // Every alternation, since other runs may have been measured since the last one, and their models and recorded
  // forwards have taken the place of this run's. Memory that grows moves, and forwards that were recorded before do not
  // find it. So speculation comes first, which has more rows, and where anything was recorded both sides have a second
  // turn. No third: a device that keeps fewer forwards than both sides have records some every time.
  void warm_up() {
    if (!run_["measure"]["warmup"].get<bool>()) return;
    const Backend& device = bench_.backend(run_["engine"]);
    for (int pass = 0; pass < 2; ++pass) {
      const std::uint64_t before = device.recordings();
      for (const Side side : {Side::speculative, Side::baseline})
        if (side == Side::speculative || !shared_ || !shared_->known(run_)) warm_up(side);
      if (device.recordings() == before) return;
    }
  }

  // Both sides into the record; they take turns in being first.
  void measure_both(MeasuredAlternation& alternation) {
    const Clock::time_point start = Clock::now();
    alternation.first = name_of(kSides[k_ % 2]);
    for (int turn = 0; turn < 2; ++turn) {
      const Side side = kSides[(k_ + turn) % 2];
      MeasuredSide& measured = side == Side::baseline ? alternation.baseline : alternation.speculative;
      measured =
          shared_ && side == Side::baseline ? shared_->of(run_, [&] { return one(side, turn); }) : one(side, turn);
      expect_some(measured.record, side);
    }
    alternation.measured_seconds = seconds_since(start) - unmeasured_seconds_;
  }

 private:
  // Serves a few requests; where the device records forwards, then all, as they are measured, if it has not served them
  // before or recorded anything for the few: other runs' forwards have taken the place of this run's, or a model was
  // loaded again.
  void warm_up(Side side) {
    const auto interruptible = [](double) { check_interrupt(); };
    Backend& device = bench_.backend(run_["engine"]);
    const int batch = run_["engine"]["batch"];
    const std::uint64_t before = device.recordings();
    measure(*bench_.engine(run_, side, beside_), warm_up_jobs(jobs_, std::size_t(batch)), batch, interruptible);
    const bool first = device.records() && bench_.is_first(side == Side::baseline ? baseline_of(run_) : key_);
    if (first || device.recordings() != before) serve(side, false, interruptible);
  }

  void tell(int turn, double part) {
    check_interrupt();
    progress_((turn + part) / 2);
  }

  // What a warm measurement begins with, in a closed loop. Prompts are read anew afterwards, as the baseline reads
  // them.
  ServedBefore serve_before(Engine& engine, const std::function<void(double)>& progress) {
    const auto begin = Clock::now();
    const Measured served =
        measure(engine, before_, run_["engine"]["batch"].get<int>(), [&](double part) { progress(part / 2); });
    engine.forget_prefixes();
    expect_some(served.record, Side::speculative);
    before_seconds_ = seconds_since(begin);
    const auto failed = std::ranges::count_if(served.failures, [](const std::string& why) { return !why.empty(); });
    return {.seconds = served.record.seconds, .tokens = served.record.tokens, .failed = long(failed)};
  }

  // All requests of a side; none of their forwards is recorded where all `were_met`.
  Measured serve(Side side, bool were_met, const std::function<void(double)>& progress) {
    const auto engine = bench_.engine(run_, side, beside_);
    const bool warm = side == Side::speculative && !before_.empty();
    std::optional<ServedBefore> before;
    if (warm) before = serve_before(*engine, progress);
    const NothingRecorded settled(bench_.backend(run_["engine"]), were_met);
    Measured found = measure(*engine, jobs_, loop_of(run_, jobs_.size(), k_),
                             [&](double part) { progress(warm ? (1 + part) / 2 : part); });
    found.record.served_before = before;
    return found;
  }

  MeasuredSide one(Side side, int turn) {
    auto begin = Clock::now();
    before_seconds_ = 0;
    Taken taken =
        measure_kept([&] { return serve(side, run_["measure"]["warmup"], [&](double part) { tell(turn, part); }); },
                     [&] { unmeasured_seconds_ += seconds_since(std::exchange(begin, Clock::now())); },
                     run_["measure"].value("busy", "refuse") == "accept");
    unmeasured_seconds_ += before_seconds_;  // of what is kept; what was thrown away is counted whole
    if (taken.measured.record.notice) spdlog::warn("{}", *taken.measured.record.notice);
    if (k_ == 0 && run_["measure"]["keep_outputs"]) keep_outputs(taken.measured);
    for (ThrownAway& thrown : taken.thrown_away) {
      thrown.side = name_of(side);
      thrown.repeat = k_;
    }
    HashedOutputs outputs = outputs_of(taken.measured);
    return {std::move(taken.measured.record), std::move(outputs), std::move(taken.thrown_away)};
  }

  void keep_outputs(Measured& measured) {
    const auto tokenizer = bench_.tokenizer(target_of(run_), beside_);
    const std::set<std::size_t> left_out = left_out_of(measured.record);
    std::vector<RequestRecord>& requests = measured.record.requests;
    for (std::size_t job = 0, i = 0; job < measured.outputs.size(); ++job)
      if (!left_out.contains(job)) requests[i++].output = replace_broken_utf8(tokenizer->decode(measured.outputs[job]));
  }

  const json& run_;
  const std::string& key_;
  int k_;
  Workbench& bench_;
  const std::filesystem::path& beside_;
  const std::function<void(double)>& progress_;
  Baselines* shared_;
  const std::vector<Job>&jobs_, &before_;
  double before_seconds_ = 0;      // that the last measurement of a side served before it began
  double unmeasured_seconds_ = 0;  // of what was thrown away, and served before warm measurements
};

Result result_begun(const Run& run) {
  Result result;
  result.key = run.key;
  result.run = run.document;
  result.axes = run.axes;
  result.date = utc_now();
  return result;
}

// What is added to a result for one side of an alternation: requests that failed, and what was thrown away.
void note_side(const MeasuredSide& measured, const char* side, int repeat, Result& result) {
  const std::vector<RequestRecord>& requests = measured.record.requests;
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (requests[i].failure)
      result.failures.push_back({.request = long(i),
                                 .prompt = requests[i].prompt,
                                 .side = side,
                                 .repeat = repeat,
                                 .failure = *requests[i].failure});
  result.thrown_away.insert(result.thrown_away.end(), measured.thrown_away.begin(), measured.thrown_away.end());
}

}  // namespace

template <class V, Is<EngineFacts> T> void describe(V& v, T& t) {
  v("promise", t.promise, "what the verifier promises");
  v("target", t.target, "the target model");
  v("compared", t.compared, "whether outputs of both sides must be equal");
  v("learns", t.learns, "whether the drafter or the policy learns");
}

template <class V, Is<MeasuredSide> T> void describe(V& v, T& t) {
  v("record", t.record, "what the side did");
  v("outputs", t.outputs, "a hash of the output of each request");
  v("thrown_away", t.thrown_away, "measurements that do not count");
}

template <class V, Is<MeasuredAlternation> T> void describe(V& v, T& t) {
  v("schema", t.schema, "version of this schema");
  v("key", t.key, "of its run");
  v("alternation", t.alternation, "its number, from 0");
  v("run", t.run, "the complete document of its run");
  v("axes", t.axes, "values of the sweep's axes, by JSON pointer into the run");
  v("sweep", t.sweep, "the sweep that measured it");
  v("origin", t.origin, "with what it was measured");
  v("engine", t.engine, "what the engine says of itself");
  v("shared_baseline", t.shared_baseline, "whether the baseline may be that of another run");
  v("together", t.together, "runs of its round");
  v("first", t.first, "the side that was measured first");
  v("began", t.began, "when it began, UTC");
  v("seconds", t.seconds, "seconds that it took");
  v("measured_seconds", t.measured_seconds, "seconds without loading, warm-up and what was thrown away");
  v("baseline", t.baseline, "plain decoding");
  v("speculative", t.speculative, "speculation");
}

PreparedRun prepare(const Run& run, Workbench& bench, const std::filesystem::path& beside) {
  const json& document = run.document;
  const auto engine = bench.engine(document, Side::speculative, beside);
  const ModelInfo& target = engine->target().info();
  expect_start(document, engine->learns());
  std::vector<Job> jobs = jobs_of(document, bench, beside), before = jobs_before(document, jobs, bench, beside);
  return {std::move(jobs),
          std::move(before),
          {.promise = engine->soundness().promise,
           .target = {.name = target.name, .vocab = target.vocab, .weight_bytes = target.weight_bytes},
           .compared = comparable(document, engine->soundness()),
           .learns = engine->learns()}};
}

std::string baseline_of(json run) {
  for (const char* key : {"drafter", "policy", "trace"}) run.erase(key);
  if (run.contains("workload")) run["workload"].erase("start");
  return run.dump();
}

const MeasuredSide& Baselines::of(const json& run, const std::function<MeasuredSide()>& measure) {
  const std::string key = baseline_of(run);
  if (!measured_.contains(key)) measured_[key] = measure();
  return measured_[key];
}

json to_json(const MeasuredAlternation& alternation) { return described::written(alternation); }

MeasuredAlternation alternation_of(const json& kept) {
  MeasuredAlternation alternation;
  described::read(kept, alternation, {});
  if (!is_date(alternation.began)) throw Error("'began' is not a date");
  return alternation;
}

Origin origin_now(const Run& run, Workbench& bench, const std::filesystem::path& beside) {
  // Builds of changed sources that are not committed have one commit.
  static const std::string program = fingerprint("/proc/self/exe");
  Origin origin;
  origin.commit = kCommit;
  origin.version = kVersion;
  origin.compiler = kCompiler;
  origin.program = program;
  if (kNvcc[0]) origin.nvcc = kNvcc;
  origin.machine = machine_of(bench.backend(run.document["engine"]));
  origin.sources = sources_of(run.document, bench.registries(), beside);
  origin.models = named_models(run.document, bench.registries(), beside, origin.sources);
  return origin;
}

MeasuredAlternation measure_alternation(const Run& run, int k, const PreparedRun& prepared, Workbench& bench,
                                        const std::filesystem::path& beside,
                                        const std::function<void(double)>& progress, Baselines* shared) {
  const Clock::time_point start = Clock::now();
  MeasuredAlternation alternation;
  alternation.key = run.key;
  alternation.alternation = k;
  alternation.run = run.document;
  alternation.axes = run.axes;
  alternation.origin = origin_now(run, bench, beside);
  alternation.engine = prepared.engine;
  alternation.shared_baseline = shared != nullptr;
  Measuring measuring(run, k, prepared, bench, beside, progress, shared);
  measuring.warm_up();  // the trace has times as well
  if (k == 0 && run.document.contains("trace")) {
    Result header = result_begun(run);
    header.origin = alternation.origin;
    record_trace(trace_file(run), header, prepared.jobs, bench, beside);
  }
  alternation.began = utc_now();
  measuring.measure_both(alternation);
  // With what the device measured of itself meanwhile.
  alternation.origin.machine = machine_of(bench.backend(run.document["engine"]));
  alternation.seconds = seconds_since(start);
  return alternation;
}

bool wants_more(const json& run, int done, double measured_seconds) {
  return done < run["measure"]["repeats"] || measured_seconds < run["measure"]["seconds"];
}

double share_done(const json& run, double done, double measured_seconds) {
  const double wanted = run["measure"]["seconds"], share = done / run["measure"]["repeats"].get<double>();
  return std::min({1.0, share, wanted > 0 ? measured_seconds / wanted : share});
}

Result result_of(const Run& run, std::vector<MeasuredAlternation> alternations) {
  Result result = result_begun(run);
  const EngineFacts& engine = alternations.back().engine;
  result.origin = alternations.back().origin;
  result.promise = engine.promise;
  result.target = engine.target;
  result.shared_baseline = alternations.back().shared_baseline;
  result.outputs = OutputHashes{.baseline = hash_of_outputs(alternations.front().baseline.outputs),
                                .speculative = hash_of_outputs(alternations.front().speculative.outputs)};
  // In an open loop times decide which requests share a step, so what is cut and what a policy sees may differ.
  SameAgain same(!engine.learns && rate_key_of(run.document).empty());
  Agreement agreement{.compared = engine.compared};
  for (int k = 0; k < int(alternations.size()); ++k) {
    MeasuredAlternation& a = alternations[std::size_t(k)];
    if (!same_origin(a.origin, result.origin))
      throw Error("a file that the run reads, or the machine, changed while it was measured; measure it again");
    if (engine.compared) compare_outputs(a.baseline.outputs, a.speculative.outputs, agreement);
    for (const auto& [name, side] : {std::pair("baseline", &a.baseline), std::pair("speculative", &a.speculative)}) {
      same.add(*side, name, k);
      note_side(*side, name, k, result);
    }
    result.repeats.push_back({.first = a.first,
                              .began = a.began,
                              .baseline = std::move(a.baseline.record),
                              .speculative = std::move(a.speculative.record)});
    result.seconds += a.seconds;
  }
  result.alternations = same.found();
  result.agreement = agreement;
  result.two_speeds = two_speeds_of(result.repeats);
  if (const std::string damage = damage_of(result); !damage.empty())
    throw Error(damage);  // no prompt without a failure
  return result;
}

Result failed_result(const Run& run, const std::string& error, double seconds, Workbench& bench,
                     const std::filesystem::path& beside) {
  Result result = result_begun(run);
  result.origin.commit = kCommit;
  result.origin.version = kVersion;
  result.origin.compiler = kCompiler;
  failure_of([&] { result.origin = origin_now(run, bench, beside); });  // as far as it can be said
  result.error = error;
  result.seconds = seconds;
  return result;
}

std::string failure_of(const std::function<void()>& measure) {
  constexpr const char* kSmaller = "; lower \"memory_mib\" or \"batch\" of the engine, or use smaller models";
  try {
    measure();
    return "";
  } catch (const OutOfMemory& e) {
    return e.cause() + kSmaller;
  } catch (const Error& e) {
    check_interrupt();  // Ctrl-C while a plugin's component loaded a model comes as an Error that names the plugin
    return e.what();
  } catch (const std::bad_alloc&) {
    return std::string("there is not enough memory for this run") + kSmaller;
  } catch (const std::filesystem::filesystem_error& e) {
    return e.path1().string() + ": " + e.code().message();
  }
}

}  // namespace foretoken
