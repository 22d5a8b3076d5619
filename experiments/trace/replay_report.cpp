#include <cstdio>
#include <numeric>
#include <set>

#include "experiments/report/summary.h"
#include "experiments/report/table.h"
#include "experiments/trace/replay.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using Context = std::pair<int, int>;  // request, generated tokens
constexpr double kEqual = 1e-9;       // of expectations that differ by rounding

struct AcceptedBy {
  std::string verifier, file;
  std::map<Context, double> accepted;  // expected
};

// Without rounds in which nothing was drafted.
std::vector<AcceptedBy> columns_of(const NamedTrace& named) {
  std::set<std::string> names;
  for (const auto& step : named.trace->steps)
    for (const TracedRound& r : step.rounds)
      for (const auto& [name, reach] : r.reach) names.insert(name);
  std::vector<AcceptedBy> columns;
  for (const std::string& name : names) {
    AcceptedBy& column = columns.emplace_back(AcceptedBy{name, named.file, {}});
    for (const auto& step : named.trace->steps)
      for (const TracedRound& r : step.rounds)
        if (const auto found = r.reach.find(name); found != r.reach.end() && !found->second.empty()) {
          const std::vector<double>& whole = found->second.back();
          column.accepted[{r.request, r.at}] = std::accumulate(whole.begin(), whole.end(), 0.0);
        }
  }
  return columns;
}

void expect_same_outputs(const NamedTrace& a, const NamedTrace& b) {
  const auto of = [](const NamedTrace& t) {
    std::vector<std::vector<Token>> outputs;
    for (const auto& rounds : t.trace->by_request()) {
      outputs.emplace_back();
      for (const TracedRound* r : rounds)
        outputs.back().insert(outputs.back().end(), r->emitted.begin(), r->emitted.end());
    }
    return outputs;
  };
  if (!a.trace->dense() || !b.trace->dense() || of(a) != of(b))
    throw Error(b.file + " is a trace of other requests or outputs than " + a.file +
                "; record both densely, from one run document with other drafters or verifiers");
}

Interval over_contexts(const Trace& trace, const std::map<Context, double>& values, double least) {
  std::map<int, Term> by_prompt;
  for (const auto& [context, value] : values)
    by_prompt[trace.requests[std::size_t(context.first)].prompt] += {value, 1, 0, 0};
  return over_prompts(by_prompt, least, kMaxPath);
}

Order order_of(const Trace& trace, const std::vector<AcceptedBy>& columns, std::size_t first, std::size_t second) {
  Order order{.first = first, .second = second};
  std::map<Context, double> gains;
  for (const auto& [context, accepted] : columns[first].accepted) {
    const auto other = columns[second].accepted.find(context);
    if (other == columns[second].accepted.end()) continue;
    const double gain = accepted - other->second;
    gains[context] = gain;
    ++order.rounds, order.more += gain > kEqual, order.less += gain < -kEqual;
  }
  order.gain = over_contexts(trace, gains, -kMaxPath);
  return order;
}

}  // namespace

Orders orders_of(const std::vector<NamedTrace>& traces) {
  std::vector<AcceptedBy> columns;
  for (const NamedTrace& named : traces) {
    if (&named != &traces.front()) expect_same_outputs(traces.front(), named);
    std::vector<AcceptedBy> more = columns_of(named);
    if (more.empty())
      throw Error(named.file + " holds no verifier's acceptance; record it with names in /trace/verifiers");
    columns.insert(columns.end(), more.begin(), more.end());
  }
  const Trace& first = *traces.front().trace;
  Orders orders;
  for (const AcceptedBy& c : columns)
    orders.accepting.push_back({c.verifier, c.file, over_contexts(first, c.accepted, 0)});
  for (std::size_t a = 0; a < columns.size(); ++a)
    for (std::size_t b = a + 1; b < columns.size(); ++b) orders.pairs.push_back(order_of(first, columns, a, b));
  return orders;
}

using nlohmann::json;

namespace {

constexpr auto kInterval = Column::Kind::interval;
constexpr auto kText = Column::Kind::text;

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

std::string note_of(const ReplayReport& r) {
  const json& run = r.trace->run();
  const std::string times = r.cost_steps == 0
                                ? "No step was timed with a full batch and without prompts."
                                : "Times: medians of " + std::to_string(r.cost_steps) +
                                      " steps, from which a step deviates by " + percent(r.cost_error) + " (median).";
  return "Drafter " + run.at("drafter").at("name").get<std::string>() + ", temperature " +
         run.at("sampling").at("temperature").dump() + ", batch " + std::to_string(r.trace->batch()) + ", " +
         std::to_string(r.trace->requests.size()) + " requests. " + times;
}

Table replayed_table(const ReplayReport& r) {
  Table table{.title = "Replay of " + r.file, .note = note_of(r), .columns = {}, .rows = {}};
  table.columns = {
      {"what", "what", "the draft of every round", kText},
      {"verifier", "verifier", "", kText},
      {"rows", "rows", "of the target's forward, the most of a round and sequence"},
      {"basis", "basis",
       "exact: the rounds that a run of these requests has; given output: probabilities given what the target wrote, "
       "for other draws; expectation: probabilities given the recorded trees, as if independent of what was written",
       kText},
      {"tau", "tau", "tokens per round, with the 95 % interval over prompts", kInterval},
      {"speedup", "speedup", "predicted, over plain decoding, by the table of times", kInterval}};
  for (const Replayed& row : r.rows)
    table.rows.push_back({{Cell::of(row.what), Cell::of(row.verifier), Cell::of(row.rows, 0),
                           Cell::of(name_of(row.basis)), Cell::of(row.tau, 3), Cell::of(row.speedup, 2)},
                          "",
                          false});
  return table;
}

std::string label(const Orders& orders, std::size_t i) {
  std::set<std::string> files;
  for (const Accepting& a : orders.accepting) files.insert(a.file);
  const Accepting& a = orders.accepting[i];
  return files.size() > 1 ? a.verifier + " (" + a.file + ")" : a.verifier;
}

Table accepting_table(const Orders& orders) {
  Table table{.title = "Expected accepted tokens of a round, given its tree", .note = "", .columns = {}, .rows = {}};
  table.columns = {{"verifier", "verifier", "", kText},
                   {"accepted", "accepted", "with the 95 % interval over prompts", kInterval}};
  for (std::size_t i = 0; i < orders.accepting.size(); ++i)
    table.rows.push_back({{Cell::of(label(orders, i)), Cell::of(orders.accepting[i].accepted, 4)}, "", false});
  return table;
}

Table orders_table(const Orders& orders) {
  Table table{.title = "Orders, round by round", .note = "", .columns = {}, .rows = {}};
  table.columns = {{"first", "first", "", kText},
                   {"second", "second", "", kText},
                   {"rounds", "rounds", "contexts that both have"},
                   {"more", "more", "of these, in which the first is expected to accept more"},
                   {"less", "less", "and less"},
                   {"gain", "gain", "mean difference, tokens of a round", kInterval}};
  for (const Order& o : orders.pairs)
    table.rows.push_back(
        {{Cell::of(label(orders, o.first)), Cell::of(label(orders, o.second)), Cell::of(double(o.rounds), 0),
          Cell::of(double(o.more), 0), Cell::of(double(o.less), 0), Cell::of(o.gain, 4)},
         "",
         false});
  return table;
}

json as_json(const ReplayReport& r) {
  json all{{"trace", r.file},
           {"run", r.trace->run()},
           {"cost", {{"steps", r.cost_steps}, {"error", finite(r.cost_error)}}},
           {"replayed", json::array()},
           {"accepting", json::array()},
           {"orders", json::array()}};
  for (const Replayed& row : r.rows) {
    json one{{"what", row.what},        {"verifier", row.verifier},       {"basis", name_of(row.basis)},
             {"rows", row.rows},        {"tokens", row.tokens},           {"rounds", finite(row.rounds)},
             {"tau", to_json(row.tau)}, {"speedup", to_json(row.speedup)}};
    if (!row.untimed.empty()) one["untimed"] = row.untimed;
    all["replayed"].push_back(std::move(one));
  }
  for (const Accepting& a : r.orders.accepting)
    all["accepting"].push_back({{"verifier", a.verifier}, {"trace", a.file}, {"accepted", to_json(a.accepted)}});
  for (const Order& o : r.orders.pairs)
    all["orders"].push_back({{"first", label(r.orders, o.first)},
                             {"second", label(r.orders, o.second)},
                             {"rounds", o.rounds},
                             {"more", o.more},
                             {"less", o.less},
                             {"gain", to_json(o.gain)}});
  return all;
}

std::string untimed_lines(const std::vector<Replayed>& rows) {
  std::set<std::string> reasons;
  for (const Replayed& row : rows)
    if (!row.untimed.empty()) reasons.insert(row.untimed);
  std::string text;
  for (const std::string& reason : reasons) text += "\nNo speedup: " + reason + ".\n";
  return text;
}

}  // namespace

std::string replay_report(const ReplayReport& r, const std::string& format, int width) {
  if (format == "json") return as_json(r).dump(2) + "\n";
  std::vector<Table> tables;
  if (!r.rows.empty()) tables.push_back(replayed_table(r));
  if (!r.orders.accepting.empty())
    tables.push_back(accepting_table(r.orders)), tables.push_back(orders_table(r.orders));
  std::string text;
  for (const Table& table : tables)
    text += (text.empty() ? "" : "\n") + (format == "csv"        ? table.csv()
                                          : format == "markdown" ? table.markdown()
                                                                 : table.terminal(width));
  if (format == "csv") return text;
  return text + untimed_lines(r.rows) + "\n" + legend(tables, width, format == "markdown");
}

}  // namespace foretoken
