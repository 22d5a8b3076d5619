#include "experiments/trace/trace.h"

#include <algorithm>
#include <cstdio>

#include "experiments/report/results.h"
#include "experiments/report/terminal.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

constexpr const char* kAgain = "; the trace is damaged, record it again";

// `again`: what to do about a line that is damaged or of another version.
void check_line(const json& line, const std::string& where, const std::string& again) {
  if (!line.is_object() || !line.contains("trace"))
    throw Error(where + ": not a line of an acceptance trace; name a file that a run with the key \"trace\" wrote");
  if (line["trace"] != kTraceSchema)
    throw Error(where + ": a trace of schema " + shown(line["trace"]) + ", while this version reads " +
                std::to_string(kTraceSchema) + "; " + again);
  if (!line.contains("line") || !line["line"].is_string())
    throw Error(where + ": a line of a trace without its kind; the trace is damaged, " + again);
}

LineKind trace_kind(const std::string& again) {
  LineKind kind{"traces of `foretoken run`",
                {"trace", "line"},
                "{\"trace\":" + std::to_string(kTraceSchema) + ",\"line\":\"",
                [again](const json& line, const std::string& where) { check_line(line, where, again); }};
  kind.file = "trace", kind.holds = "a trace", kind.remedy = again + ", or name another file";
  kind.choose = "name another file in /trace/file";
  kind.busy = "it is open already, as the file of results or by another process; " + kind.choose;
  kind.full = "make room and start the run again: its trace is recorded anew";
  return kind;
}

void expect(bool holds, const std::string& where, const std::string& why) {
  if (!holds) throw Error(where + ": " + why + kAgain);
}

// Traces from before lengths were drawn have no fourth number: the run's own.
bool is_request(const json& r) {
  return r.is_array() && (r.size() == 3 || r.size() == 4) && r[0].is_number_integer() && r[1].is_string() &&
         r[2].is_number_integer() && (r.size() == 3 || (r[3].is_number_integer() && r[3] >= 1 && r[3] <= 1 << 30));
}

void read_header(const json& line, const std::string& where, Trace& trace) {
  expect(line["line"] == "header", where, "the first line of a trace must be its header");
  const json run = line.value("run", json());
  expect(run.is_object() && line.value("key", json()) == key_of(run), where, "the header's run is not that of its key");
  for (const char* flag : {"dense", "race", "learns"})
    expect(line.contains(flag) && line[flag].is_boolean(), where, std::string("the header lacks '") + flag + "'");
  const auto holds = [&](const char* pointer, const auto& is) {
    const json::json_pointer at(pointer);
    expect(line.contains(at) && is(line[at]), where, std::string("the header lacks '") + (pointer + 1) + "'");
  };
  holds("/run/sampling/temperature", [](const json& v) { return v.is_number() && v >= 0; });
  holds("/run/engine/batch", [](const json& v) { return v.is_number_integer() && v >= 1 && v <= 1 << 20; });
  for (const char* size : {"/run/workload/max_new_tokens", "/positions"})
    holds(size, [](const json& v) { return v.is_number_integer() && v >= 1 && v <= 1 << 30; });
  for (const char* name : {"/run/drafter/name", "/run/verifier/name"})
    holds(name, [](const json& v) { return v.is_string(); });
  const json budget = line.value("budget", json());
  const auto size = [](const json& v, int most) { return v.is_number_integer() && v >= 0 && v <= most; };
  expect(budget.is_null() ||
             (budget.is_array() && budget.size() == 2 && size(budget[0], kMaxNodes) && size(budget[1], kMaxPath)),
         where, "the header's 'budget' is " + shown(budget));
  const json requests = line.value("requests", json());
  expect(requests.is_array() && !requests.empty(), where, "the header lists no requests");
  for (const json& r : requests) {
    expect(is_request(r), where, "the header lists " + shown(r) + " among its requests");
    trace.requests.push_back({r[0].get<int>(), r[1].get<std::string>(), r[2].get<int>(),
                              r.size() > 3 ? r[3].get<int>() : run["workload"]["max_new_tokens"].get<int>()});
  }
  trace.header = line;
}

void leave_out(Trace& trace, const std::set<int>& failed) {
  std::vector<int> number;  // of each request among those that are kept
  std::vector<TracedRequest> kept;
  for (int i = 0; i < int(trace.requests.size()); ++i) {
    number.push_back(int(kept.size()));
    if (!failed.contains(i)) kept.push_back(trace.requests[std::size_t(i)]);
  }
  for (TracedStep& s : trace.steps) {
    std::erase_if(s.rounds, [&](const TracedRound& r) { return failed.contains(r.request); });
    for (TracedRound& r : s.rounds) r.request = number[std::size_t(r.request)];
  }
  trace.requests = std::move(kept);
}

void read_end(const json& line, const std::string& where, Trace& trace) {
  expect(line.value("steps", json()) == trace.steps.size() && line.value("rounds", json()) == trace.rounds(), where,
         "lines are missing");
  std::set<int> failed;
  const json listed = line.value("failed", json::array());
  const auto names = [&](const json& v) {
    return v.is_number_integer() && v >= 0 && v < trace.requests.size() && failed.insert(v.get<int>()).second;
  };
  expect(listed.is_array() && std::ranges::all_of(listed, names), where, "'failed' is " + shown(listed));
  if (failed.size() == trace.requests.size())
    throw Error(where + ": all requests failed while this trace was recorded; see \"error\" or \"failures\" of its " +
                "run's result, and record it again");
  if (!failed.empty()) leave_out(trace, failed);
}

// Every round of a request begins where the one before ended.
void expect_continuous(const Trace& trace, const std::string& file) {
  std::size_t request = 0;
  for (const auto& rounds : trace.by_request()) {
    int at = 0;
    for (const TracedRound* r : rounds) {
      expect(r->at == at, file,
             "a round of request " + std::to_string(request) + " begins after " + std::to_string(r->at) +
                 " tokens, but the round before ended after " + std::to_string(at));
      at += int(r->emitted.size());
    }
    expect(at > 0, file, "request " + std::to_string(request) + " has no round");
    ++request;
  }
}

std::filesystem::path begun(const std::filesystem::path& file) {
  if (const auto older = set_aside(file, trace_kind("move it elsewhere")); !older.empty())
    std::fprintf(stderr, "foretoken: an older trace is now in %s\n", one_line(older.string()).c_str());
  return file;
}

json line_of(const char* kind, json fields = json::object()) {
  fields["trace"] = kTraceSchema, fields["line"] = kind;
  return fields;
}

}  // namespace

std::vector<std::vector<const TracedRound*>> Trace::by_request() const {
  std::vector<std::vector<const TracedRound*>> all(requests.size());
  for (const TracedStep& s : steps)
    for (const TracedRound& r : s.rounds) all[std::size_t(r.request)].push_back(&r);
  return all;
}

std::optional<Budget> Trace::budget() const {
  const json budget = header.value("budget", json());
  if (budget.is_null()) return std::nullopt;
  return Budget{budget.at(0), budget.at(1)};
}

int Trace::most_tokens(int request) const {
  const TracedRequest& asked = requests[std::size_t(request)];
  return std::min(asked.max_new_tokens, header.at("positions").get<int>() - asked.prompt_tokens);
}

std::size_t Trace::rounds() const {
  std::size_t all = 0;
  for (const TracedStep& s : steps) all += s.rounds.size();
  return all;
}

const LineKind& trace_lines() {
  static const LineKind kind = trace_kind("record it again");
  return kind;
}

TraceWriter::TraceWriter(const std::filesystem::path& file, json header, const std::vector<TracedRequest>& requests)
    : file_(begun(file), trace_lines()) {
  for (const TracedRequest& r : requests)
    header["requests"].push_back({r.prompt, r.category, r.prompt_tokens, r.max_new_tokens});
  file_.append(line_of("header", std::move(header)));
}

void TraceWriter::append(const TracedStep& step) {
  ++steps_, rounds_ += step.rounds.size();
  file_.append(line_of("step", to_json(step)));
}

void TraceWriter::close(const std::set<int>& failed) {
  json end{{"steps", steps_}, {"rounds", rounds_}};
  if (!failed.empty()) end["failed"] = failed;
  file_.append(line_of("end", std::move(end)));
}

Trace read_trace(const std::filesystem::path& file) {
  const JsonLines found = read_json_lines(file, trace_lines(), Pipes::opened);
  if (found.lines.empty())
    throw Error(file.string() + " is empty; name a file that a run with the key \"trace\" wrote");
  Trace trace;
  read_header(found.lines.front().value, file.string() + ":" + std::to_string(found.lines.front().number), trace);
  bool ended = false;
  for (std::size_t i = 1; i < found.lines.size(); ++i) {
    const auto& [number, line] = found.lines[i];
    const std::string where = file.string() + ":" + std::to_string(number);
    expect(!ended && line["line"] != "header", where, "here begins another trace");
    ended = line["line"] == "end";
    if (ended)
      read_end(line, where, trace);
    else
      trace.steps.push_back(step_of(line, trace.requests.size(), trace.dense(), where));
  }
  if (!ended) throw Error(file.string() + " has no end: its run was stopped while it was recorded; record it again");
  expect_continuous(trace, file.string());
  return trace;
}

}  // namespace foretoken
