#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "experiments/trace/trace.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

constexpr std::array kDrawn{Drawn::certain, Drawn::chain, Drawn::independent, Drawn::without_replacement,
                            Drawn::marginals};
constexpr double kAbove = 1 + 1e-6;  // a probability, with the rounding of sums

// With nine significant digits, which keeps a line short.
double rounded(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", x);
  return std::strtod(text, nullptr);
}

json rounded(const std::vector<double>& numbers) {
  json list = json::array();
  for (const double x : numbers) list.push_back(rounded(x));
  return list;
}

template <class T, class F> json column(const std::vector<T>& nodes, const F& of) {
  json list = json::array();
  for (const T& n : nodes) list.push_back(of(n));
  return list;
}

// One name where all nodes are drawn alike.
json drawn_of(const std::vector<TracedNode>& nodes) {
  const bool alike = std::ranges::all_of(nodes, [&](const TracedNode& n) { return n.drawn == nodes[0].drawn; });
  return alike ? json(name_of(nodes[0].drawn)) : column(nodes, [](const TracedNode& n) { return name_of(n.drawn); });
}

json to_json(const TracedRound& r) {
  json line{{"request", r.request}, {"at", r.at}, {"emitted", r.emitted}, {"next", {rounded(r.p_next)}}};
  if (r.q_next >= 0) line["next"].push_back(rounded(r.q_next));
  if (!r.path.empty()) line["path"] = r.path;
  if (r.nodes.empty()) return line;
  line["parents"] = column(r.nodes, [](const TracedNode& n) { return n.parent; });
  line["tokens"] = column(r.nodes, [](const TracedNode& n) { return n.token; });
  line["drawn"] = drawn_of(r.nodes);
  line["p"] = column(r.nodes, [](const TracedNode& n) { return rounded(n.p); });
  if (line["drawn"] != name_of(Drawn::certain))
    line["q"] = column(r.nodes, [](const TracedNode& n) { return rounded(n.q); });
  line["accept"] = column(r.nodes, [](const TracedNode& n) { return rounded(n.accept); });
  for (const auto& [node, overlap] : r.overlap) line["overlap"].push_back({node, rounded(overlap)});
  for (const auto& [verifier, reach] : r.reach)
    line["reach"][verifier] = column(reach, [](const std::vector<double>& level) { return rounded(level); });
  return line;
}

// Reads the fields of one line; what no recorder writes is an Error.
class LineFields {
 public:
  LineFields(const json& line, const std::string& where) : line_(line), where_(where) {}

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(where_ + ": " + why + "; the trace is damaged, record it again");
  }
  void expect(bool holds, const std::string& why) const {
    if (!holds) refuse(why);
  }
  int count(const char* key, int most) const {
    expect(line_.contains(key), std::string("a field '") + key + "' is missing");
    return whole(line_[key], 0, most, key);
  }
  int whole(const json& value, int least, int most, const char* key) const {
    if (!value.is_number_integer() || value < least || value > most)
      refuse("'" + std::string(key) + "' holds " + shown(value) + ", not an integer from " + std::to_string(least) +
             " to " + std::to_string(most));
    return value.get<int>();
  }
  double number(const json& value, double most, const char* key) const {
    if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= most))
      refuse("'" + std::string(key) + "' holds " + shown(value) + ", which is out of its range");
    return value.get<double>();
  }
  // Absent: empty.
  json list(const char* key) const {
    const json value = line_.value(key, json::array());
    expect(value.is_array(), "'" + std::string(key) + "' is " + shown(value) + ", not a list");
    return value;
  }
  json list(const char* key, std::size_t size) const {
    const json value = list(key);
    expect(value.size() == size,
           "'" + std::string(key) + "' has " + std::to_string(value.size()) + " entries, not " + std::to_string(size));
    return value;
  }
  const json& line() const { return line_; }

 private:
  const json& line_;
  const std::string& where_;
};

constexpr int kMostToken = 1 << 30;

Drawn drawn_of(const LineFields& f, const json& name) {
  const auto found = std::ranges::find_if(kDrawn, [&](Drawn d) { return name == name_of(d); });
  f.expect(found != kDrawn.end(), "'drawn' names " + shown(name) + ", which is no way to draw a node");
  return *found;
}

std::vector<TracedNode> nodes_of(const LineFields& f) {
  const json parents = f.list("parents");
  const std::size_t n = parents.size();
  f.expect(n < std::size_t(kMaxNodes), "a tree has " + std::to_string(n + 1) + " nodes");
  const json tokens = f.list("tokens", n), p = f.list("p", n), accept = f.list("accept", n);
  const json drawn = f.line().value("drawn", json());
  const bool guesses = drawn == name_of(Drawn::certain);
  const json q = guesses || n == 0 ? json::array() : f.list("q", n);
  f.expect(n == 0 || drawn.is_string() || (drawn.is_array() && drawn.size() == n), "'drawn' names not every node");
  std::vector<TracedNode> nodes;
  std::vector<int> depth{0};
  for (std::size_t i = 0; i < n; ++i) {
    const int parent = f.whole(parents[i], 0, int(i), "parents");
    depth.push_back(depth[std::size_t(parent)] + 1);
    f.expect(depth.back() <= kMaxPath, "a tree is " + std::to_string(depth.back()) + " levels deep");
    nodes.push_back({parent, f.whole(tokens[i], -1, kMostToken, "tokens"),
                     drawn_of(f, drawn.is_array() ? drawn[i] : drawn), f.number(p[i], kAbove, "p"),
                     guesses ? 1 : f.number(q[i], kAbove, "q"), f.number(accept[i], kAbove, "accept")});
  }
  return nodes;
}

std::vector<int> path_of(const LineFields& f, const TracedRound& round) {
  std::vector<int> path;
  for (const json& entry : f.list("path")) {
    const int node = f.whole(entry, 1, int(round.nodes.size()), "path");
    f.expect(round.node(node).parent == (path.empty() ? 0 : path.back()),
             "'path' goes to the node " + std::to_string(node) + ", which is no child of the one before");
    path.push_back(node);
  }
  return path;
}

std::size_t depth_of(const TracedRound& round) {
  std::vector<std::size_t> depth{0};
  for (const TracedNode& n : round.nodes) depth.push_back(depth[std::size_t(n.parent)] + 1);
  return *std::ranges::max_element(depth);
}

Reach reach_of(const LineFields& f, const json& levels, std::size_t depth) {
  f.expect(levels.is_array() && levels.size() == depth, "'reach' is no list of the levels of its tree");
  Reach reach;
  for (const json& level : levels) {
    std::vector<double>& row = reach.emplace_back();
    f.expect(level.is_array() && level.size() == reach.size(), "'reach' has levels of another size than their depth");
    for (const json& x : level) row.push_back(f.number(x, kAbove, "reach"));
  }
  return reach;
}

TracedRound round_of(const json& line, std::size_t requests, bool dense, const std::string& where) {
  const LineFields f(line, where);
  f.expect(line.is_object(), "a round is " + shown(line) + ", not an object");
  TracedRound r;
  r.request = f.count("request", int(requests) - 1), r.at = f.count("at", kMostToken);
  r.nodes = nodes_of(f);
  for (const json& pair : f.list("overlap")) {
    f.expect(pair.is_array() && pair.size() == 2, "'overlap' holds " + shown(pair) + ", not a node and a number");
    r.overlap[f.whole(pair[0], 0, int(r.nodes.size()), "overlap")] = f.number(pair[1], kAbove, "overlap");
  }
  r.path = path_of(f, r);
  for (const json& token : f.list("emitted")) r.emitted.push_back(f.whole(token, 0, kMostToken, "emitted"));
  f.expect(!r.emitted.empty() && r.emitted.size() <= r.path.size() + 1,
           "a round emitted " + std::to_string(r.emitted.size()) + " tokens, which its path does not allow");
  f.expect(!dense || r.path.empty(), "a round of a dense trace accepted a draft");
  const json next = f.list("next");
  f.expect(next.size() == 1 || next.size() == 2, "'next' holds neither p nor p and q");
  r.p_next = f.number(next[0], kAbove, "next");
  if (next.size() == 2) r.q_next = f.number(next[1], kAbove, "next");
  const json reach = line.value("reach", json::object());
  f.expect(reach.is_object(), "'reach' is " + shown(reach) + ", not an object");
  for (const auto& [verifier, levels] : reach.items()) r.reach[verifier] = reach_of(f, levels, depth_of(r));
  return r;
}

}  // namespace

json to_json(const TracedStep& s) {
  const Phases& p = s.phases;
  const std::vector<double> phases{p.schedule, p.draft_forward, p.draft_other, p.target_forward,
                                   p.verify,   p.deliver,       p.total};
  json line{{"rows", s.rows}, {"judged", s.judged}, {"phases", rounded(phases)}};
  if (s.baseline) line["baseline"] = true;
  if (s.prompt_rows > 0) line["prompt_rows"] = s.prompt_rows;
  if (s.depth > 0) line["depth"] = s.depth;
  for (const TracedRound& r : s.rounds) line["rounds"].push_back(to_json(r));
  return line;
}

TracedStep step_of(const json& line, std::size_t requests, bool dense, const std::string& where) {
  const LineFields f(line, where);
  TracedStep s;
  s.baseline = line.value("baseline", json(false)) == true;
  s.rows = f.count("rows", kMostToken), s.judged = f.count("judged", kMostToken);
  s.prompt_rows = line.contains("prompt_rows") ? f.count("prompt_rows", s.rows) : 0;
  s.depth = line.contains("depth") ? f.count("depth", kMaxPath) : 0;
  const json phases = f.list("phases", 7);
  double Phases::* const fields[] = {&Phases::schedule,       &Phases::draft_forward, &Phases::draft_other,
                                     &Phases::target_forward, &Phases::verify,        &Phases::deliver,
                                     &Phases::total};
  for (std::size_t i = 0; i < 7; ++i) {
    f.expect(phases[i].is_number() && std::isfinite(phases[i].get<double>()), "a phase is no number of seconds");
    s.phases.*fields[i] = phases[i].get<double>();
  }
  for (const json& round : f.list("rounds")) s.rounds.push_back(round_of(round, requests, dense, where));
  f.expect(s.baseline || int(s.rounds.size()) == s.judged, "'judged' is not the number of rounds");
  return s;
}

}  // namespace foretoken
