// Two sets of results, run by run.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "experiments/report/notes.h"
#include "experiments/report/report.h"
#include "experiments/report/tables.h"
#include "experiments/report/terminal.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;
using Kind = Column::Kind;

struct RunPair {
  const Summary *a, *b;
};

struct MatchedRuns {
  std::vector<Summary> a, b;
  std::vector<RunPair> pairs = {};
  std::vector<const Summary*> only_a = {}, only_b = {};
  std::string apart = {};            // if no run matches: fields that differ in all runs
  std::vector<json> documents = {};  // all runs, without what is ignored
};

using LeavesOfRun = std::map<std::string, json>;  // the leaves of a run by their pointers

std::vector<LeavesOfRun> fields_of(const std::vector<Summary>& side, const std::vector<std::string>& ignored) {
  std::vector<LeavesOfRun> found;
  for (const Summary& summary : side) {
    const json leaves = summary.run().flatten();
    found.emplace_back();
    for (const auto& [pointer, value] : leaves.items())
      if (std::ranges::none_of(ignored, [&p = pointer](const std::string& parent) { return within(p, parent); }))
        found.back()[pointer] = value;
  }
  return found;
}

// Fields that have no value in common on both sides: they keep all runs from matching.
std::string differing_everywhere(const std::vector<LeavesOfRun>& a, const std::vector<LeavesOfRun>& b) {
  std::map<std::string, std::pair<std::set<json>, std::set<json>>> values;
  for (const LeavesOfRun& run : a)
    for (const auto& [pointer, value] : run) values[pointer].first.insert(value);
  for (const LeavesOfRun& run : b)
    for (const auto& [pointer, value] : run) values[pointer].second.insert(value);
  std::string found;
  for (const auto& [pointer, sides] : values)
    if (std::ranges::none_of(sides.first, [&s = sides](const json& value) { return s.second.contains(value); }))
      found += (found.empty() ? "" : ",") + pointer;
  return found;
}

// Two runs match if their documents agree except for /measure and the ignored fields. An ignored field that no run has,
// or ignored fields without which two runs of one side would be equal, are an Error.
MatchedRuns match_runs(const std::vector<Result>& lines_a, const std::vector<Result>& lines_b,
                       const CompareOptions& options) {
  MatchedRuns found{.a = summarize(lines_a), .b = summarize(lines_b)};
  std::vector<json> runs;
  for (const auto* side : {&found.a, &found.b})
    for (const Summary& summary : *side) runs.push_back(summary.run());
  std::vector<std::string> ignored = {"/measure"};
  for (const std::string& pointer : options.ignore) {
    expect_known(runs, pointer, "so it cannot be ignored");  // it would have no effect
    ignored.push_back(pointer);
  }
  const std::vector<LeavesOfRun> fields_a = fields_of(found.a, ignored), fields_b = fields_of(found.b, ignored);
  for (const auto& [fields, name] : {std::pair(&fields_a, options.name_a), std::pair(&fields_b, options.name_b)}) {
    if (std::set<LeavesOfRun>(fields->begin(), fields->end()).size() < fields->size())
      throw Error("two runs of " + name + " differ only in what is ignored; ignore less");
    for (const LeavesOfRun& leaves : *fields) found.documents.push_back(json(leaves).unflatten());
  }
  for (const Summary& b : found.b) found.only_b.push_back(&b);
  for (std::size_t i = 0; i < found.a.size(); ++i) {
    const auto same = std::ranges::find(fields_b, fields_a[i]);
    if (same == fields_b.end()) {
      found.only_a.push_back(&found.a[i]);
      continue;
    }
    found.pairs.push_back({&found.a[i], &found.b[std::size_t(same - fields_b.begin())]});
    std::erase(found.only_b, found.pairs.back().b);
  }
  if (found.pairs.empty() && !fields_a.empty() && !fields_b.empty())
    found.apart = differing_everywhere(fields_a, fields_b);
  return found;
}

struct Figure {
  const char *name, *title, *meaning;
  Interval Summary::* interval;
  Measurements Samples::* samples;
  int digits;
};

constexpr Figure kFigures[] = {
    {"tokens_per_second", "tok/s", "tokens per second end to end", &Summary::tokens_per_second,
     &Samples::tokens_per_second, 1},
    {"speedup", "speedup", "tok/s over the baseline's", &Summary::speedup, &Samples::speedup, 2},
    {"tau", "tau", "tokens emitted per target forward", &Summary::tau, &Samples::tau, 2},
    {"alpha", "alpha", "accepted / tested draft tokens", &Summary::alpha, &Samples::alpha, 2}};
constexpr std::size_t kSpeedup = 1;

std::string failure(const RunPair& pair) {
  if (pair.a->failed() && pair.b->failed()) return "failed on both sides: " + pair.b->error;
  return pair.a->failed() ? "failed in A: " + pair.a->error : pair.b->failed() ? "failed in B: " + pair.b->error : "";
}

// "exact", or "exact/lossy" if the sides differ.
std::string promises(const RunPair& pair) {
  const std::string a = kind_of(pair.a->promise), b = kind_of(pair.b->promise);
  return a == b ? a : a + "/" + b;
}

// What both sides read under one name, with other contents.
std::set<std::string> changed_sources(const RunPair& pair) {
  const auto &a = pair.a->result.origin.sources, &b = pair.b->result.origin.sources;
  std::set<std::string> found;
  for (const auto& [path, hash] : a)
    if (b.contains(path) && b.at(path) != hash) found.insert(path);
  return found;
}

// The sides ("baseline", "speculative") whose outputs differ although one run on one kind of device gives the same
// ones: draws have names. Where learning, times of arrival or fast numerics may change them, none.
std::set<std::string> changed_outputs(const RunPair& pair) {
  const Result &a = pair.a->result, &b = pair.b->result;
  const auto run = [](json whole) { return whole.erase("measure"), whole; };
  const auto compared = [](const Result& r) { return r.alternations && r.alternations->compared; };
  if (run(a.run) != run(b.run) || !a.origin.machine || !b.origin.machine || !a.outputs || !b.outputs ||
      a.device() != b.device() || a.origin.machine->instructions != b.origin.machine->instructions ||
      !changed_sources(pair).empty() || !compared(a) || !compared(b))
    return {};
  if (a.device() == "cuda" && a.run.value("/engine/numerics"_json_pointer, "") != "invariant") return {};
  std::set<std::string> found;
  if (a.outputs->baseline != b.outputs->baseline) found.insert("baseline");
  if (a.outputs->speculative != b.outputs->speculative) found.insert("speculative");
  return found;
}

bool same_prompts(const RunPair& pair) {
  const json file = pair.a->run().value("/workload/prompts"_json_pointer, json());
  return pair.a->samples.prompts == pair.b->samples.prompts &&
         !(file.is_string() && changed_sources(pair).contains(file.get<std::string>()));
}

// B over A in one figure, of the prompts that both served.
Resampled ratio_of(const RunPair& pair, const Figure& figure) {
  const Interval &a = pair.a->*figure.interval, &b = pair.b->*figure.interval;
  const Measurements &base = pair.a->samples.*figure.samples, &other = pair.b->samples.*figure.samples;
  const bool timed = figure.interval == &Summary::speedup || figure.interval == &Summary::tokens_per_second,
             once = pair.a->prompts_alone || pair.b->prompts_alone;  // prompts cancel, the machine is left
  if (!failure(pair).empty() || !same_prompts(pair) || !a.bounded() || !b.bounded() || (timed && once))
    return {b.value / a.value};
  return resampled_ratio(base, other);
}

// Of each figure, the ratios of all pairs, whose intervals hold together.
struct Ratios {
  std::vector<Interval> of[std::size(kFigures)];  // [figure][pair]

  explicit Ratios(const std::vector<RunPair>& pairs) {
    for (std::size_t f = 0; f < std::size(kFigures); ++f) {
      std::vector<Resampled> all;
      for (const RunPair& pair : pairs) all.push_back(ratio_of(pair, kFigures[f]));
      of[f] = simultaneous_intervals(all);
    }
  }
};

void add_figures(const RunPair& pair, const Ratios& ratios, std::size_t i, bool all, Row& row) {
  for (std::size_t f = 0; f < std::size(kFigures); ++f) {
    const Figure& figure = kFigures[f];
    const int clear = ratios.of[f][i].against(1);
    row.cells.push_back(Cell::of(pair.a->*figure.interval, figure.digits));
    row.cells.push_back(Cell::of(pair.b->*figure.interval, figure.digits, clear > 0 ? "↑" : clear < 0 ? "↓" : " "));
    if (all || f == kSpeedup) row.cells.push_back(Cell::of(ratios.of[f][i], 3));
  }
}

// Where a side says what memory it took.
void add_memory(const std::vector<RunPair>& pairs, Table& table) {
  const auto megabytes = [](const Summary* side) { return side->speculative.memory.total() / 1e6; };
  const auto known = [&](const RunPair& p) { return std::isfinite(megabytes(p.a)) || std::isfinite(megabytes(p.b)); };
  if (std::ranges::none_of(pairs, known)) return;
  table.columns.push_back({"MB A", "memory_mb_a", "10^6 bytes of weights, caches and scratch"});
  table.columns.push_back({"B", "memory_mb_b", ""});
  for (std::size_t i = 0; i < pairs.size(); ++i)
    if (Row& row = table.rows[i]; row.sentence.empty())
      for (const Summary* side : {pairs[i].a, pairs[i].b}) row.cells.push_back(Cell::of(megabytes(side), 1));
}

// Only the ratio of the speedups is for people, and it alone has an interval there.
void add_columns(const Figure& figure, bool all, Table& table) {
  const std::string name = figure.name;
  table.columns.push_back({.title = figure.title + std::string(" A"),
                           .name = name + "_a",
                           .meaning = figure.meaning,
                           .kind = Kind::interval,
                           .brief = true});
  table.columns.push_back(
      {.title = "B",
       .name = name + "_b",
       .meaning = name == "speedup" ? "the same of B; ↑ ↓ where the interval of B/A leaves 1 out" : "",
       .kind = Kind::interval,
       .brief = true});
  if (all || name == "speedup")
    table.columns.push_back({"B/A [95 %]", name + "_ratio",
                             "ratio of the speedups, with the interval of a bootstrap that resamples the prompts of "
                             "both sides together and the alternations of each; all rows' intervals hold together in "
                             "95 of 100 cases",
                             Kind::interval});
}

Table pairs_table(const MatchedRuns& matching, const Axes& axes, const std::vector<RunPair>& pairs,
                  const Ratios& ratios, bool all) {
  Table table;
  table.title = "A and B, run by run";
  table.columns = axes.table_columns();
  const bool mixed =
      std::ranges::any_of(pairs, [&](const RunPair& p) { return promises(p) != kind_of(pairs[0].a->promise); });
  if (mixed) table.columns.push_back({"output", "promise", "what the verifiers of A and B promise", Kind::text});
  for (const Figure& figure : kFigures) add_columns(figure, all, table);
  const bool incomplete =
      std::ranges::any_of(pairs, [](const RunPair& p) { return p.a->failed_requests > 0 || p.b->failed_requests > 0; });
  if (incomplete) {
    table.columns.push_back({"failed A", "failed_requests_a", "requests that failed; their prompts are left out"});
    table.columns.push_back({"B", "failed_requests_b", ""});
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const RunPair& pair = pairs[i];
    Row row{axes.cells(pair.a->run()), failure(pair), false};
    if (mixed) row.cells.push_back(Cell::of(promises(pair)));
    if (row.sentence.empty()) add_figures(pair, ratios, i, all, row);
    if (incomplete && row.sentence.empty())
      for (const Summary* side : {pair.a, pair.b}) row.cells.push_back(Cell::of(side->failed_requests, 0));
    table.rows.push_back(std::move(row));
  }
  add_memory(pairs, table);
  const std::size_t alone = matching.only_a.size() + matching.only_b.size();
  if (table.rows.empty() && alone)
    table.note = matching.apart.empty() ? "No run is on both sides."
                                        : "No run is on both sides: all differ in " + matching.apart +
                                              "; --ignore compares them anyway, if that makes sense.";
  return table;
}

std::string verdict(const std::vector<RunPair>& pairs, const Ratios& ratios) {
  int faster = 0, slower = 0, same = 0, open = 0, failed = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Interval& ratio = ratios.of[kSpeedup][i];
    if (!failure(pairs[i]).empty())
      ++failed;
    else if (!ratio.bounded())
      ++open;
    else
      ++(ratio.against(1) > 0 ? faster : ratio.against(1) < 0 ? slower : same);
  }
  return std::to_string(pairs.size()) + (pairs.size() == 1 ? " run" : " runs") +
         " on both sides: speedup clearly higher in B " + std::to_string(faster) + ", clearly lower " +
         std::to_string(slower) + ", no clear difference " + std::to_string(same) +
         (open ? ", not comparable " + std::to_string(open) : "") +
         (failed ? ", failed " + std::to_string(failed) : "") + "." +
         (open ? " Not comparable: other prompts, one alternation, which does not say how the machine varies, or an "
                 "open loop, "
                 "which has no speedup."
               : "");
}

std::string origin_of(const std::vector<Summary>& side) {
  const View view = View::of(side);
  const std::string models = view.models();
  return view.origin() + (models.empty() ? "" : " " + models + ".");
}

std::string people(const MatchedRuns& matching, const Axes& axes, const Table& table, const std::string& verdict,
                   const CompareOptions& options) {
  const bool markdown = options.format == "markdown";
  const std::string end = markdown ? "\n\n" : "\n", item = markdown ? "- " : "  ";
  std::string found;
  if (!matching.a.empty()) found += one_line("A: " + options.name_a + ", " + origin_of(matching.a)) + end;
  if (!matching.b.empty()) found += one_line("B: " + options.name_b + ", " + origin_of(matching.b)) + end;
  found += verdict + end;
  std::map<std::string, int> changed, outputs;
  for (const RunPair& pair : matching.pairs) {
    for (const std::string& path : changed_sources(pair)) ++changed[path];
    for (const std::string& side : changed_outputs(pair)) ++outputs[side];
  }
  const auto counted = [](int runs) { return std::to_string(runs) + (runs == 1 ? " run" : " runs"); };
  for (const auto& [path, runs] : changed)
    found += "Other contents in B than in A: " + one_line(path) + " (" + counted(runs) + ")." + end;
  for (const auto& [side, runs] : outputs)
    found += "Other outputs in B than in A (" + side + ") of " + counted(runs) +
             ", though run and device are the same." + end;
  found += (markdown ? "" : "\n") + (markdown ? table.markdown() : table.terminal(options.width)) + "\n";
  for (const auto& [alone, side] :
       {std::pair(&matching.only_a, "Only in A:"), std::pair(&matching.only_b, "Only in B:")}) {
    if (alone->empty()) continue;
    found += side + end;
    for (const Summary* summary : *alone) found += item + one_line(axes.label(summary->run())) + "\n";
    found += "\n";
  }
  return found + legend({table}, options.width, markdown);
}

json side_json(const std::vector<const Summary*>& alone) {
  json found = json::array();
  for (const Summary* summary : alone) found.push_back({{"key", summary->result.key}, {"run", summary->run()}});
  return found;
}

std::string programs(const MatchedRuns& matching, const std::vector<RunPair>& pairs, const Ratios& ratios) {
  json matched = json::array();
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const RunPair& pair = pairs[i];
    json one = {{"changed_sources", changed_sources(pair)},
                {"key_a", pair.a->result.key},
                {"key_b", pair.b->result.key},
                {"run", pair.b->run()}};
    if (const auto outputs = changed_outputs(pair); !outputs.empty()) one["changed_outputs"] = outputs;
    if (!failure(pair).empty()) one["error"] = failure(pair);
    if (pair.a->failed_requests > 0 || pair.b->failed_requests > 0)
      one["failed_requests"] = {{"a", pair.a->failed_requests}, {"b", pair.b->failed_requests}};
    if (failure(pair).empty()) {
      one["memory"] = {{"a", to_json(pair.a->speculative.memory)}, {"b", to_json(pair.b->speculative.memory)}};
      for (std::size_t f = 0; f < std::size(kFigures); ++f)
        one[kFigures[f].name] = {{"a", to_json(pair.a->*kFigures[f].interval)},
                                 {"b", to_json(pair.b->*kFigures[f].interval)},
                                 {"ratio", to_json(ratios.of[f][i])},
                                 {"clear", ratios.of[f][i].against(1)}};
    }
    matched.push_back(std::move(one));
  }
  return json{{"schema", 1},
              {"matched", matched},
              {"only_a", side_json(matching.only_a)},
              {"only_b", side_json(matching.only_b)}}
             .dump(1) +
         "\n";
}

std::string comparison(const std::vector<Result>& a, const std::vector<Result>& b, const CompareOptions& options) {
  if (options.format != "terminal" && options.format != "markdown" && options.format != "csv" &&
      options.format != "json")
    throw Error("unknown format '" + options.format + "': there are terminal, markdown, csv, json");
  if (a.empty() && b.empty())
    throw Error("there is nothing to compare: neither " + options.name_a + " nor " + options.name_b +
                " holds a result");
  const MatchedRuns matching = match_runs(a, b, options);
  std::vector<json> both;
  for (const RunPair& pair : matching.pairs) both.push_back(pair.a->run());
  const Axes axes(matching.documents, {});
  std::vector<RunPair> pairs;
  for (const std::size_t i : axes.order(both)) pairs.push_back(matching.pairs[i]);
  const Ratios ratios(pairs);
  if (options.format == "json") return programs(matching, pairs, ratios);
  const bool csv = options.format == "csv";
  const Table table = pairs_table(matching, axes, pairs, ratios, csv);
  return csv ? table.csv() : people(matching, axes, table.brief(), verdict(pairs, ratios), options);
}

}  // namespace

std::string compare(const std::vector<Result>& a, const std::vector<Result>& b, const CompareOptions& options) {
  return of_lines([&] { return comparison(a, b, options); });
}

}  // namespace foretoken
