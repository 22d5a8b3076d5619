// The options of `foretoken replay`.

#include <unistd.h>

#include "drafters/tree_shape.h"
#include "experiments/program/commands.h"
#include "experiments/report/report.h"
#include "experiments/report/terminal.h"
#include "experiments/session/workbench.h"
#include "experiments/sweep/provenance.h"
#include "experiments/trace/replay.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

struct ReplayFlags {
  std::string file, policy;
  std::vector<int> lengths;
  std::vector<std::string> shapes, verifiers, costs, beside, plugins;
  bool oracle = false, orders = false;
  Look look;

  bool walks() const { return !lengths.empty() || !shapes.empty() || !policy.empty() || oracle; }
};

// A trace of files that have changed since would be held against runs of others.
void expect_same_sources(const Trace& trace, const std::string& file) {
  const json sources = trace.header.value("sources", json::object());
  if (!sources.is_object()) return;
  for (const auto& [path, print] : sources.items())
    if (const std::string now = fingerprint(locate(path)); !now.empty() && print != json(now))
      throw Error("the trace " + file + " was recorded with other contents of " + path +
                  " than are there now; record it again");
}

TreeCut shape_of(const std::string& text) {
  TreeCut cut;
  const TreeShape shape = TreeShape::read(parse_json(text, "--shape"));
  std::vector<RankPath> paths;
  for (const TreeShape::Node& n : shape.nodes()) {
    RankPath path = n.parent < 0 ? RankPath{} : paths[std::size_t(n.parent)];
    if (n.parent >= 0) path.push_back(n.rank), cut.shape.insert(path);
    paths.push_back(std::move(path));
  }
  return cut;
}

std::vector<Replayed> rows_of(const ReplayFlags& g, const Replay& replay, const std::vector<std::string>& verifiers) {
  std::vector<int> lengths = g.lengths;
  const bool whole = !g.walks() && !replay.shape().fixed;  // nothing else is known of such trees
  if (!g.walks() && !whole)
    for (int length = 1; length <= replay.shape().depth; ++length) lengths.push_back(length);
  std::vector<Replayed> rows;
  for (const std::string& verifier : verifiers) {
    if (whole) rows.push_back(replay.cut("as drafted", {}, verifier));
    for (const int length : lengths)
      rows.push_back(replay.cut("length " + std::to_string(length), {.depth = length}, verifier));
    for (const std::string& shape : g.shapes) rows.push_back(replay.cut("shape " + shape, shape_of(shape), verifier));
    if (!g.policy.empty()) rows.push_back(replay.policy(component_config(g.policy, "--policy"), verifier));
    if (g.oracle) rows.push_back(replay.oracle({}, verifier));
  }
  return rows;
}

int run_replay(ReplayFlags& g) {
  Workbench bench(g.plugins);
  const Trace trace = read_trace(g.file);
  expect_same_sources(trace, g.file);
  CostTable costs(trace);
  for (const std::string& file : g.costs) costs.add(read_trace(file), file);
  ReplayReport report{g.file, &trace, {}, {}, costs.error(), costs.steps()};
  std::vector<Trace> others;
  others.reserve(g.beside.size());
  std::vector<NamedTrace> named{{g.file, &trace}};
  for (const std::string& file : g.beside) named.push_back({file, &others.emplace_back(read_trace(file))});
  if (g.orders || !g.beside.empty()) report.orders = orders_of(named);
  if (g.walks() || report.orders.accepting.empty()) {
    const Replay replay(trace, costs, bench.registries());
    const std::string own = trace.run().at("verifier").at("name");
    report.rows = rows_of(g, replay, g.verifiers.empty() ? std::vector{own} : g.verifiers);
  }
  print(replay_report(report, g.look.chosen(), terminal_columns(STDOUT_FILENO)));
  return 0;
}

}  // namespace

void add_replay(Commands& all) {
  const auto [c, g] = all.add_subcommand(
      "replay", "what other drafts or verifiers would have given, from a dense acceptance trace and without a model",
      run_replay);
  c.add_option("trace", g.file, "a file that a run with the key \"trace\" wrote")->required();
  c.add_option("--lengths", g.lengths, "draft lengths, in levels: 1,2,4,8 (default: all that the trace has)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->take_all()
      ->check(CLI::Range(0, kMaxPath));
  add_repeatable(c, "--shape", g.shapes, "shape of the trees, as of the drafter draft_tree; may be given again");
  c.add_option("--policy", g.policy, "a length policy: its name, or a JSON object with \"name\" and options");
  add_list_option(c, "--verifier", g.verifiers, "names of verifiers (default: the run's)");
  c.add_flag("--oracle", g.oracle, "also the best length of every round, known only afterwards");
  c.add_flag("--orders", g.orders, "which recorded verifier (/trace/verifiers) accepts more, round by round");
  add_list_option(c, "--beside", g.beside, "other traces of the same outputs, for --orders");
  add_list_option(c, "--costs", g.costs, "other traces of the same target, drafter and engine, for their times");
  add_plugins(c, g.plugins);
  add_look(c, g.look);
}

}  // namespace foretoken
