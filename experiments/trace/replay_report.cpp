#include "experiments/trace/replay_report.h"

#include <cstdio>
#include <set>

#include "experiments/report/summary.h"
#include "experiments/report/table.h"

namespace foretoken {

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
