#include "experiments/serve/metrics.h"

#include <array>
#include <sstream>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace foretoken::serve {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Bounds = Histogram::BucketBoundaries;

constexpr std::size_t kPositions = 16;  // of drafts; deeper ones count as the last
const Bounds kTokenSeconds{.001, .0025, .005, .0075, .01, .015, .02, .03, .05, .075, .1, .2, .5, 1, 2.5};
const Bounds kFirstSeconds{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30};
const Bounds kWholeSeconds{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600};
const Bounds kDrafted{0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 64};

}  // namespace

struct Metrics::Families {
  explicit Families(const std::string& model) : labels{{"model", model}} {
    for (std::size_t i = 0; i < kPositions; ++i) {
      const prometheus::Labels position{{"position", std::to_string(i + 1)}};
      tested[i] = &tested_family.Add(position);
      accepted[i] = &accepted_family.Add(position);
    }
    for (std::size_t i = 0; i < kPhases.size(); ++i) phases[i] = &phase_family.Add({{"phase", kPhases[i]}});
  }

  Counter& counter(const char* name, const char* help) { return counters(name, help).Add({}); }
  prometheus::Family<Counter>& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(labels).Register(registry);
  }
  Gauge& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Labels(labels).Register(registry).Add({});
  }
  prometheus::Family<Histogram>& histograms(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Labels(labels).Register(registry);
  }

  static constexpr std::array<const char*, 6> kPhases{"schedule",       "draft_forward", "draft_other",
                                                      "target_forward", "verify",        "deliver"};
  prometheus::Registry registry{};
  prometheus::Labels labels;

  prometheus::Family<Counter>& requests = counters("foretoken_requests_total", "Requests answered, by status");
  prometheus::Family<Counter>& refusals = counters("foretoken_refused_total", "Requests refused for their number");
  Counter& dropped = counter("foretoken_dropped_total", "Requests whose client went or was too slow");
  Histogram& first =
      histograms("foretoken_time_to_first_token_seconds", "From the arrival of a request").Add({}, kFirstSeconds);
  Histogram& between = histograms("foretoken_time_between_tokens_seconds",
                                  "Seconds of a round of an output over its tokens, for each of these")
                           .Add({}, kTokenSeconds);
  prometheus::Family<Histogram>& whole = histograms("foretoken_request_seconds", "From the arrival to the end");

  Gauge& waiting = gauge("foretoken_requests_waiting", "Requests that wait for a place in the batch");
  Gauge& running = gauge("foretoken_requests_running", "Requests in the batch");
  Gauge& connections = gauge("foretoken_connections", "Open connections");
  Gauge& pages = gauge("foretoken_cache_pages", "Pages of the cache's pool");
  Gauge& pages_in_use = gauge("foretoken_cache_pages_in_use", "Pages of the pool that running requests hold");
  Counter& preempted = counter("foretoken_preemptions_total", "Requests that gave back their pages for a while");
  Counter& prompt_rows = counter("foretoken_prompt_rows_total", "Prompt tokens computed, those of no cached prefix");
  Counter& tokens = counter("foretoken_output_tokens_total", "Tokens of outputs");
  Counter& rounds = counter("foretoken_rounds_total", "Rounds of outputs: target forwards each took part in");
  Counter& drafted = counter("foretoken_drafted_tokens_total", "Tokens drafted");
  Histogram& draft_length = histograms("foretoken_draft_tokens", "Tokens drafted in a round").Add({}, kDrafted);
  Counter& steps = counter("foretoken_steps_total", "Steps of the engine");
  Counter& rows = counter("foretoken_target_rows_total", "Rows of the target's forwards");
  prometheus::Family<Counter>& tested_family =
      counters("foretoken_tested_total", "Draft positions that were tested, by position");
  prometheus::Family<Counter>& accepted_family =
      counters("foretoken_accepted_total", "Draft positions that were accepted, by position");
  prometheus::Family<Counter>& phase_family = counters("foretoken_phase_seconds_total", "Seconds of steps, by phase");
  std::array<Counter*, kPositions> tested{}, accepted{};
  std::array<Counter*, kPhases.size()> phases{};
};

Metrics::Metrics(const std::string& model) : families_(std::make_unique<Families>(model)) {}
Metrics::~Metrics() = default;

namespace {

// Sums over the sequences of one step: a counter takes longer than an addition.
struct StepSums {
  double prompt_rows = 0, tokens = 0, rounds = 0, drafted = 0;
  std::array<double, kPositions> tested{}, accepted{};
  std::vector<double> lengths = std::vector<double>(kDrafted.size() + 1);

  explicit StepSums(const StepReport& report) {
    for (const SequenceReport& r : report.sequences) {
      prompt_rows += r.prompt_rows;
      tokens += double(r.emitted.size());
      if (!r.judged) continue;
      rounds += 1;
      drafted += r.drafted;
      const auto bucket = std::lower_bound(kDrafted.begin(), kDrafted.end(), double(r.drafted));
      lengths[std::size_t(bucket - kDrafted.begin())] += 1;
      for (std::size_t i = 0; i < r.levels.size(); ++i) {
        tested[std::min(i, kPositions - 1)] += 1;
        accepted[std::min(i, kPositions - 1)] += r.levels[i].accepted >= 0;
      }
    }
  }
};

}  // namespace

void Metrics::observe(const StepReport& report) {
  const StepSums sums(report);
  Families& f = *families_;
  f.steps.Increment();
  f.rows.Increment(report.rows);
  f.preempted.Increment(report.preempted);
  f.pages_in_use.Set(report.pages_in_use);
  f.prompt_rows.Increment(sums.prompt_rows);
  f.tokens.Increment(sums.tokens);
  f.rounds.Increment(sums.rounds);
  f.drafted.Increment(sums.drafted);
  f.draft_length.ObserveMultiple(sums.lengths, sums.drafted);
  for (std::size_t i = 0; i < kPositions; ++i) {
    if (sums.tested[i] > 0) f.tested[i]->Increment(sums.tested[i]);
    if (sums.accepted[i] > 0) f.accepted[i]->Increment(sums.accepted[i]);
  }
  const Phases& p = report.phases;
  const std::array<double, 6> seconds{p.schedule,       p.draft_forward, p.draft_other,
                                      p.target_forward, p.verify,        p.deliver};
  for (std::size_t i = 0; i < seconds.size(); ++i) f.phases[i]->Increment(std::max(0.0, seconds[i]));
}

void Metrics::first_token(double seconds) { families_->first.Observe(seconds); }

void Metrics::between_tokens(double seconds, int tokens) {
  for (int i = 0; i < tokens; ++i) families_->between.Observe(seconds / tokens);
}

void Metrics::answered(const std::string& endpoint, int status, double seconds) {
  families_->requests.Add({{"endpoint", endpoint}, {"status", std::to_string(status)}}).Increment();
  if (status == 200) families_->whole.Add({{"endpoint", endpoint}}, kWholeSeconds).Observe(seconds);
}

void Metrics::refused(const std::string& why) { families_->refusals.Add({{"why", why}}).Increment(); }

void Metrics::dropped() { families_->dropped.Increment(); }

std::string Metrics::text(const State& state) {
  Families& f = *families_;
  f.waiting.Set(double(state.waiting));
  f.running.Set(double(state.running));
  f.connections.Set(double(state.connections));
  f.pages.Set(state.pages);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, f.registry.Collect());
  return out.str();
}

}  // namespace foretoken::serve
