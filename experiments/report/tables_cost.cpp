// Tables of the cost of speculation: phases, memory; and tables of all figures, for CSV.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "experiments/report/tables.h"

namespace foretoken {
namespace {

using Kind = Column::Kind;

// Milliseconds per step and their share of the step.
Cell part(double seconds, const SideFigures& side) {
  char share[16];
  std::snprintf(share, sizeof share, " %3.0f%%", 100 * seconds / side.phases.total);
  return Cell::of(1000 * seconds / side.steps, 2, share);
}

Cell megabytes(double bytes) { return Cell::of(bytes / 1e6, 1); }

double draft_seconds(const Phases& p) { return p.draft_forward + p.draft_other; }
double host_seconds(const Phases& p) { return p.total - draft_seconds(p) - p.target_forward - p.verify; }
Cell step_ms(const SideFigures& side, double seconds) { return Cell::of(1000 * seconds / side.steps, 4); }

// All figures of a run, in CSV. The key comes first, since a failed run has nothing else.
const std::vector<RunFigure> kFigures = {
    {"key", Kind::text, [](const Summary& s) { return Cell::of(s.result.key); }},
    {"repeats", Kind::number, [](const Summary& s) { return Cell::of(s.repeats, 0); }},
    {"prompts", Kind::number, [](const Summary& s) { return Cell::of(s.prompts, 0); }},
    {"failed_requests", Kind::number, [](const Summary& s) { return Cell::of(s.failed_requests, 0); }},
    {"alpha", Kind::interval, [](const Summary& s) { return Cell::of(s.alpha, 4); }, 1},
    {"accept_rate", Kind::interval, [](const Summary& s) { return Cell::of(s.accept_rate, 4); }, 1},
    {"tau", Kind::interval, [](const Summary& s) { return Cell::of(s.tau, 4); }, 1},
    {"tau_theory", Kind::number, [](const Summary& s) { return Cell::of(s.theory.tau, 4); }},
    {"mean_drafted", Kind::number, [](const Summary& s) { return Cell::of(s.theory.mean_drafted, 4); }},
    {"full_length", Kind::number, [](const Summary& s) { return Cell::of(s.theory.full_length, 0); }},
    {"cost_ratio", Kind::number, [](const Summary& s) { return Cell::of(s.theory.cost, 4); }},
    {"speedup", Kind::interval, [](const Summary& s) { return Cell::of(s.speedup, 4); }, 1},
    {"speedup_theory", Kind::number, [](const Summary& s) { return Cell::of(s.theory.speedup, 4); }},
    {"steady_speedup", Kind::interval, [](const Summary& s) { return Cell::of(s.steady_speedup, 4); }, 1},
    {"steady_share", Kind::number, [](const Summary& s) { return Cell::of(s.steady_share, 4); }},
    {"decode_speedup", Kind::interval, [](const Summary& s) { return Cell::of(s.decode_speedup, 4); }, 1},
    {"question_speedup", Kind::number, [](const Summary& s) { return Cell::of(s.question_speedup, 4); }, 1},
    {"acceptance_length", Kind::number, [](const Summary& s) { return Cell::of(s.acceptance_length, 4); }, 1},
    {"from_cache", Kind::number, [](const Summary& s) { return Cell::of(s.from_cache, 4); }, 1},
    {"log_probability", Kind::number, [](const Summary& s) { return Cell::of(s.speculative.log_probability, 4); }},
    {"tokens_per_second", Kind::interval, [](const Summary& s) { return Cell::of(s.tokens_per_second, 2); }, 1},
    {"baseline_tokens_per_second", Kind::number,
     [](const Summary& s) { return Cell::of(s.baseline.tokens_per_second, 2); }, 1},
    {"ttft_ms", Kind::number, [](const Summary& s) { return Cell::of(s.speculative.ttft_ms, 3); }, -1},
    {"baseline_ttft_ms", Kind::number, [](const Summary& s) { return Cell::of(s.baseline.ttft_ms, 3); }, -1},
    {"ms_per_token", Kind::number, [](const Summary& s) { return Cell::of(s.speculative.ms_per_token, 3); }, -1},
    {"baseline_ms_per_token", Kind::number, [](const Summary& s) { return Cell::of(s.baseline.ms_per_token, 3); }, -1},
    {"engine_overhead", Kind::number, [](const Summary& s) { return Cell::of(s.speculative.overhead, 4); }, -1},
    {"preempted", Kind::number, [](const Summary& s) { return Cell::of(s.speculative.preempted, 0); }},
    {"cut", Kind::number, [](const Summary& s) { return Cell::of(s.speculative.cut, 0); }},
    {"recorded", Kind::number, [](const Summary& s) { return Cell::of(s.speculative.recorded, 0); }},
    {"unrecorded", Kind::number, [](const Summary& s) { return Cell::of(s.speculative.unrecorded, 0); }},
    {"target_weights_mb", Kind::number,
     [](const Summary& s) { return megabytes(s.speculative.memory.target_weights); }},
    {"draft_weights_mb", Kind::number, [](const Summary& s) { return megabytes(s.speculative.memory.draft_weights); },
     -1},
    {"cache_mb", Kind::number, [](const Summary& s) { return megabytes(s.speculative.memory.cache); }},
    {"cache_used_mb", Kind::number, [](const Summary& s) { return megabytes(s.speculative.memory.cache_used); }, -1},
    {"scratch_mb", Kind::number, [](const Summary& s) { return megabytes(s.speculative.memory.scratch); }, -1},
    {"baseline_memory_mb", Kind::number, [](const Summary& s) { return megabytes(s.baseline.memory.total()); }, -1},
    {"promised", Kind::text, [](const Summary& s) { return Cell::of(s.promise); }},
    {"compared_texts", Kind::number, [](const Summary& s) { return Cell::of(s.compared_texts, 0); }},
    {"differing_texts", Kind::number, [](const Summary& s) { return Cell::of(s.differing_texts, 0); }},
    {"commit", Kind::text, [](const Summary& s) { return Cell::of(s.result.origin.commit); }},
    {"request_tokens_per_second", Kind::number,
     [](const Summary& s) { return Cell::of(s.speculative.decode_tokens_per_second, 2); }, 1},
    {"baseline_request_tokens_per_second", Kind::number,
     [](const Summary& s) { return Cell::of(s.baseline.decode_tokens_per_second, 2); }, 1},
    {"step_ms", Kind::number, [](const Summary& s) { return step_ms(s.speculative, s.speculative.phases.total); }, -1},
    {"draft_ms", Kind::number,
     [](const Summary& s) { return step_ms(s.speculative, draft_seconds(s.speculative.phases)); }, -1},
    {"target_ms", Kind::number,
     [](const Summary& s) { return step_ms(s.speculative, s.speculative.phases.target_forward); }, -1},
    {"verify_ms", Kind::number, [](const Summary& s) { return step_ms(s.speculative, s.speculative.phases.verify); },
     -1},
    {"host_ms", Kind::number,
     [](const Summary& s) { return step_ms(s.speculative, host_seconds(s.speculative.phases)); }, -1},
    {"baseline_step_ms", Kind::number, [](const Summary& s) { return step_ms(s.baseline, s.baseline.phases.total); },
     -1},
    {"ttft_p90_ms", Kind::number, [](const Summary& s) { return Cell::of(s.speculative.latency.ttft.p90, 3); }, -1},
    {"tpot_p90_ms", Kind::number, [](const Summary& s) { return Cell::of(s.speculative.latency.tpot.p90, 3); }, -1},
    {"whole_p50_ms", Kind::number, [](const Summary& s) { return Cell::of(s.speculative.latency.whole.p50, 3); }, -1}};

}  // namespace

const std::vector<RunFigure>& run_figures() { return kFigures; }

std::string failures_note(const std::vector<Summary>& cells) {
  int runs = 0, requests = 0;
  for (const Summary& s : cells)
    if (s.left_out > 0) ++runs, requests += s.failed_requests;
  if (runs == 0) return "";
  return " " + std::to_string(requests) + (requests == 1 ? " request" : " requests") + " of " + std::to_string(runs) +
         (runs == 1 ? " run" : " runs") +
         " failed: the figures there are those of the other prompts, on both sides; times of steps and acceptance by "
         "position are not known.";
}

Table phase_table(const View& view) {
  Table table;
  table.title = "Time of a step";
  table.columns = view.columns();
  const std::vector<Column> columns = {
      {"step ms", "step_ms",
       "milliseconds per step, for all requests of the batch; then its parts, and their share of it"},
      {"draft", "draft_ms", "drafters' forwards, distributions and draws"},
      {"target", "target_ms", "the target's forward"},
      {"verify", "verify_ms", "the target's distributions and the verifier"},
      {"host", "host_ms", "scheduling, bookkeeping and the rest"},
      {"over %", "overhead_percent", "share of the step outside forwards, per cent"},
      {"plain ms", "baseline_step_ms", "milliseconds per step of the baseline"},
      {"plain %", "baseline_overhead_percent", "its share outside forwards"}};
  table.columns.insert(table.columns.end(), columns.begin(), columns.end());
  if (const std::string note = failures_note(view.cells); !note.empty()) table.note = note.substr(1);
  const auto percent = [](double share) { return Cell::of(100 * share, 1); };
  for (std::size_t i = 0; i < view.cells.size(); ++i) {
    const SideFigures &side = view.cells[i].speculative, &plain = view.cells[i].baseline;
    const Phases& p = side.phases;
    if (view.cells[i].failed()) continue;
    Row row = view.start(i);
    row.add({Cell::of(1000 * p.total / side.steps, 2), part(draft_seconds(p), side), part(p.target_forward, side),
             part(p.verify, side), part(host_seconds(p), side), percent(side.overhead),
             Cell::of(1000 * plain.phases.total / plain.steps, 2), percent(plain.overhead)});
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table memory_table(const View& view) {
  Table table;
  table.title = "Memory, 10^6 bytes";
  table.columns = view.columns();
  const std::vector<Column> columns = {
      {"target", "target_weights_mb", "weights of the target, its embedding included"},
      {"draft", "draft_weights_mb", "weights of the drafters' models"},
      {"cache", "cache_mb", "the pool of keys and values of all models"},
      {"used", "cache_used_mb", "the most of the pool that was in use"},
      {"scratch", "scratch_mb", "the most that a step held besides: activations, logits, distributions"},
      {"sum", "memory_mb", "target, draft, cache and scratch"},
      {"plain sum", "baseline_memory_mb", "the same of the baseline"}};
  table.columns.insert(table.columns.end(), columns.begin(), columns.end());
  for (std::size_t i = 0; i < view.cells.size(); ++i) {
    const MemoryFigures &m = view.cells[i].speculative.memory, &plain = view.cells[i].baseline.memory;
    if (view.cells[i].failed() || std::isnan(m.target_weights)) continue;
    Row row = view.start(i);
    row.add({megabytes(m.target_weights), megabytes(m.draft_weights), megabytes(m.cache), megabytes(m.cache_used),
             megabytes(m.scratch), megabytes(m.total()), megabytes(plain.total())});
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table figures_table(const View& view) {
  Table table;
  table.title = "Every figure";
  table.columns = view.columns();
  for (const RunFigure& figure : kFigures) table.columns.push_back({figure.name, figure.name, "", figure.kind});
  for (std::size_t i = 0; i < view.cells.size(); ++i) {
    Row row = view.start(i);
    for (const RunFigure& figure : kFigures)
      if (!view.cells[i].failed() || figure.name == kFigures[0].name) row.cells.push_back(figure.cell(view.cells[i]));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table every_position_table(const View& view) {
  Table table;
  table.title = "Acceptance by position";
  table.columns = view.columns();
  for (const char* name : {"position", "drafted", "tested", "accepted"}) table.columns.push_back({name, name, ""});
  table.columns.push_back({"rate", "rate", "", Kind::interval});
  table.columns.push_back({"reached", "reached", ""});
  for (std::size_t i = 0; i < view.cells.size(); ++i)
    for (const PositionFigures& at : view.cells[i].positions) {
      Row row = view.start(i);
      row.add({Cell::of(at.position, 0), Cell::of(at.drafted, 0), Cell::of(at.tested, 0), Cell::of(at.accepted, 0),
               Cell::of(Interval{at.rate, at.rate_interval.low, at.rate_interval.high}, 4), Cell::of(at.reached, 4)});
      table.rows.push_back(std::move(row));
    }
  return table;
}

}  // namespace foretoken
