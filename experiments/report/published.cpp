// Published figures in a document, and the same figures computed from results.
#include "experiments/report/published.h"

#include <algorithm>
#include <set>

#include "experiments/report/described.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

void expect_sound(const Published& published, const std::string& where) {
  const std::vector<std::string> known = names_of(published_metrics());
  for (const PublishedTable& table : published.tables) {
    if (std::ranges::find(known, table.metric) == known.end())
      unknown_name(where + ": metric of '" + table.table + "'", table.metric, known);
    for (const PublishedCell& cell : table.cells) {
      const bool by_position = table.metric == "accepted_at";
      if (by_position != cell.position.has_value() || (by_position && *cell.position < 1))
        throw Error(where + ": the cell '" + cell.row + "' of '" + table.table + "' " +
                    (by_position ? "needs a 'position' from 1" : "has a 'position', which accepted_at alone has"));
      for (const auto& [pointer, unused] : cell.where.items())
        if (!pointer.starts_with('/'))
          throw Error(where + ": '" + pointer + "' in 'where' of the cell '" + cell.row + "' of '" + table.table +
                      "' is not a JSON pointer; write it as /engine/batch");
    }
  }
}

// The result with the requests of these categories alone, and the time that they took. Sums over whole sides, as by
// position, are not of them.
Result of_categories(Result result, const std::vector<std::string>& categories) {
  for (Alternation& alternation : result.repeats)
    for (SideRecord* side : {&alternation.baseline, &alternation.speculative}) {
      std::erase_if(side->requests, [&](const RequestRecord& r) {
        return !r.category || std::ranges::find(categories, *r.category) == categories.end();
      });
      side->seconds = 0;
      for (const RequestRecord& r : side->requests) side->seconds += r.share_seconds;
    }
  return result;
}

// The mean over requests of what `of` gives. Prompts with a request on either side that failed or has none are left out
// on both sides.
template <class Of> double mean_over_requests(const Result& result, SideOf side, const Of& of) {
  std::set<int> left_out;
  for (const Alternation& alternation : result.repeats)
    for (const SideRecord* one : {&alternation.baseline, &alternation.speculative})
      for (const RequestRecord& r : one->requests)
        if (r.failed() || std::isnan(of(r))) left_out.insert(r.prompt);
  double sum = 0, count = 0;
  for (const Alternation& alternation : result.repeats)
    for (const RequestRecord& r : (alternation.*side).requests) {
      if (left_out.contains(r.prompt)) continue;
      sum += of(r);
      ++count;
    }
  return divide(sum, count);
}

double tokens_per_round(const RequestRecord& r) { return divide(double(r.tokens), double(r.rounds)); }
double seconds_per_token(const RequestRecord& r) { return divide(r.decode_seconds, double(r.decode_tokens())); }

struct Source {
  const Summary& summary;
  const Result& result;
  int position;
};

Interval accepted_at(const Source& s) {
  const auto& positions = s.summary.positions;
  if (std::cmp_greater(s.position, positions.size())) return Interval::unknown();
  return Interval::of(divide(positions[std::size_t(s.position) - 1].accepted, positions[0].drafted));
}

Interval tpot_speedup(const Source& s) {
  return Interval::of(divide(mean_over_requests(s.result, &Alternation::baseline, seconds_per_token),
                             mean_over_requests(s.result, &Alternation::speculative, seconds_per_token)));
}

struct Rule {
  PublishedMetric metric;
  bool of_requests;  // computed from requests, so that some categories alone have it
  Interval (*here)(const Source&);
  Interval (*ours)(const Summary&);
};

Interval speedup_of(const Summary& s) { return s.speedup; }
Interval tau_of_run(const Summary& s) { return s.tau; }

const std::vector<Rule>& rules() {
  static const std::vector<Rule> kRules = {
      {{"expected_acceptance", "accepted / tested draft tokens: E[sum min(p, q)] over the positions that were tested",
        "alpha", false},
       true,
       [](const Source& s) { return s.summary.alpha; },
       [](const Summary& s) { return s.alpha; }},
      {{"tokens_per_step", "emitted tokens / target forwards, the target's own token included", "tau", false},
       true,
       [](const Source& s) { return s.summary.tau; },
       tau_of_run},
      {{"tokens_per_step_by_request", "mean over requests of emitted tokens / target forwards", "tau", false},
       true,
       [](const Source& s) {
         return Interval::of(mean_over_requests(s.result, &Alternation::speculative, tokens_per_round));
       },
       tau_of_run},
      {{"acceptance_length", "1 + accepted tokens / rounds with a draft", "tau", false},
       false,
       [](const Source& s) { return Interval::of(s.summary.acceptance_length); },
       tau_of_run},
      {{"accepted_at", "rounds that accepted this position / rounds with a draft", "tau", false},
       false,
       accepted_at,
       tau_of_run},
      {{"speedup", "(tokens / seconds) / (tokens / seconds of plain decoding), totals, prompts included", "speedup",
        true},
       true,
       [](const Source& s) { return s.summary.speedup; },
       speedup_of},
      {{"question_speedup", "mean over prompts of tokens / seconds, over the same of plain decoding", "speedup", true},
       true,
       [](const Source& s) { return Interval::of(s.summary.question_speedup); },
       speedup_of},
      {{"decode_speedup", "as speedup, of each request's time after its first round", "speedup", true},
       true,
       [](const Source& s) { return s.summary.decode_speedup; },
       speedup_of},
      {{"tpot_speedup",
        "mean over requests of plain decoding's seconds a token after the first round, over that of speculation",
        "speedup", true},
       true,
       tpot_speedup,
       speedup_of},
      {{"tokens_per_second", "tokens / seconds of all requests, prompts included", "tokens_per_second", true},
       true,
       [](const Source& s) { return s.summary.tokens_per_second; },
       [](const Summary& s) { return s.tokens_per_second; }}};
  return kRules;
}

const Rule& rule_of(const std::string& name) {
  return *std::ranges::find(rules(), name, [](const Rule& rule) { return rule.metric.name; });
}

bool has_request(const Result& result) {
  return std::ranges::any_of(result.repeats, [](const Alternation& a) { return !a.speculative.requests.empty(); });
}

std::string reason_for(const Rule& rule, const Summary& summary, const PublishedCell& cell) {
  if (summary.failed()) return summary.error;
  if (rule.metric.timed && summary.without_speeds) return "the run was measured for acceptance alone (/measure/busy)";
  if (rule.metric.timed && summary.load) return "an open loop has no speedup";
  if (cell.position && summary.left_out == 0)
    return "nothing was drafted at position " + std::to_string(*cell.position);
  return "the line has no such figure";
}

}  // namespace

const std::vector<PublishedMetric>& published_metrics() {
  static const std::vector<PublishedMetric> kMetrics = [] {
    std::vector<PublishedMetric> metrics;
    for (const Rule& rule : rules()) metrics.push_back(rule.metric);
    return metrics;
  }();
  return kMetrics;
}

std::optional<Published> published_of(const nlohmann::ordered_json& document, const std::string& where) {
  if (!document.is_object() || !document.contains("published")) return std::nullopt;
  Published found;
  const described::Place none, at{&none, "published"};
  try {
    described::read(json(document["published"]), found, at);
  } catch (const Error& e) {
    throw Error(where + ": " + e.what());
  }
  expect_sound(found, where);
  return found;
}

MeasuredFigure measured_figure(const PublishedTable& table, const PublishedCell& cell, const Result& result,
                               const Summary& whole) {
  const Rule& rule = rule_of(table.metric);
  MeasuredFigure found;
  const auto measure = [&](const Summary& summary, const Result& of) {
    if (!summary.failed()) {
      found.here = rule.here({summary, of, cell.position.value_or(0)});
      found.ours = rule.ours(summary);
    }
    if (!found.here.known()) found.unknown = reason_for(rule, summary, cell);
  };
  if (whole.failed() || !cell.categories) {
    measure(whole, result);
    return found;
  }
  const Result some = of_categories(result, *cell.categories);
  if (!rule.of_requests) {
    found.unknown = "rounds with a draft are counted over all prompts, not by category";
  } else if (!has_request(some)) {
    found.unknown = "no such prompts were served";
  } else {
    measure(summarize(some), some);
  }
  return found;
}

}  // namespace foretoken
