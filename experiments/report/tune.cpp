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

TunedCandidate candidate_of(const Summary& s) { return {.length = length_of(s), .speedup = s.speedup}; }

TunedChoice tuned_choice(const View& view, const Best& best) {
  const Summary& fastest = view.cells[best.cell];
  std::vector<TunedCandidate> as_good;
  if (best.speedup.bounded())
    for (const std::size_t i : best.as_good) as_good.push_back(candidate_of(view.cells[i]));
  return tuned_choice(batch_of(fastest), {.length = length_of(fastest), .speedup = best.speedup}, as_good,
                      best.candidates);
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

json tuned_document(const std::vector<TunedChoice>& choices, const TunedOrigin& origin) {
  json lengths = json::array(), figures = json::array();
  for (const TunedChoice& c : choices) {
    lengths.push_back({c.batch, c.chosen.length});
    json& figure = figures.emplace_back(json{{"batch", c.batch},
                                             {"length", c.chosen.length},
                                             {"speedup", to_json(c.chosen.speedup)},
                                             {"fastest", c.fastest.length},
                                             {"fastest_speedup", to_json(c.fastest.speedup)},
                                             {"candidates", c.candidates}});
    if (c.fastest.beyond) figure["beyond"] = true;
  }
  json document{{"kind", kTunedKind},
                {"schema", kTunedSchema},
                {"lengths", lengths},
                {"choices", figures},
                {"verifier", origin.run.at("verifier")},
                {"sampling", origin.run.at("sampling")}};
  document.update(origin.members);
  document.update(pair_of(origin.run));
  return document;
}

Table tuned_table(const std::vector<TunedChoice>& choices, const TunedOrigin& origin) {
  using Kind = Column::Kind;
  Table table;
  table.title = "Draft length by batch";
  table.note = origin.note;
  table.columns = {
      {"batch", "batch", ""},
      {"length", "length", origin.length + "; 0: no draft, since none pays"},
      {"speedup [95 %]", "speedup", "over plain decoding; an interval accounts for the choice", Kind::interval},
      {"fastest", "fastest", "the fastest length of all"},
      {"its speedup [95 %]", "fastest_speedup", "", Kind::interval},
      {"of", "candidates", origin.candidates}};
  for (const TunedChoice& c : choices) {
    Row& row = table.rows.emplace_back();
    row.cells = {Cell::of(double(c.batch), 0),   Cell::of(double(c.chosen.length), 0),
                 Cell::of(c.chosen.speedup, 2),  Cell::of(double(c.fastest.length), 0, c.fastest.beyond ? "~" : ""),
                 Cell::of(c.fastest.speedup, 2), Cell::of(double(c.candidates), 0)};
  }
  return table;
}

TunedOrigin origin_of_measured(const View& view) {
  const Result& first = view.cells.front().result;
  return {.run = first.run,
          .members = {{"machine", first.origin.machine ? to_json(*first.origin.machine) : json()},
                      {"version", first.origin.version},
                      {"commit", first.origin.commit},
                      {"made_from", {{"measured_runs", view.cells.size()}}}},
          .length = "the shortest that is not clearly slower than the fastest and within 2 % of it",
          .candidates = "lengths that were measured",
          .note = ""};
}

}  // namespace

json tuning_ground(json run) {
  for (const char* group : {"policy", "measure", "trace"}) run.erase(group);
  run["engine"].erase("batch");
  run["workload"].erase("limit");
  return run;
}

TunedChoice tuned_choice(int batch, const TunedCandidate& fastest, const std::vector<TunedCandidate>& as_good,
                         std::size_t candidates) {
  TunedChoice c{.batch = batch, .fastest = fastest, .candidates = candidates};
  const auto pays = [](const TunedCandidate& one) { return one.speedup.value >= kPays || one.speedup.against(1) > 0; };
  if (!pays(fastest)) return c;
  c.chosen = fastest;
  for (const TunedCandidate& other : as_good)
    if (other.speedup.value >= kClose * fastest.speedup.value && other.length < c.chosen.length && pays(other))
      c.chosen = other;
  return c;
}

Tuned tuned_of(const std::vector<TunedChoice>& choices, const TunedOrigin& origin, const TuneOptions& options) {
  Tuned tuned{.document = tuned_document(choices, origin), .text = ""};
  const Table table = tuned_table(choices, origin);
  const bool markdown = options.format == "markdown";
  if (options.format == "json")
    tuned.text = tuned.document.dump(1) + "\n";
  else if (options.format == "csv")
    tuned.text = table.csv();
  else
    tuned.text =
        (markdown ? table.markdown() : table.terminal(options.width)) + "\n" + legend({table}, options.width, markdown);
  return tuned;
}

Tuned tune(const std::vector<Result>& results, const TuneOptions& options) {
  Tuned tuned;
  tuned.text = of_lines([&] {
    const View view = View::of(candidates_of(results));
    tuned = tuned_of(tuned_choices(view), origin_of_measured(view), options);
    return tuned.text;
  });
  return tuned;
}

}  // namespace foretoken
