#include "experiments/sweep/estimate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "experiments/report/axes.h"
#include "experiments/report/results.h"
#include "experiments/report/statistics.h"
#include "experiments/report/summary.h"
#include "experiments/report/terminal.h"
#include "experiments/session/interrupt.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/alternation.h"
#include "experiments/sweep/arrivals.h"
#include "experiments/sweep/jobs.h"
#include "experiments/sweep/provenance.h"
#include "experiments/sweep/rehearsal.h"
#include "experiments/sweep/rounds.h"
#include "framework/text/json_file.h"

namespace foretoken {

using nlohmann::json;

namespace {

const char* name_of(RestsOn basis) {
  constexpr const char* kNames[] = {"measured", "like runs of its drafter", "like runs", "timed steps", "unknown"};
  return kNames[int(basis)];
}

// Tokens of all requests of one side.
struct Amount {
  double prompt = 0, generated = 0;
  std::size_t requests = 0;  // that are measured
  double mix() const { return prompt / generated; }
  void add(const std::vector<Job>& jobs, double times = 1) {
    for (const Job& job : jobs) {
      prompt += times * double(job.request.prompt.size());
      generated += times * job.request.limits.max_new_tokens;
    }
  }
};

// Seconds of plain decoding, for a batch.
struct Pace {
  double prompt_token = 0, step = 0;
};

// A like run of the file of results.
struct Like {
  std::string drafter;
  double seconds = 0;  // of an alternation, for each token that is generated
  double mix = 0;      // tokens of prompts for each of these
};

std::string pace_of(const json& run) { return target_of_group(run) + run.at("engine").at("batch").dump(); }
std::string kind_of_run(const json& run) {
  const json& workload = run.at("workload");
  return pace_of(run) + workload.value("rate", json()).dump() + workload.value("rates", json()).dump();
}

class Estimate {
 public:
  Estimate(const std::vector<Result>& results, Workbench& bench, const SweepOptions& options)
      : bench_(bench), options_(options) {
    for (const Result& result : results) {
      if (result.failed() || !damage_of(result).empty()) continue;
      if (!(result.seconds > 0)) continue;
      const double alternations = double(result.repeats.size());
      failure_of([&] {
        const Amount sum = tokens_of(result.run);
        likes_[kind_of_run(result.run)].push_back({.drafter = result.run.at("drafter").at("name"),
                                                   .seconds = result.seconds / alternations / sum.generated,
                                                   .mix = sum.mix()});
      });
    }
  }

  void complete(Expected& expected, bool shares_baseline) {
    const json& run = expected.run.document;
    const std::string failure = failure_of([&] {
      const std::vector<double> likes = likes_of(run, expected.basis);
      const double working =
          likes.empty() ? by_steps(run, shares_baseline, expected.basis) : median(likes) * tokens_of(run).generated;
      const double alternation = std::max(working, (shares_baseline ? 1 : 2) * last_arrival(run));
      const json& m = run.at("measure");
      expected.seconds = std::max((m.at("repeats").get<int>() - expected.done) * alternation,
                                  m.at("seconds").get<double>() - expected.done * alternation);
      expected.seconds = std::max(0.0, expected.seconds);
    });
    if (!failure.empty()) expected.basis = RestsOn::unknown;
  }

 private:
  // Of both sides: speculation may be warm, which is served before.
  Amount tokens_of(const json& run) {
    json asked{run.at("target"), run.at("engine").at("batch"), run.at("workload"), run.at("sampling").at("samples"),
               run.at("measure").at("warmup")};
    const std::string key = asked.dump();
    if (const auto known = amounts_.find(key); known != amounts_.end()) return known->second;
    const std::vector<Job> jobs = jobs_of(run, bench_, options_.beside);
    Amount sum{.requests = jobs.size()};
    sum.add(jobs, 2);
    if (run.at("measure").at("warmup").get<bool>())
      sum.add(warm_up_jobs(jobs, run.at("engine").at("batch").get<std::size_t>()), 2);
    sum.add(jobs_before(run, jobs, bench_, options_.beside));
    return amounts_[key] = sum;
  }

  // Of an open loop, in seconds: no side ends before it.
  double last_arrival(const json& run) {
    const Loop loop = loop_of(run, tokens_of(run).requests, 0);
    return loop.open() ? seconds(loop.arrival(tokens_of(run).requests - 1)) : 0;
  }

  // Seconds of alternations for each token, of the like runs whose mix is nearest; none where it is another altogether.
  std::vector<double> likes_of(const json& run, RestsOn& basis) {
    constexpr double kNear = 0.05, kFar = 0.7;  // of logarithms
    const auto found = likes_.find(kind_of_run(run));
    if (found == likes_.end()) return {};
    const double mix = tokens_of(run).mix();
    const auto distance = [&](const Like& like) { return std::abs(std::log(like.mix / mix)); };
    double nearest = kFar;
    for (const Like& like : found->second) nearest = std::min(nearest, distance(like));
    const auto name = run.at("drafter").at("name").get<std::string>();
    std::vector<double> same, all;
    for (const Like& like : found->second) {
      if (distance(like) > std::min(nearest + kNear, kFar)) continue;
      all.push_back(like.seconds);
      if (like.drafter == name) same.push_back(like.seconds);
    }
    basis = same.empty() ? RestsOn::same_target : RestsOn::same_drafter;
    return same.empty() ? all : same;
  }

  double by_steps(const json& run, bool shares_baseline, RestsOn& basis) {
    basis = RestsOn::timed;
    const Amount sum = tokens_of(run);
    const std::string kind = pace_of(run);
    if (!paces_.contains(kind)) {
      const Pace pace = timed(run);  // may fail
      paces_[kind] = pace;
    }
    const Pace& pace = paces_[kind];
    const double batch = run.at("engine").at("batch"), served = shares_baseline ? 0.5 : 1;
    return served * (sum.prompt * pace.prompt_token + sum.generated / batch * pace.step);
  }

  // The first requests of the run, shortened, as many as the batch has slots.
  Pace timed(const json& run) {
    constexpr int kSteps = 6;
    const std::string last = std::exchange(loaded_, target_of_group(run));
    if (!last.empty() && last != loaded_)
      for (int used = 0; used < 2; ++used) bench_.forget_unused();  // what the last call found in use, too
    const auto engine = bench_.engine(run, Side::baseline, options_.beside);
    std::vector<Job> jobs = jobs_of(run, bench_, options_.beside);
    std::erase_if(jobs, [](const Job& job) { return job.after >= 0; });
    jobs.resize(std::min(jobs.size(), run.at("engine").at("batch").get<std::size_t>()));
    for (const Job& job : jobs) {
      Request request = job.request;
      request.limits = {};
      request.limits.max_new_tokens = kSteps + 1;
      engine->submit(std::move(request));
    }
    std::set<SequenceId> begun;
    std::vector<double> steps;
    double reading = 0;
    while (!engine->idle()) {
      check_interrupt();
      const bool reads = begun.size() < jobs.size();
      const auto start = std::chrono::steady_clock::now();
      for (const SequenceReport& s : engine->step().sequences)
        if (!s.emitted.empty()) begun.insert(s.id);
      const double took = seconds_since(start);
      if (reads)
        reading += took;
      else
        steps.push_back(took);
    }
    Amount read;
    read.add(jobs);
    return {reading / read.prompt, steps.empty() ? 0 : median(steps)};
  }

  Workbench& bench_;
  const SweepOptions& options_;
  std::map<std::string, std::vector<Like>> likes_;
  std::map<std::string, Pace> paces_;
  std::map<std::string, Amount> amounts_;
  std::string loaded_;  // the target that was timed last
};

// Alternations of a run that a sweep goes on from.
int resumable(const Run& run, const Unfinished& unfinished, Workbench& bench, const SweepOptions& options) {
  const int count = unfinished.count(run.key);
  bool same = true;
  const std::string failure = failure_of([&] {
    if (count > 0)
      same = same_origin(alternation_of(unfinished.at(run.key, 0)).origin, origin_now(run, bench, options.beside));
  });
  return same && failure.empty() ? count : 0;
}

std::string state_of(const Expected& e) {
  if (e.basis == RestsOn::none) return "measured";
  if (e.basis == RestsOn::unknown) return "cannot be measured (--rehearse says why)";
  const std::string kept = std::to_string(e.done) + " of " + e.run.document.at("measure").at("repeats").dump();
  return (e.done > 0 ? kept + " alternations, " : "") + "about " + duration(e.seconds);
}

// What the times rest on, as one sentence; empty where all runs are measured.
std::string basis_note(const std::vector<Expected>& runs) {
  std::map<RestsOn, long> counts;
  for (const Expected& e : runs) ++counts[e.basis];
  const long likes = counts[RestsOn::same_drafter] + counts[RestsOn::same_target], timed = counts[RestsOn::timed];
  std::string note;
  if (likes > 0)
    note = std::to_string(likes) + " from measured runs of the file with the same target, device and batch (" +
           std::to_string(counts[RestsOn::same_drafter]) + " of them of the same drafter), scaled by tokens";
  if (timed > 0)
    note += (note.empty() ? "" : "; ") + std::to_string(timed) +
            " from timed steps of plain decoding, at whose pace speculation counts too, without loading";
  return note.empty() ? "" : "Estimates: " + note + ".";
}

}  // namespace

std::string duration(double seconds) {
  const long whole = std::lround(seconds);
  if (whole < 100) return std::to_string(std::max(1L, whole)) + " s";
  const long minutes = std::lround(seconds / 60);
  if (minutes < 100) return std::to_string(minutes) + " min";
  return std::to_string(minutes / 60) + " h" + (minutes % 60 ? " " + std::to_string(minutes % 60) + " min" : "");
}

std::vector<Expected> estimate(const std::vector<Run>& runs, Workbench& bench, const SweepOptions& options) {
  const std::vector<Result> results =
      has_file(options.results) ? load_with_unfinished(options.results) : std::vector<Result>();
  const std::set<std::string> measured = measured_keys(runs, results, bench, options);
  const Unfinished unfinished(options.results);
  Estimate model(results, bench, options);
  std::vector<Expected> found, others;
  std::set<std::string> baselines;
  std::vector<Run> wanted;
  for (const Run& run : runs)
    if (measured.contains(run.key))
      others.push_back({run});
    else
      wanted.push_back(run);
  std::set<std::string> refused;
  for (const Refusal& refusal : rehearse(wanted, bench, options.beside))
    for (const Run& run : refusal.runs) refused.insert(run.key);
  for (Run& run : first_round(wanted, bench.registries())) {
    const bool first = !options.share_baselines || baselines.insert(baseline_of(run.document)).second;
    Expected& expected = found.emplace_back(Expected{std::move(run)});
    expected.done = resumable(expected.run, unfinished, bench, options);
    if (refused.contains(expected.run.key))
      expected.basis = RestsOn::unknown;
    else
      model.complete(expected, !first);
  }
  found.insert(found.end(), others.begin(), others.end());
  return found;
}

std::string as_text(const std::vector<Expected>& runs, std::size_t gpus) {
  std::vector<json> documents;
  std::set<std::string> named;
  for (const Expected& e : runs) {
    documents.push_back(e.run.document);
    for (const auto& [pointer, value] : e.run.axes.items()) named.insert(pointer);
  }
  const Axes axes(documents, {named.begin(), named.end()});
  std::vector<std::string> labels;
  std::size_t widest = 0, left = 0;
  double seconds = 0;
  for (const json& document : documents) {
    labels.push_back(one_line(axes.label(document)));
    widest = std::max(widest, std::size_t(display_width(labels.back())));
  }
  std::string text;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Expected& e = runs[i];
    text += labels[i] + std::string(widest + 2 - std::size_t(display_width(labels[i])), ' ') + state_of(e) + "\n";
    left += e.basis != RestsOn::none;
    seconds += e.seconds;
  }
  text += "\n" + std::to_string(runs.size()) + " runs: " + std::to_string(runs.size() - left) + " measured, " +
          std::to_string(left) + " to measure";
  if (left == 0) return text + ".\n";
  text += ", about " + duration(seconds / double(std::max<std::size_t>(gpus, 1)));
  if (gpus > 1) text += " on " + std::to_string(gpus) + " GPUs";
  return text + ", in this order; of one target, an alternation of each before the next of any.\n" + basis_note(runs) +
         "\n";
}

json as_json(const std::vector<Expected>& runs) {
  json all = json::array();
  double seconds = 0;
  for (const Expected& e : runs) {
    all.push_back({{"key", e.run.key},
                   {"axes", e.run.axes},
                   {"measured", e.basis == RestsOn::none},
                   {"alternations", e.done},
                   {"seconds", e.basis == RestsOn::unknown ? json() : json(e.seconds)},
                   {"basis", name_of(e.basis)}});
    seconds += e.seconds;
  }
  return {{"runs", all}, {"seconds", seconds}};
}

}  // namespace foretoken
