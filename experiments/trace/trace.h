// An acceptance trace: what the rounds of one run drafted, what target and draft thought of it, what was accepted, and
// how long the steps took. This module holds the records, their file, and its reader; it must not know engines,
// verifiers, or what is computed from a trace.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/json_lines.h"
#include "framework/components/step_report.h"
#include "framework/decode/draft_tree.h"

namespace foretoken {

constexpr int kTraceSchema = 1;

// A node below the root of a drafted tree.
struct TracedNode {
  int parent = 0;
  Token token = -1;  // -1: absent
  Drawn drawn = Drawn::certain;
  double p = 0, q = 0;  // of its token after its parent: the target's and the draft's probability; q is 1 for a guess
  double accept = 0;    // with which recursive rejection accepts it, once its earlier siblings are rejected
};

// The probabilities of acceptance of one verifier, given a tree. reach[d - 1][i - 1]: that at least i tokens are
// accepted of the tree cut to d levels.
using Reach = std::vector<std::vector<double>>;

// One round of one sequence.
struct TracedRound {
  int request = 0;                 // index in Trace::requests
  int at = 0;                      // tokens generated before
  std::vector<TracedNode> nodes;   // node n of the tree is nodes[n - 1]
  std::map<int, double> overlap;   // sum_x min(p(x), q(x)) after each node of whose children one was drawn
  std::vector<int> path;           // accepted nodes, from below the root down
  std::vector<Token> emitted;      // kept tokens: the accepted ones, then the target's, cut where the sequence ended
  double p_next = 0, q_next = -1;  // of the last token of the verdict, after the last node of the path; q -1: no
                                   // child was drawn there
  std::map<std::string, Reach> reach;  // of the verifiers of the key /trace/verifiers

  int size() const { return int(nodes.size()) + 1; }
  const TracedNode& node(int n) const { return nodes[std::size_t(n) - 1]; }
};

// One step of the engine.
struct TracedStep {
  bool baseline = false;  // of the same engine without speculation: times alone
  int rows = 0;           // of the target's forward
  int prompt_rows = 0;    // of these: prompt tokens, and what the cache lacked
  int judged = 0;         // sequences that had a round
  int depth = 0;          // the most levels of a tree
  Phases phases;          // seconds, without the time that recording took
  std::vector<TracedRound> rounds;
};

struct TracedRequest {
  int prompt = 0;  // its number
  std::string category;
  int prompt_tokens = 0;
  int max_new_tokens = 0;  // before the target's context cuts it
};

struct Trace {
  nlohmann::json header;  // "run", "key", "commit", "machine", "sources", ... as a result line has them
  std::vector<TracedRequest> requests;
  std::vector<TracedStep> steps;

  const nlohmann::json& run() const { return header.at("run"); }
  // Whether a tree was drafted at every position, and one token emitted a round.
  bool dense() const { return header.at("dense"); }
  bool race() const { return header.at("race"); }      // drafts and tokens were drawn by races
  bool learns() const { return header.at("learns"); }  // drafts may depend on earlier rounds and other requests
  std::optional<Budget> budget() const;  // the most that its policy gave; absent where the policy does not say
  double temperature() const { return run().at("sampling").at("temperature"); }
  int batch() const { return run().at("engine").at("batch"); }
  int most_tokens(int request) const;  // that the request may generate
  // The rounds of every request, in order.
  std::vector<std::vector<const TracedRound*>> by_request() const;
  std::size_t rounds() const;
};

// The kind of a trace's lines.
const LineKind& trace_lines();

// Writes a trace, a whole line a step. A file that holds another trace is renamed to FILE.1, or the next free number;
// one that holds something else is an Error.
class TraceWriter {
 public:
  // `header`: the fields of Trace::header; a trace's schema and requests are added.
  TraceWriter(const std::filesystem::path& file, nlohmann::json header, const std::vector<TracedRequest>& requests);
  void append(const TracedStep& step);
  // `failed`: indices of requests that failed; read_trace() leaves them out. Without a call the trace counts as
  // incomplete.
  void close(const std::set<int>& failed = {});

 private:
  JsonLinesFile file_;
  std::size_t steps_ = 0, rounds_ = 0;
};

// A trace that is damaged, incomplete, or two in one file is an Error, one sentence.
Trace read_trace(const std::filesystem::path& file);

// Numbers have nine significant digits.
nlohmann::json to_json(const TracedStep& step);

// A step of a trace with these requests. What no recorder writes is an Error that begins with `where`.
TracedStep step_of(const nlohmann::json& line, std::size_t requests, bool dense, const std::string& where);

}  // namespace foretoken
