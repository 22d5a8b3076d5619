#include "experiments/sweep/alternation.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include <spdlog/spdlog.h>

#include "experiments/report/load.h"
#include "experiments/report/machine.h"
#include "experiments/report/results.h"
#include "experiments/report/summary.h"
#include "experiments/report/two_speeds.h"
#include "experiments/sweep/arrivals.h"
#include "experiments/sweep/clock.h"
#include "experiments/sweep/interrupt.h"
#include "experiments/sweep/jobs.h"
#include "experiments/sweep/kept.h"
#include "experiments/sweep/nothing_recorded.h"
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
void expect_some(const json& measure, Side side) {
  const json& requests = measure.at("requests");
  if (requests.empty() || std::ranges::any_of(requests, [](const json& r) { return !r.contains("failure"); })) return;
  throw Error("all " + std::to_string(requests.size()) + " requests failed (" + name_of(side) +
              "); the first: " + requests.front()["failure"].get<std::string>());
}

class Alternation {
 public:
  Alternation(const Run& run, int k, const Prepared& prepared, Workbench& bench, const std::filesystem::path& beside,
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
  void measure_both(json& record) {
    const Clock::time_point start = Clock::now();
    record["first"] = name_of(kSides[k_ % 2]);
    for (int turn = 0; turn < 2; ++turn) {
      const Side side = kSides[(k_ + turn) % 2];
      json measured =
          shared_ && side == Side::baseline ? shared_->of(run_, [&] { return one(side, turn); }) : one(side, turn);
      expect_some(measured["measure"], side);
      record[name_of(side)] = std::move(measured);
    }
    record["measured_seconds"] = seconds_since(start) - unmeasured_seconds_;
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
  json serve_before(Engine& engine, const std::function<void(double)>& progress) {
    const auto begin = Clock::now();
    const Measured served =
        measure(engine, before_, run_["engine"]["batch"].get<int>(), [&](double part) { progress(part / 2); });
    engine.forget_prefixes();
    expect_some(served.measure, Side::speculative);
    before_seconds_ = seconds_since(begin);
    const auto failed = std::ranges::count_if(served.failures, [](const std::string& why) { return !why.empty(); });
    return {{"seconds", served.measure["seconds"]}, {"tokens", served.measure["tokens"]}, {"failed", failed}};
  }

  // All requests of a side; none of their forwards is recorded where all `were_met`.
  Measured serve(Side side, bool were_met, const std::function<void(double)>& progress) {
    const auto engine = bench_.engine(run_, side, beside_);
    const bool warm = side == Side::speculative && !before_.empty();
    const json before = warm ? serve_before(*engine, progress) : json();
    const NothingRecorded settled(bench_.backend(run_["engine"]), were_met);
    Measured found = measure(*engine, jobs_, loop_of(run_, jobs_.size(), k_),
                             [&](double part) { progress(warm ? (1 + part) / 2 : part); });
    if (warm) found.measure["served_before"] = before;
    return found;
  }

  json one(Side side, int turn) {
    auto begin = Clock::now();
    before_seconds_ = 0;
    Taken taken =
        measure_kept([&] { return serve(side, run_["measure"]["warmup"], [&](double part) { tell(turn, part); }); },
                     [&] { unmeasured_seconds_ += seconds_since(std::exchange(begin, Clock::now())); },
                     run_["measure"].value("busy", "refuse") == "accept");
    unmeasured_seconds_ += before_seconds_;  // of what is kept; what was thrown away is counted whole
    if (taken.measured.measure.contains("notice"))
      spdlog::warn("{}", taken.measured.measure["notice"].get<std::string>());
    if (k_ == 0 && run_["measure"]["keep_outputs"]) keep_outputs(taken.measured);
    json outputs = outputs_of(taken.measured);
    return {{"measure", std::move(taken.measured.measure)},
            {"outputs", std::move(outputs)},
            {"thrown_away", std::move(taken.thrown_away)}};
  }

  void keep_outputs(Measured& measured) {
    const auto tokenizer = bench_.tokenizer(target_of(run_), beside_);
    const std::set<std::size_t> left_out = left_out_of(measured.measure);
    json& requests = measured.measure["requests"];
    for (std::size_t job = 0, i = 0; job < measured.texts.size(); ++job)
      if (!left_out.contains(job))
        requests[i++]["output"] = replace_broken_utf8(tokenizer->decode(measured.texts[job]));
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

json line_of_run(const Run& run) {
  return {{"schema", kResultSchema}, {"key", run.key}, {"run", run.document}, {"axes", run.axes}, {"date", utc_now()}};
}

// The requests of one side that failed, into the line.
void note_failures(const json& measure, const char* side, int repeat, json& line) {
  const json& requests = measure.at("requests");
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (requests[i].contains("failure"))
      line["failures"].push_back({{"request", i},
                                  {"prompt", requests[i]["prompt"]},
                                  {"side", side},
                                  {"repeat", repeat},
                                  {"failure", requests[i]["failure"]}});
}

}  // namespace

json origin_now(const Run& run, Workbench& bench, const std::filesystem::path& beside) {
  // Builds of changed sources that are not committed have one commit.
  static const std::string program = fingerprint("/proc/self/exe");
  const json sources = sources_of(run.document, bench.registries(), beside);
  return {{"commit", kCommit},
          {"program", program},
          {"version", kVersion},
          {"compiler", kCompiler},
          {"nvcc", kNvcc[0] ? json(kNvcc) : json()},
          {"machine", machine_of(bench.backend(run.document["engine"]))},
          {"sources", sources},
          {"models", named_models(run.document, bench.registries(), beside, sources)}};
}

json measure_alternation(const Run& run, int k, const Prepared& prepared, Workbench& bench,
                         const std::filesystem::path& beside, const std::function<void(double)>& progress,
                         Baselines* shared) {
  const Clock::time_point start = Clock::now();
  json record{{"schema", kResultSchema}, {"key", run.key}, {"alternation", k}, {"of", origin_now(run, bench, beside)}};
  record["of"].update(prepared.engine);
  if (shared) record["of"]["shared_baseline"] = true;
  Alternation alternation(run, k, prepared, bench, beside, progress, shared);
  alternation.warm_up();  // the trace has times as well
  if (k == 0 && run.document.contains("trace")) {
    json header = line_of_run(run);
    header.update(record["of"]);
    record_trace(trace_file(run), header, prepared.jobs, bench, beside);
  }
  record["began"] = utc_now();
  alternation.measure_both(record);
  // With what the device measured of itself meanwhile.
  record["of"]["machine"] = machine_of(bench.backend(run.document["engine"]));
  record["seconds"] = seconds_since(start);
  return record;
}

bool wants_more(const json& run, int done, double measured_seconds) {
  return done < run["measure"]["repeats"] || measured_seconds < run["measure"]["seconds"];
}

double share_done(const json& run, double done, double measured_seconds) {
  const double wanted = run["measure"]["seconds"], share = done / run["measure"]["repeats"].get<double>();
  return std::min({1.0, share, wanted > 0 ? measured_seconds / wanted : share});
}

json line_of(const Run& run, const std::vector<json>& alternations) {
  json line = line_of_run(run);
  const json& of = alternations.back().at("of");
  for (const json& alternation : alternations)
    if (!same_origin(alternation.at("of"), of))
      throw Error("a file that the run reads, or the machine, changed while it was measured; measure it again");
  for (const char* field : {"commit", "version", "compiler", "machine", "sources", "promise", "target"})
    line[field] = of.at(field);
  for (const char* field : {"nvcc", "models"})
    if (of.contains(field)) line[field] = of.at(field);  // alternations of an earlier version lack them
  for (const Side side : kSides)
    line["outputs"][name_of(side)] = hash_of_outputs(alternations.front().at(name_of(side)).at("outputs"));
  if (of.contains("shared_baseline")) line["shared_baseline"] = true;
  // In an open loop times decide which requests share a step, so what is cut and what a policy sees may differ.
  SameAgain same(!of.at("learns").get<bool>() && !rate_of(run.document));
  Agreement agreement;
  line["repeats"] = json::array(), line["thrown_away"] = json::array();
  double seconds = 0;
  for (int k = 0; k < int(alternations.size()); ++k) {
    const json& record = alternations[std::size_t(k)];
    json& repeat = line["repeats"].emplace_back(json{{"first", record.at("first")}, {"began", record.at("began")}});
    agreement.add(record.at("baseline").at("outputs"), record.at("speculative").at("outputs"));
    for (const Side side : kSides) {
      const char* name = name_of(side);
      const json &measured = record.at(name), &measure = measured.at("measure");
      same.add(measure, measured.at("outputs"), name, k);
      note_failures(measure, name, k, line);
      for (json thrown : measured.at("thrown_away")) {
        thrown.update({{"side", name}, {"repeat", k}});
        line["thrown_away"].push_back(std::move(thrown));
      }
      repeat[name] = measure;
    }
    seconds += record.at("seconds").get<double>();
  }
  line["seconds"] = seconds, line["alternations"] = same.as_json();
  line["two_speeds"] = two_speeds_of(line["repeats"]);
  const bool compared = of.at("compared");
  line["agreement"] = {{"compared", compared},
                       {"compared_texts", compared ? agreement.compared : 0},
                       {"differing_texts", compared ? agreement.different : 0}};
  if (const std::string damage = damage_of(line); !damage.empty()) throw Error(damage);  // no prompt without a failure
  return line;
}

json failed_line(const Run& run, const std::string& error, double seconds, Workbench& bench,
                 const std::filesystem::path& beside) {
  json line = line_of_run(run);
  line.update({{"commit", kCommit}, {"version", kVersion}, {"compiler", kCompiler}});
  failure_of([&] { line.update(origin_now(run, bench, beside)); });  // as far as it can be said
  line["error"] = error, line["seconds"] = seconds;
  return line;
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
