#include "experiments/report/tables.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;
using Kind = Column::Kind;

constexpr std::size_t kPositions = 12;  // shown side by side; CSV and JSON have all
constexpr const char* kNotFull = "~";
constexpr double kSteadyShare = 0.75;

Table with_axes(const View& view, std::string title, std::vector<Column> columns) {
  Table table;
  table.title = std::move(title);
  table.columns = view.columns();
  table.columns.insert(table.columns.end(), columns.begin(), columns.end());
  return table;
}

// "2 turns left out: the conversation reached the context of 512 tokens"; of both sides where these differ.
std::string left_out_of(const LeftOutTurns& turns) {
  if (!turns.any()) return "";
  std::string count = std::to_string(turns.speculative);
  if (turns.speculative != turns.baseline) count += " and, of plain decoding, " + std::to_string(turns.baseline);
  return count + (count == "1" ? " turn" : " turns") + " left out: the conversation reached the context of " +
         std::to_string(turns.context) + " tokens";
}

// "no draft: context 58 %": the reasons for which at least one round of twenty verified no draft, but for ends of
// outputs.
std::string no_draft_of(const SideFigures& side) {
  std::string found;
  for (const auto& [reason, rounds] : side.no_draft)
    if (reason != "end" && rounds >= side.rounds / 20)
      found += (found.empty() ? "no draft: " : " and ") + reason + " " +
               std::to_string(std::lround(100 * rounds / side.rounds)) + " %";
  return found;
}

// "exact ✓, loses": the promise, whether the outputs kept it, and whether speculation loses.
std::string notes_of(const Summary& s) {
  std::string found = kind_of(s.promise);
  if (s.compared && s.differing_texts == 0) found += " ✓";
  if (s.compared && s.differing_texts > 0)
    found += " ✗" + std::to_string(s.differing_texts) + "/" + std::to_string(s.compared_texts);
  const auto note = [&](const std::string& text) {
    if (!text.empty()) found += (found.empty() ? "" : ", ") + text;
  };
  if (s.failed_requests > 0) note(std::to_string(s.failed_requests) + " failed");
  note(left_out_of(s.left_out_turns));
  note(s.run().value("/workload/start"_json_pointer, ""));
  if (s.load) note("open loop");
  note(standing(s.speedup));
  if (s.without_speeds) note("no speeds");
  if (const auto& unfinished = s.result.unfinished)
    note(std::to_string(unfinished->done) + " of " + std::to_string(unfinished->of) + " alternations");
  else if (s.repeats == 1 && !s.without_speeds)
    note(s.prompts_alone ? "prompts alone" : "one alternation");
  if (s.in_shares) note("shares");
  if (s.speculative.cut > 0) note("cut");
  note(no_draft_of(s.speculative));
  if (s.alternations_differ) note("alternations differ");
  if (s.two_speeds) note("two speeds");
  if (s.steady_share < kSteadyShare) note("short");  // also where the places were never all taken
  return found;
}

std::string theory_mark(const Summary& s) { return s.theory.full_length || s.theory.branched ? "" : kNotFull; }

// Of runs that differ only in their policy, the one that drafted the most positions. Drafts that another confidence
// ends are others: those that go on are the likely ones.
std::vector<std::size_t> longest_of(const View& view) {
  std::vector<std::size_t> found;
  const auto confidence = [&](std::size_t i) {
    return view.cells[i].run().value("/policy/confidence"_json_pointer, json());
  };
  for (std::size_t i = 0; i < view.cells.size(); ++i) {
    if (view.cells[i].positions.empty()) continue;
    const auto alike = [&](std::size_t j) {
      return view.equal(i, j, view.axes.outside_policy()) && confidence(i) == confidence(j);
    };
    const auto known = std::ranges::find_if(found, alike);
    if (known == found.end())
      found.push_back(i);
    else if (view.cells[i].positions.size() > view.cells[*known].positions.size())
      *known = i;
  }
  return found;
}

// What each note of the main table means.
constexpr const char* kNotes =
    "promise of the output; ✓ all outputs equal the baseline's, ✗ how many differ; loses: slower than plain "
    "decoding; unclear: the interval contains 1; one alternation: no interval, since it does not say how the "
    "machine "
    "varies; 1 of 3 alternations: the sweep goes on, or was interrupted; no speeds: the run accepts a busy machine "
    "(/measure/busy), so nothing that depends on times is shown; prompts alone: of a GPU's one alternation the "
    "interval says how prompts vary, not the machine; "
    "shares: a batch's queue cannot be run again with other prompts, so the interval resamples their shares of the "
    "time and is too wide; "
    "cold, warm: from which state a drafter or policy that learns was measured; "
    "failed: requests whose prompts are left out; cut: trees had fewer nodes than the policy requested, for lack "
    "of rows or pages; no draft: rounds that verified no draft, of all rounds, since the context of the drafter's "
    "model is full (choose one with a longer context, or shorter outputs), the pool has no pages (raise "
    "/engine/memory_mib), the step no rows (/engine/step_rows), the policy asked for none, the target had yet to "
    "compute the states that the drafter reads (states), or the drafter had nothing, or was less sure than the "
    "policy's confidence; alternations differ: a side did not do the same again though its draws were equal; two "
    "speeds: steps that do the same took two different times; short: "
    "places "
    "were all taken for less than three quarters of the time; open loop: requests arrive at a rate, which caps "
    "tok/s, so there is no speedup (table load)";

std::vector<Column> main_columns() {
  return {{.title = "alpha",
           .name = "alpha",
           .meaning = "accepted / tested draft tokens, up to the first rejection",
           .kind = Kind::interval,
           .brief = true,
           .better = 1},
          {.title = "accept",
           .name = "accept_rate",
           .meaning = "accepted / drafted tokens",
           .kind = Kind::interval,
           .brief = true,
           .spare = true,
           .better = 1},
          {.title = "tau",
           .name = "tau",
           .meaning = "tokens emitted per target forward",
           .kind = Kind::interval,
           .brief = true,
           .better = 1},
          {.title = "theory",
           .name = "tau_theory",
           .meaning =
               "tau by alpha and the draft length g, if positions were independent: (1 - alpha^(g+1)) / (1 - alpha); "
               "~ where drafts are often shorter than g: 1 + sum over i of P(drafted >= i) alpha^i",
           .spare = true},
          {.title = "tok/s",
           .name = "tokens_per_second",
           .meaning = "tokens per second end to end, with speculation",
           .kind = Kind::interval,
           .brief = true,
           .better = 1},
          {.title = "plain",
           .name = "baseline_tokens_per_second",
           .meaning = "the same without speculation",
           .spare = true},
          {.title = "steady",
           .name = "steady_speedup",
           .meaning = "speedup while all places of the batch were taken, without filling and draining",
           .kind = Kind::interval,
           .brief = true,
           .spare = true,
           .better = 1},
          {.title = "speedup [95 %]",
           .name = "speedup",
           .meaning = "tok/s over plain, with the interval of a bootstrap over prompts and alternations",
           .kind = Kind::interval,
           .better = 1},
          {.title = "notes", .name = "notes", .meaning = kNotes, .kind = Kind::text, .whole = true}};
}

}  // namespace

std::string kind_of(const std::string& promise) { return promise.substr(0, promise.find_first_of(",:")); }

std::string standing(const Interval& speedup) {
  if (!speedup.bounded()) return "";
  return speedup.against(1) > 0 ? "" : speedup.against(1) < 0 ? "loses" : "unclear";
}

Table main_table(const View& view) {
  Table table = with_axes(view, "Acceptance and speed", main_columns());
  table.note = view.origin();
  for (std::size_t i = 0; i < view.cells.size(); ++i) {
    const Summary& s = view.cells[i];
    Row row = view.start(i);
    if (!s.failed())
      row.add({Cell::of(s.alpha, 2), Cell::of(s.accept_rate, 2), Cell::of(s.tau, 2),
               Cell::of(s.theory.tau, 2, theory_mark(s)), Cell::of(s.tokens_per_second, 1),
               Cell::of(s.baseline.tokens_per_second, 1), Cell::of(s.steady_speedup, 2), Cell::of(s.speedup, 2),
               Cell::of(notes_of(s))});
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table theory_table(const View& view) {
  Table table =
      with_axes(view, "Theory beside measurement",
                {{.title = "alpha [95 %]", .name = "alpha", .meaning = "", .kind = Kind::interval, .better = 1},
                 {.title = "tau [95 %]", .name = "tau", .meaning = "", .kind = Kind::interval, .better = 1},
                 {"theory", "tau_theory", ""},
                 {"g", "mean_drafted", "tokens drafted per round, on average"},
                 {"plain", "plain_ms", "milliseconds of a sequence's share of a forward: a round of plain decoding"},
                 {"draft", "draft_ms", "the same of a drafted token"},
                 {"verify", "verify_ms", "the same of a round's verification"},
                 {"predict", "speedup_theory", "theory plain / (g draft + verify)"},
                 {"speedup", "speedup", "measured, end to end"}});
  for (std::size_t i = 0; i < view.cells.size(); ++i) {
    const Summary& s = view.cells[i];
    if (s.failed()) continue;
    Row row = view.start(i);
    row.add({Cell::of(s.alpha, 2), Cell::of(s.tau, 2), Cell::of(s.theory.tau, 2, theory_mark(s)),
             Cell::of(s.theory.mean_drafted, 2), Cell::of(s.theory.plain_ms, 2), Cell::of(s.theory.draft_ms, 2),
             Cell::of(s.theory.verify_ms, 2), Cell::of(s.theory.speedup, 2, theory_mark(s)),
             Cell::of(s.speedup.value, 2)});
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<Table> position_tables(const View& view) {
  const std::vector<std::size_t> longest = longest_of(view);
  std::size_t most = 0;
  for (const std::size_t i : longest) most = std::max(most, view.cells[i].positions.size());
  std::vector<Column> columns;
  for (std::size_t i = 1; i <= std::min(most, kPositions); ++i)
    columns.push_back({std::to_string(i), "position_" + std::to_string(i), ""});
  const std::string which = longest.size() < view.cells.size() ? " (each group's longest drafts)" : "";
  std::vector<Table> tables = {
      with_axes(view, "Acceptance by position: accepted / tested there" + which, columns),
      with_axes(view, "Acceptance by position: rounds that accepted this far / all rounds" + which, columns)};
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if (most > kPositions) tables[t].note = "Positions above " + std::to_string(kPositions) + " are in CSV and JSON.";
    for (const std::size_t i : longest) {
      Row row = view.start(i);
      row.rule_before = false;
      for (const PositionFigures& at : view.cells[i].positions)
        if (std::size_t(at.position) <= kPositions) row.add({Cell::of(t == 0 ? at.rate : at.reached, 2)});
      tables[t].rows.push_back(std::move(row));
    }
  }
  return tables;
}

Table category_table(const View& view, bool fastest_alone) {
  std::set<std::size_t> shown;
  for (const Best& best : best_of(view)) shown.insert(best.cell);
  const bool choice = fastest_alone && !view.axes.of_policy().empty();
  Table table =
      with_axes(view, choice ? "By category (only each group's fastest row)" : "By category",
                {{"category", "category", "", Kind::text},
                 {"prompts", "prompts", ""},
                 {.title = "alpha [95 %]", .name = "alpha", .meaning = "", .kind = Kind::interval, .better = 1},
                 {.title = "tau [95 %]", .name = "tau", .meaning = "", .kind = Kind::interval, .better = 1},
                 {.title = "speedup [95 %]", .name = "speedup", .meaning = "", .kind = Kind::interval, .better = 1},
                 {"notes", "notes", "", Kind::text, true}});
  for (std::size_t i = 0; i < view.cells.size(); ++i) {
    if (choice && !shown.contains(i)) continue;
    bool first = true;
    for (const CategoryFigures& category : view.cells[i].categories) {
      Row row = view.start(i);
      row.rule_before = first && !table.rows.empty();
      first = false;
      row.group += category.name;
      row.add({Cell::of(category.name), Cell::of(category.prompts, 0), Cell::of(category.alpha, 2),
               Cell::of(category.tau, 2), Cell::of(category.speedup, 2), Cell::of(standing(category.speedup))});
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

}  // namespace foretoken
