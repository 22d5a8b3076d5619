#include <algorithm>
#include <cmath>
#include <optional>

#include "drafters/policies/cost_model.h"
#include "experiments/report/report.h"
#include "experiments/report/statistics.h"
#include "experiments/report/tables.h"
#include "experiments/report/tree_counts.h"
#include "experiments/session/measured_pair.h"
#include "framework/decode/draft_tree.h"

namespace foretoken {
namespace {

using nlohmann::json;

constexpr int kPlaces = 12;  // shown side by side; JSON has all

// The run without what may differ between runs that are taken together.
json comparable(json run) {
  run["drafter"].erase("shape");
  for (const char* group : {"policy", "measure", "trace"}) run.erase(group);
  return run;
}

// All lines that are taken together.
struct Taken {
  std::vector<const Result*> results;
  ChildAcceptance children;
  std::vector<StepsOfRows> steps;
  int untimed = 0;     // runs without step times, since they accept a busy machine
  double context = 0;  // positions of a sequence in the middle of its output, on average
  const json& run() const { return results.front()->run; }
};

// Nodes that are there only where the draft was sure say nothing of a tree that has them always.
void expect_every_node(const json& run) {
  const json confidence = run.value("/policy/confidence"_json_pointer, json());
  if (confidence.is_number() && confidence > 0)
    throw Error(
        "the results have runs whose policy ends drafts by its confidence, from which no tree shape follows; "
        "choose others with --where /policy/confidence=null");
}

// Of the requests of one side.
double mean_context(const SideRecord& side) {
  double sum = 0;
  for (const RequestRecord& r : side.requests) sum += double(r.prompt_tokens) + double(r.tokens) / 2;
  return side.requests.empty() ? 0 : sum / double(side.requests.size());
}

// Of several lines with one key the last counts, as in tables.
Taken taken(const std::vector<Result>& results, const std::vector<std::string>& where) {
  std::vector<Condition> conditions;
  for (const std::string& given : where) conditions.push_back(Condition::read(given));
  Taken t;
  for (const Result* result : latest(results)) {
    if (result->failed() || !result->run.contains("/drafter/shape"_json_pointer)) continue;
    if (!std::ranges::all_of(conditions, [&](const Condition& c) { return c.met(result->run); })) continue;
    t.results.push_back(result);
  }
  if (t.results.empty())
    throw Error(std::string("the results have no run of a drafter with a tree of a fixed shape (\"shape\"), as ") +
                "draft_tree" + (where.empty() ? "" : ", that agrees with --where") +
                "; `foretoken run experiments/configs/trees.json` writes some");
  double contexts = 0;
  for (const Result* result : t.results) {
    expect_alike(comparable(t.run()), comparable(result->run));
    expect_every_node(result->run);
    const bool timed = !accepts_busy(result->run);
    if (!timed) ++t.untimed;
    for (const Alternation& repeat : result->repeats) {
      if (!t.children.add(repeat.speculative))
        throw Error("the run " + result->key +
                    " does not say which children were accepted; measure it again into another file");
      contexts += mean_context(repeat.speculative) / double(result->repeats.size());
      if (!timed) continue;
      add_steps(repeat.speculative, t.steps);
      add_steps(repeat.baseline, t.steps);
    }
  }
  t.context = contexts / double(t.results.size());
  if (const double rounds = t.children.at_all_levels(0).offered; rounds < ChildAcceptance::kEnough)
    throw Error("the results test a first child " + std::to_string(long(rounds)) + " times, but " +
                std::to_string(long(ChildAcceptance::kEnough)) +
                " are needed; raise /workload/limit or /workload/max_new_tokens");
  return t;
}

// The best tree of at most so many nodes.
struct Choice {
  int nodes = 1, levels = 0;
  double tau = 1, seconds = kUnknown, rate = seconds;  // rate: tokens per second
  bool beyond = false;                                 // more rows than any measured step
};

// What a step takes in which every sequence has a tree of so many nodes and levels: as the steps of the results took,
// or as costs say that are given.
class TreeSteps {
 public:
  TreeSteps(const Taken& t, const TreeShapeOptions& o)
      : fitted_(o.costs ? StepTimes() : fitted(t.steps)), costs_(o.costs), context_(t.context) {}

  bool known() const { return costs_ || fitted_.known(); }
  bool given() const { return costs_.has_value(); }
  double sequences() const { return costs_ ? costs_->batch : fitted_.sequences; }
  double seconds(int nodes, int levels) const {
    return costs_ ? costs_->model->seconds(shape(nodes, levels)) : fitted_.seconds(nodes, levels);
  }
  // More rows than any measured step, or, of costs, a step outside of them in any way.
  bool beyond(int nodes, int levels) const {
    if (costs_) return costs_->model->beyond(shape(nodes, levels));
    return fitted_.sequences * nodes > fitted_.most_rows * 1.01;
  }
  std::string note(int untimed) const {
    if (costs_)
      return "Step times are those of " + costs_->machine + ", from " + costs_->file + ", in a batch of " +
             std::to_string(costs_->batch) + "; ~: a step outside of those whose costs are known.";
    std::string note = "The results have no step times, so the tree with the most tokens per round is chosen.";
    if (known())
      note = "Step times are a linear fit to " + std::to_string(std::lround(fitted_.steps)) + " steps, " +
             std::to_string(std::lround(100 * fitted_.deviation)) +
             " % from the measured ones on average; ~: more rows than any measured step.";
    if (untimed > 0)
      note += " Without the step times of " + std::to_string(untimed) + (untimed == 1 ? " run" : " runs") +
              " that may be those of a busy machine (/measure/busy).";
    return note;
  }

 private:
  StepShape shape(int nodes, int levels) const {
    return {.batch = costs_->batch,
            .depth = levels,
            .levels = double(costs_->batch) * levels,
            .rows = double(costs_->batch) * nodes,
            .context = costs_->batch * context_};
  }

  StepTimes fitted_;
  std::optional<TreeCosts> costs_;
  double context_;
};

// Without a number: as many nodes as the costs know rows for.
int most_nodes_of(const TreeShapeOptions& o) {
  if (o.nodes > 0 || !o.costs) return o.nodes;
  double rows = 0;
  for (const CostedStep& s : o.costs->model->steps()) rows = std::max(rows, s.shape.rows);
  return std::clamp(int(rows / o.costs->batch), 2, kMaxNodes);
}

class Chooser {
 public:
  Chooser(const Taken& t, const TreeShapeOptions& o, int most_nodes)
      : trees_(t.children.probabilities(), most_nodes), steps_(t, o) {
    for (int n = 1; n <= most_nodes; ++n) {
      const Choice c = best(n);
      if (c.nodes == n) all_.push_back(c);  // else no tree of n nodes is better than a smaller one
    }
    if (all_.size() < 2)
      throw Error("no child of a tree was accepted in these results, so no tree is better than none; choose others");
  }
  const std::vector<Choice>& all() const { return all_; }
  const TreeSteps& steps() const { return steps_; }
  std::vector<std::vector<int>> shape(const Choice& c) const { return trees_.shape(c.nodes, c.levels); }
  // Of those with a node below the root, and with costs of all: these hold for the batch that is asked for.
  Choice chosen() const {
    const auto better = [](const Choice& a, const Choice& b) {
      return a.rate < b.rate || (std::isnan(a.rate) && a.tau < b.tau);
    };
    return *std::max_element(all_.begin() + (steps_.given() ? 0 : 1), all_.end(), better);
  }

 private:
  Choice at(int nodes, int levels) const {
    Choice c{nodes, levels, trees_.tau(nodes, levels)};
    if (!steps_.known()) return c;
    c.seconds = steps_.seconds(nodes, levels);
    c.rate = steps_.sequences() * c.tau / c.seconds;
    c.beyond = steps_.beyond(nodes, levels);
    return c;
  }
  // Over all numbers of levels: by rate where times are known, else by tau.
  Choice best(int nodes) const {
    Choice found = at(1, 0);
    if (nodes == 1) return found;
    found.rate = -1, found.tau = 0;
    for (int levels = 1; levels <= trees_.levels(); ++levels) {
      int used = nodes;  // the fewest nodes of an equally good tree
      while (used > 1 && trees_.tau(used - 1, levels) == trees_.tau(nodes, levels)) --used;
      const Choice c = at(used, levels);
      if (steps_.known() ? c.rate > found.rate : c.tau > found.tau) found = c;
    }
    return found;
  }

  BestTrees trees_;
  TreeSteps steps_;
  std::vector<Choice> all_;
};

Table acceptance_table(const Taken& t) {
  const auto p = t.children.probabilities();
  std::size_t most = 0;
  for (const std::vector<double>& level : p) most = std::max(most, level.size());
  Table table;
  table.title = "Acceptance of the children of an accepted node, by level and place among siblings";
  table.columns = {{"level", "level", ""}, {"rounds", "rounds", "rounds in which a first child was tested"}};
  for (std::size_t k = 1; k <= std::min<std::size_t>(most, kPlaces); ++k)
    table.columns.push_back({std::to_string(k), "place_" + std::to_string(k), ""});
  table.note = "~: of all levels together, since this one has fewer than " +
               std::to_string(long(ChildAcceptance::kEnough)) + " rounds.";
  for (std::size_t l = 0; l < p.size(); ++l) {
    const std::vector<ChildCount>& counts = t.children.counts()[l];
    Row row;
    row.cells = {Cell::of(double(l + 1), 0), Cell::of(counts.empty() ? 0 : counts.front().offered, 0)};
    for (std::size_t k = 0; k < std::min<std::size_t>(p[l].size(), kPlaces); ++k)
      row.cells.push_back(Cell::of(p[l][k], 3, t.children.pooled(int(l), int(k)) ? "~" : ""));
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Powers of two, the chosen tree and the largest one.
std::vector<Choice> listed(const Chooser& trees) {
  std::vector<Choice> found;
  for (const Choice& c : trees.all())
    if ((c.nodes & (c.nodes - 1)) == 0 || c.nodes == trees.chosen().nodes || c.nodes == trees.all().back().nodes)
      found.push_back(c);
  return found;
}

Table trees_table(const Chooser& trees, int untimed) {
  Table table;
  table.title = "Best trees";
  table.columns = {{"nodes", "nodes", "of the tree, the root included"},
                   {"levels", "levels", ""},
                   {"tau", "tau", "predicted tokens per round"},
                   {"step ms", "step_ms", "fitted time of a step"},
                   {"tok/s", "tokens_per_second", "predicted; prompts take time besides"},
                   {"speedup", "speedup", "over a step of bare roots"},
                   {"notes", "notes", "", Column::Kind::text, true}};
  table.note = trees.steps().note(untimed);
  if (trees.chosen().nodes == 1) table.note += " No tree is predicted to be faster than plain decoding.";
  const Choice chosen = trees.chosen(), plain = trees.all().front();
  for (const Choice& c : listed(trees)) {
    Row row;
    row.cells = {Cell::of(double(c.nodes), 0),
                 Cell::of(double(c.levels), 0),
                 Cell::of(c.tau, 3),
                 Cell::of(1000 * c.seconds, 3, c.beyond ? "~" : ""),
                 Cell::of(c.rate, 1),
                 Cell::of(c.rate / plain.rate, 2),
                 Cell::of(std::string(c.nodes == chosen.nodes ? "chosen" : ""))};
    table.rows.push_back(std::move(row));
  }
  return table;
}

json part_of_document(const Taken& t, const Chooser& trees) {
  const Choice c = trees.chosen();
  json drafter = t.run().at("drafter");
  if (c.nodes == 1)  // no draft, whatever the shape
    return {{"drafter", drafter}, {"policy", {{"name", "fixed"}, {"length", 0}}}, {"verifier", t.run().at("verifier")}};
  drafter["shape"] = trees.shape(c);
  return {{"drafter", drafter},
          {"policy", {{"name", "fixed"}, {"length", c.levels}, {"nodes", c.nodes}}},
          {"verifier", t.run().at("verifier")}};
}

json for_programs(const Taken& t, const Chooser& trees, const TreeShapeOptions& o) {
  json choices = json::array(), counts = json::array();
  for (const Choice& c : listed(trees))
    choices.push_back({{"nodes", c.nodes},
                       {"levels", c.levels},
                       {"tau", c.tau},
                       {"step_seconds", finite(c.seconds)},
                       {"tokens_per_second", finite(c.rate)},
                       {"speedup", finite(c.rate / trees.all().front().rate)},
                       {"beyond_measured_rows", c.beyond},
                       {"shape", trees.shape(c)}});
  for (const std::vector<ChildCount>& level : t.children.counts()) {
    json places = json::array();
    for (const ChildCount& c : level) places.push_back({{"offered", c.offered}, {"accepted", c.accepted}});
    counts.push_back(std::move(places));
  }
  const Choice chosen = trees.chosen();
  json found{{"children", counts},
             {"probabilities", t.children.probabilities()},
             {"trees", choices},
             {"chosen", {{"nodes", chosen.nodes}, {"levels", chosen.levels}, {"tau", chosen.tau}}},
             {"document", part_of_document(t, trees)}};
  if (o.costs)
    found["costs"] = {
        {"file", o.costs->file}, {"machine", o.costs->machine}, {"batch", o.costs->batch}, {"context", t.context}};
  return found;
}

// Trees of whatever shape.
void expect_costs_of(const TreeCosts& costs, const json& run) {
  json pair = json::object();
  for (const char* part : {"target", "drafter"})
    if (costs.document.contains(part)) pair[part] = costs.document[part];
  if (pair.contains("drafter") && pair["drafter"].is_object()) pair["drafter"].erase("shape");
  expect_pair(pair, run, costs.file);
  if (!costs.model->drafts()) throw Error(costs.file + " has no step with a draft; calibrate with the drafter");
}

std::string report(const std::vector<Result>& results, const TreeShapeOptions& o) {
  const int nodes = most_nodes_of(o);
  if (nodes < 2 || nodes > kMaxNodes)
    throw Error("a tree has 2 to " + std::to_string(kMaxNodes) + " nodes, the root included, not " +
                std::to_string(nodes) + "; give --nodes such a number");
  const Taken t = taken(results, o.where);
  if (o.costs) expect_costs_of(*o.costs, t.run());
  const Chooser trees(t, o, nodes);
  if (o.format == "json") return for_programs(t, trees, o).dump(1) + "\n";
  const std::vector<Table> tables{acceptance_table(t), trees_table(trees, t.untimed)};
  if (o.format == "csv") return tables.back().csv();
  const bool markdown = o.format == "markdown";
  std::string found;
  for (const Table& table : tables) found += (markdown ? table.markdown() : table.terminal(o.width)) + "\n";
  return found + legend(tables, o.width, markdown) + "\n" + (markdown ? "```json\n" : "") +
         part_of_document(t, trees).dump() + "\n" + (markdown ? "```\n" : "");
}

}  // namespace

std::string tree_shape(const std::vector<Result>& results, const TreeShapeOptions& options) {
  return of_lines([&] { return report(results, options); });
}

}  // namespace foretoken
