// What another draft length, shape, policy or verifier would have given on a dense trace, without a model: the rounds
// that a run would have had are walked along the recorded outputs. experiments/traces.md has the formulas. This module
// must not know verifiers by name.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "experiments/report/statistics.h"
#include "experiments/trace/trace.h"
#include "framework/components/registry.h"
#include "framework/components/verifier.h"

namespace foretoken {

// A node as the ranks from the root down to it: {0, 2} is the third child of the first child.
using RankPath = std::vector<int>;

struct TreeCut {
  static constexpr int kAllLevels = kMaxPath + 1, kAllNodes = kMaxNodes + 1;
  // As of a Budget: levels first, then nodes in breadth-first order, the root among them.
  int depth = kAllLevels, nodes = kAllNodes;
  std::set<RankPath> shape{};  // nodes that are kept; empty: all
};

// The part of one recorded tree that a cut leaves.
struct CutTree {
  std::vector<int> nodes;  // their numbers in the recorded tree, parents before children, without the root
  std::vector<int> level;  // of each
  int depth = 0;
  bool chain = true;         // no node has siblings
  bool whole_levels = true;  // every node of each level is there
  int rows() const { return int(nodes.size()) + 1; }
};
CutTree cut_of(const TracedRound& round, const TreeCut& cut);

// What the trees of a trace have in common.
struct TracedShape {
  std::set<RankPath> nodes;  // of any tree
  int depth = 0;
  Budget budget;  // of the policy that drafted them, or what they have where that is not known
  // Whether every tree has all of these nodes down to its own depth. Else the shape depends on more than the depth, and
  // a smaller budget might have given other nodes.
  bool fixed = true;
};
TracedShape shape_of(const Trace& trace);

// Throws Error, one sentence, where a cut asks for more than the budget allowed, or what it leaves is not known.
void expect_inside(const TracedShape& shape, const TreeCut& cut, const std::string& who);

// Medians of measured times by a whole number, straight lines between them, an Error outside.
class TimesBy {
 public:
  // `what` of messages: "rows"
  explicit TimesBy(std::string what) : what_(std::move(what)) {}
  void add(int number, double seconds) { measured_[number].push_back(seconds), medians_.clear(); }
  bool empty() const { return measured_.empty(); }
  double at(int number) const;
  // |measured - at()| / at(), of every measurement.
  std::vector<double> errors() const;

 private:
  const std::map<int, double>& medians() const;

  std::string what_;
  std::map<int, std::vector<double>> measured_;
  mutable std::map<int, double> medians_;  // of `measured_`; empty: to be computed
};

// How long a step takes, from the steps of traces: of the target by the rows of its forward, of drafting by levels, at
// the batch of the trace.
class CostTable {
 public:
  // Takes those steps of a trace in which as many sequences ran as its batch, and no prompt was read.
  explicit CostTable(const Trace& trace);
  // Those of another trace, too. One of another target, drafter, device or batch is an Error that names `file`.
  void add(const Trace& other, const std::string& file);

  // Seconds of a step in which every sequence of the batch has a tree of `rows` nodes and `depth` levels. One outside
  // of what was measured is an Error, since times are not extrapolated.
  double round(int rows, int depth) const;
  // Of a step of plain decoding.
  double plain() const;
  // The median relative deviation of a measured step from the table.
  double error() const;
  std::size_t steps() const { return steps_; }

 private:
  void take(const Trace& trace);

  nlohmann::json origin_;  // what traces must have in common
  int batch_;
  TimesBy target_{"rows"}, draft_{"levels"}, plain_{"sequences"};
  std::size_t steps_ = 0;
};

// What a replayed figure stands on.
enum class Basis {
  exact,         // what a run of the same requests does: its rounds are these
  given_output,  // probabilities given the output that the target wrote: no bias, other draws than a run's
  expectation    // probabilities given the recorded trees, taken as independent of the output that follows
};
const char* name_of(Basis basis);

// The rounds of one request of a dense trace: round t begins after t generated tokens and emits the next.
using TracedOutput = std::span<const TracedRound* const>;

// With which probability a verifier would have accepted how much of a round of a trace. Formulas are those that a
// verifier states (Soundness::acceptance).
class RoundReach {
 public:
  // `verifier`: its name, for messages and for recorded acceptance. Drafts that it does not take, or that it would have
  // had drawn otherwise, are an Error; so is a lossy one of a dense trace, whose output would be another.
  RoundReach(const Trace& trace, std::string verifier, const Soundness& soundness);

  // The basis of reach() for a cut; an Error where nothing in the trace answers it.
  Basis basis(const TreeCut& cut) const;
  // reach[i - 1]: the probability that at least i tokens are accepted of round t of a dense trace.
  std::vector<double> reach(TracedOutput output, std::size_t t, const CutTree& tree, Basis basis) const;
  // The same given the tree alone.
  std::vector<double> reach_given_tree(const TracedRound& round, const CutTree& tree) const;
  // The nodes of the tree that such a round accepts where it accepts so many. Where not even their tokens are known,
  // the first path of as many levels.
  std::vector<int> path(TracedOutput output, std::size_t t, const CutTree& tree, int accepted) const;

 private:
  // The part of the tree that the verifier looks at.
  CutTree judged(const TracedRound& round, const CutTree& tree) const;
  bool has_formula(const CutTree& tree) const;
  bool finds_matches(const TracedRound& round, const CutTree& tree) const;

  const Trace& trace_;
  std::string verifier_;
  Soundness soundness_;
};

// The mean of quotients by prompt, within these bounds.
Interval over_prompts(const std::map<int, Term>& by_prompt, double least, double most);

struct Replayed {
  std::string what, verifier;  // "length 4"; the verifier's name
  Basis basis = Basis::exact;
  double rows = 0;                // of the target's forward, the most of a round and sequence
  double tokens = 0, rounds = 0;  // expected, of all requests
  Interval tau = Interval::unknown(), speedup = Interval::unknown();  // over prompts
  std::string untimed = {};  // why there is no speedup; empty where there is one
};

class Replay {
 public:
  // A trace that is not dense, or whose policy ended drafts by their confidence, is an Error. All arguments must
  // outlive this object.
  Replay(const Trace& trace, const CostTable& costs, const Registries& registries);

  const TracedShape& shape() const { return shape_; }
  // A draft that is cut in every round.
  Replayed cut(const std::string& what, const TreeCut& cut, const std::string& verifier) const;
  // The best number of levels in every round, known only afterwards: of all that follow, the one with the least
  // expected time. For rules that decide from the root down or along a chain, of which a longer draft changes no
  // earlier level.
  Replayed oracle(const TreeCut& cut, const std::string& verifier) const;
  // A length policy, asked before every round as an engine asks it. Where rounds are probabilities, the mean of walks
  // that draw them.
  Replayed policy(const nlohmann::json& config, const std::string& verifier) const;

 private:
  struct Sums {  // of one request
    double rounds = 0, seconds = 0;
  };
  struct Rule {
    RoundReach reach;
    Basis basis;
  };
  Soundness soundness_of(const std::string& verifier) const;
  Sums walk(TracedOutput output, const TreeCut& cut, const Rule& rule, bool timed) const;
  Sums best_walk(TracedOutput output, const TreeCut& cut, const Rule& rule) const;
  Sums follow(TracedOutput output, LengthPolicy& policy, const Budget& stated, const Rule& rule, std::uint64_t number,
              bool timed) const;
  template <class Walk> Replayed all(Replayed row, const Walk& walk) const;
  std::string untimed(const TreeCut& cut) const;

  const Trace& trace_;
  const CostTable& costs_;
  const Registries& registries_;
  std::vector<std::vector<const TracedRound*>> outputs_;
  TracedShape shape_;
};

// Which of several verifiers accepts more of the same rounds: their acceptance as it was recorded (/trace/verifiers),
// of one trace, or of several with the same outputs and other drafts.

// One verifier on the trees of one trace.
struct Accepting {
  std::string verifier, file;
  Interval accepted = Interval::unknown();  // expected accepted tokens of a round; intervals over prompts
};

// Two of them on the same contexts.
struct Order {
  std::size_t first = 0, second = 0;    // indices in Orders::accepting
  long rounds = 0, more = 0, less = 0;  // in which the first is expected to accept more, or less
  Interval gain = Interval::unknown();  // mean difference, tokens of a round
};

struct Orders {
  std::vector<Accepting> accepting;
  std::vector<Order> pairs;
};

struct NamedTrace {
  std::string file;
  const Trace* trace = nullptr;
};
// Traces without recorded acceptance, or with other requests or outputs than the first, are an Error.
Orders orders_of(const std::vector<NamedTrace>& traces);

struct ReplayReport {
  std::string file;
  const Trace* trace = nullptr;
  std::vector<Replayed> rows;
  Orders orders;
  double cost_error = 0;  // CostTable::error()
  std::size_t cost_steps = 0;
};

// Tables and JSON of `foretoken replay`. `format`: terminal, markdown, csv or json.
std::string replay_report(const ReplayReport& report, const std::string& format, int width);

}  // namespace foretoken
