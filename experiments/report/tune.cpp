#include "experiments/report/tune.h"

#include <algorithm>
#include <set>

#include "experiments/report/report.h"
#include "experiments/report/tables.h"
#include "experiments/session/measured_pair.h"

namespace foretoken {
namespace {

using nlohmann::json;

constexpr double kClose = 0.98;  // of the fastest speedup: as near it is as good
constexpr double kPays = 1.02;   // a speedup from which on a draft is worth making, where its interval does not say

// What may not differ between the runs among which a length is chosen. A larger batch needs more prompts.
json tuning_ground(json run) {
  for (const char* group : {"policy", "measure", "trace"}) run.erase(group);
  run["engine"].erase("batch");
  run["workload"].erase("limit");
  return run;
}

bool is_chain_of_fixed_length(const json& run) {
  const json policy = run.value("policy", json::object());
  return policy.value("name", "") == "fixed" && policy.value("nodes", json()).is_null() &&
         policy.value("confidence", json()).is_null() && policy.value("length", json()).is_number_integer();
}

int batch_of(const Summary& s) { return s.run().at("engine").at("batch").get<int>(); }
int length_of(const Summary& s) { return int(fixed_length(s.run())); }

// The results to choose from.
std::vector<Summary> candidates_of(const std::vector<Result>& results) {
  std::vector<Summary> found;
  std::set<std::string> machines;
  for (const Result* result : latest(results)) {
    if (result->failed() || result->unfinished || !is_chain_of_fixed_length(result->run)) continue;
    Summary s = summarize(*result);
    if (s.failed() || !s.speedup.known() || length_of(s) == 0) continue;
    if (!found.empty()) expect_alike(tuning_ground(found.front().run()), tuning_ground(s.run()));
    if (const auto& machine = result->origin.machine) machines.insert(machine->cpu + ", " + machine->description);
    found.push_back(std::move(s));
  }
  if (found.empty())
    throw Error(
        "the results have no finished run of the policy 'fixed' with chains ('/policy/nodes' and '/policy/confidence' "
        "null) and a speedup, from which a length could be chosen; `foretoken run experiments/configs/lengths.json` "
        "writes some");
  if (machines.size() > 1)
    throw Error("the results are of several machines (" + *machines.begin() + "; " + *machines.rbegin() +
                "), whose best lengths need not be the same; give those of one");
  return found;
}

struct TunedChoice {
  int batch = 1, length = 0;
  Interval speedup = Interval::of(1);  // of the chosen length
  int fastest = 0;
  Interval most = Interval::unknown();  // of the fastest
  std::size_t candidates = 0;
};

TunedChoice tuned_choice(const View& view, const Best& best) {
  const Summary& fastest = view.cells[best.cell];
  TunedChoice c{.batch = batch_of(fastest), .fastest = length_of(fastest), .most = best.speedup};
  c.candidates = best.candidates;
  const Summary* chosen = &fastest;
  if (best.speedup.bounded())
    for (const std::size_t i : best.as_good) {
      const Summary& s = view.cells[i];
      if (s.speedup.value >= kClose * fastest.speedup.value && length_of(s) < length_of(*chosen)) chosen = &s;
    }
  if (chosen->speedup.value < kPays && chosen->speedup.against(1) <= 0) return c;
  c.length = length_of(*chosen);
  c.speedup = chosen == &fastest ? best.speedup : chosen->speedup;
  return c;
}

std::vector<TunedChoice> tuned_choices(const View& view) {
  std::vector<std::size_t> by_batch;
  for (const std::size_t axis : view.axes.all())
    if (view.axes.columns()[axis].pointer == "/engine/batch") by_batch.push_back(axis);
  std::vector<TunedChoice> choices;
  for (const Best& best : best_of(view, by_batch)) choices.push_back(tuned_choice(view, best));
  std::ranges::sort(choices, {}, &TunedChoice::batch);
  return choices;
}

json tuned_document(const View& view, const std::vector<TunedChoice>& choices) {
  const Result& first = view.cells.front().result;
  json lengths = json::array(), figures = json::array();
  for (const TunedChoice& c : choices) {
    lengths.push_back({c.batch, c.length});
    figures.push_back({{"batch", c.batch},
                       {"length", c.length},
                       {"speedup", to_json(c.speedup)},
                       {"fastest", c.fastest},
                       {"fastest_speedup", to_json(c.most)},
                       {"candidates", c.candidates}});
  }
  json document{{"kind", kTunedKind},
                {"schema", kTunedSchema},
                {"lengths", lengths},
                {"choices", figures},
                {"verifier", first.run.at("verifier")},
                {"sampling", first.run.at("sampling")},
                {"machine", first.origin.machine ? to_json(*first.origin.machine) : json()},
                {"version", first.origin.version},
                {"commit", first.origin.commit}};
  document.update(pair_of(first.run));
  return document;
}

Table tuned_table(const std::vector<TunedChoice>& choices) {
  using Kind = Column::Kind;
  Table table;
  table.title = "Draft length by batch";
  table.columns = {
      {"batch", "batch", ""},
      {"length", "length",
       "the shortest that is not clearly slower than the fastest and within 2 % of it; 0: no draft, since "
       "none pays"},
      {"speedup [95 %]", "speedup", "over plain decoding; an interval accounts for the choice", Kind::interval},
      {"fastest", "fastest", "the fastest length of these results"},
      {"its speedup [95 %]", "fastest_speedup", "", Kind::interval},
      {"of", "candidates", "lengths that were measured"}};
  for (const TunedChoice& c : choices) {
    Row& row = table.rows.emplace_back();
    row.cells = {Cell::of(double(c.batch), 0),   Cell::of(double(c.length), 0), Cell::of(c.speedup, 2),
                 Cell::of(double(c.fastest), 0), Cell::of(c.most, 2),           Cell::of(double(c.candidates), 0)};
  }
  return table;
}

}  // namespace

Tuned tune(const std::vector<Result>& results, const TuneOptions& options) {
  Tuned tuned;
  tuned.text = of_lines([&] {
    const View view = View::of(candidates_of(results));
    const std::vector<TunedChoice> choices = tuned_choices(view);
    tuned.document = tuned_document(view, choices);
    const Table table = tuned_table(choices);
    if (options.format == "json") return tuned.document.dump(1) + "\n";
    if (options.format == "csv") return table.csv();
    const bool markdown = options.format == "markdown";
    return (markdown ? table.markdown() : table.terminal(options.width)) + "\n" +
           legend({table}, options.width, markdown);
  });
  return tuned;
}

}  // namespace foretoken
