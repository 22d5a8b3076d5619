#include "experiments/load/load.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <map>

#include "experiments/report/statistics.h"
#include "experiments/sweep/arrivals.h"
#include "experiments/sweep/jobs.h"
#include "foretoken_version.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

constexpr int kShortTokens = 8;  // of an output of a warm-up

// The body of a job. What a server of OpenAI's API has no key for is named only where the run differs from that
// server's default, so that others than this project's serve the run too.
json body_of(const Job& job, const json& run, const std::string& model, std::uint64_t seed, int most_tokens) {
  const Sampling& s = job.request.sampling;
  json body{{"prompt", job.request.prompt},
            {"max_tokens", std::min(most_tokens, job.request.limits.max_new_tokens)},
            {"temperature", s.temperature},
            {"seed", seed},
            {"stream", true},
            {"stream_options", {{"include_usage", true}}}};
  if (!model.empty()) body["model"] = model;
  const auto differs = [&](const char* key, double value, double standard) {
    if (value != standard) body[key] = value;
  };
  differs("top_p", s.top_p, 1);
  differs("min_p", s.min_p, 0);
  differs("repetition_penalty", s.repetition_penalty, 1);
  differs("frequency_penalty", s.frequency_penalty, 0);
  differs("presence_penalty", s.presence_penalty, 0);
  if (s.top_k != 0) body["top_k"] = s.top_k;
  for (const auto& bias : s.logit_bias) body["logit_bias"][std::to_string(bias.token)] = bias.bias;
  const json& w = run.at("workload");
  if (w.at("ignore_eos").get<bool>()) body["ignore_eos"] = true;
  if (!w.at("stop").empty()) body["stop"] = w.at("stop");
  if (const json format = run.at("sampling").value("response_format", json()); !format.is_null())
    body["response_format"] = format;
  return body;
}

std::vector<std::string> bodies_of(const std::vector<Job>& jobs, const json& run, const std::string& model,
                                   int most_tokens) {
  std::vector<std::string> bodies;
  const std::uint64_t seed = run.at("sampling").at("seed");
  for (std::size_t i = 0; i < jobs.size(); ++i)
    bodies.push_back(body_of(jobs[i], run, model, seed + i, most_tokens).dump());
  return bodies;
}

void expect_single_turns(const std::vector<Job>& jobs) {
  if (std::ranges::any_of(jobs, [](const Job& job) { return job.after >= 0; }))
    throw Error(
        "the run has conversations of several turns, whose later prompts are tokens of outputs, which HTTP does not "
        "tell; set '/workload/turns' to 1");
}

struct TimesOfRequests {
  std::vector<double> ttft, tpot, gap, whole;  // seconds
  long prompt_tokens = 0, tokens = 0, within = 0, served = 0;
  double ended = 0;  // the last one
  std::map<std::string, long> errors;
};

TimesOfRequests times_of(const std::vector<HttpTimes>& all, const json& ttft_limit, const json& tpot_limit) {
  TimesOfRequests t;
  for (const HttpTimes& r : all) {
    t.ended = std::max(t.ended, r.ended);
    if (!r.failure.empty()) {
      ++t.errors[r.failure];
      continue;
    }
    ++t.served;
    t.prompt_tokens += r.prompt_tokens;
    t.tokens += r.tokens;
    const double first = r.events.front() - r.arrived;
    t.ttft.push_back(first);
    t.whole.push_back(r.ended - r.arrived);
    for (std::size_t i = 1; i < r.events.size(); ++i) t.gap.push_back(r.events[i] - r.events[i - 1]);
    const double each = r.tokens > 1 ? (r.events.back() - r.events.front()) / double(r.tokens - 1) : 0;
    if (r.tokens > 1) t.tpot.push_back(each);
    t.within += (ttft_limit.is_null() || first <= ttft_limit.get<double>()) &&
                (tpot_limit.is_null() || each <= tpot_limit.get<double>());
  }
  return t;
}

json quantiles_of(std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](double share) { return values.empty() ? json() : json(1000 * quantile(values, share)); };
  return {{"p50", at(.5)}, {"p90", at(.9)}, {"p95", at(.95)}, {"p99", at(.99)}};
}

json figures_of(const TimesOfRequests& t, std::size_t requests, const json& w) {
  const json ttft = w.value("ttft_limit", json()), tpot = w.value("tpot_limit", json());
  json figures{{"requests", requests},
               {"failed", requests - std::size_t(t.served)},
               {"errors", t.errors},
               {"seconds", t.ended},
               {"prompt_tokens", t.prompt_tokens},
               {"output_tokens", t.tokens},
               {"served", double(t.served) / t.ended},
               {"tokens_per_second", double(t.tokens) / t.ended},
               {"ttft_ms", quantiles_of(t.ttft)},
               {"tpot_ms", quantiles_of(t.tpot)},
               {"gap_ms", quantiles_of(t.gap)},
               {"whole_ms", quantiles_of(t.whole)},
               {"within", nullptr},
               {"goodput", nullptr}};
  if (ttft.is_null() && tpot.is_null()) return figures;
  figures["within"] = double(t.within) / double(requests);
  figures["goodput"] = double(t.within) / t.ended;
  return figures;
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[24];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

json requests_of(const std::vector<HttpTimes>& all) {
  json requests = json::array();
  for (const HttpTimes& r : all) {
    json one{{"arrived", r.arrived},
             {"began", r.began},
             {"ended", r.ended},
             {"tokens", r.tokens},
             {"prompt_tokens", r.prompt_tokens}};
    if (!r.events.empty()) one.update({{"first", r.events.front()}, {"last", r.events.back()}});
    one["rounds"] = r.events.size();
    if (!r.failure.empty()) one["failure"] = r.failure;
    requests.push_back(one);
  }
  return requests;
}

}  // namespace

json measured_level(const LoadLevel& level, const LoadOptions& o, Workbench& bench, const std::filesystem::path& beside,
                    const std::function<void(std::size_t, std::size_t)>& progress) {
  const json& run = level.run;
  const std::vector<Job> jobs = jobs_of(run, bench, beside);
  expect_single_turns(jobs);
  const Loop loop = loop_of(run, jobs.size(), 0);
  HttpLoad load{.waves = o.waves, .concurrency = loop.slots(), .seconds = o.seconds};
  const auto all_tokens = std::numeric_limits<int>::max();
  if (o.warmup > 0) {
    std::vector<Job> first = jobs;
    first.resize(std::min(first.size(), std::size_t(o.warmup) * std::size_t(loop.slots())));
    stream_over_http(o.target, bodies_of(first, run, o.model, kShortTokens), load,
                     [&](std::size_t) { progress(0, jobs.size()); });
  }
  for (std::size_t i = 0; loop.open() && i < jobs.size(); ++i)
    load.arrivals.push_back(std::chrono::duration<double>(loop.arrival(i)).count());
  const std::vector<HttpTimes> times = stream_over_http(o.target, bodies_of(jobs, run, o.model, all_tokens), load,
                                                        [&](std::size_t ended) { progress(ended, jobs.size()); });
  const json& w = run.at("workload");
  const TimesOfRequests t = times_of(times, w.value("ttft_limit", json()), w.value("tpot_limit", json()));
  if (t.served == 0) throw Error("every request failed: " + t.errors.begin()->first + "; is --url a server's address?");
  const json rate = loop.open() ? json(arrival_rate_of(run)->mean()) : json();
  return {{"load", o.label},
          {"concurrency", loop.open() ? json() : json(loop.slots())},
          {"rate", rate},
          {"waves", o.waves},
          {"axes", level.axes},
          {"figures", figures_of(t, jobs.size(), w)},
          {"run", run},
          {"model", o.model},
          {"commit", kCommit},
          {"date", now_text()},
          {"requests", requests_of(times)}};
}

LineKind load_lines() {
  return {.name = "levels of `foretoken load`",
          .first = {"load", "concurrency", "rate"},
          .opening = "{\"load\":",
          .check =
              [](const json& line, const std::string& where) {
                if (!line.is_object() || !line.contains("load") || !line.contains("figures"))
                  throw Error(where + " is no level of `foretoken load`; name another file with --out");
              },
          .remedy = "remove it, or name another file",
          .holds = "levels",
          .choose = "choose another file with --out",
          .busy = "another process is writing to it; wait, or choose another file with --out",
          .full = "make room and start again: what was measured is kept"};
}

Table load_table(const std::vector<json>& lines) {
  using Kind = Column::Kind;
  Table table;
  table.title = "By HTTP: throughput and latency, milliseconds";
  table.note =
      "Latencies count from a request's arrival. tpot: a request's time behind its first event / its other tokens; "
      "gap: "
      "between two events of a stream, each of which may have several tokens. Failed requests are in no figure.";
  table.columns = {{"server", "server", "", Kind::text},
                   {"load", "load", "requests at once, or a second", Kind::text},
                   {"failed", "failed", ""},
                   {"req/s", "served", ""},
                   {"tok/s", "tokens_per_second", ""}};
  for (const char* figure : {"ttft", "tpot", "gap", "whole"})
    for (const char* share : {"50", "90", "99"})
      table.columns.push_back({std::string(share) == "50" ? std::string(figure) + " 50" : std::string(share),
                               std::string(figure) + "_p" + share, ""});
  table.columns.push_back({"goodput", "goodput", "requests per second within the run's limits"});
  const auto number = [](const json& value) { return value.is_number() ? value.get<double>() : std::nan(""); };
  for (const json& line : lines) {
    const json& f = line.at("figures");
    const std::string load = line.at("rate").is_null() ? std::to_string(line.at("concurrency").get<int>()) +
                                                             (line.at("waves").get<bool>() ? " in waves" : "")
                                                       : Cell::of(line.at("rate").get<double>(), 2).shown() + "/s";
    Row& row = table.rows.emplace_back();
    row.cells = {Cell::of(line.at("load").get<std::string>()), Cell::of(load), Cell::of(number(f.at("failed")), 0),
                 Cell::of(number(f.at("served")), 2), Cell::of(number(f.at("tokens_per_second")), 1)};
    for (const char* figure : {"ttft_ms", "tpot_ms", "gap_ms", "whole_ms"})
      for (const char* share : {"p50", "p90", "p99"})
        row.cells.push_back(Cell::of(number(f.at(figure).at(share)), std::string(figure) == "tpot_ms" ? 2 : 1));
    row.cells.push_back(Cell::of(number(f.at("goodput")), 2));
  }
  return table;
}

}  // namespace foretoken
