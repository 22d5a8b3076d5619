// `foretoken tree-shape`: the best shape of a draft tree from stored results.
#include <memory>

#include <unistd.h>

#include "experiments/program/commands.h"
#include "experiments/report/report.h"
#include "experiments/report/results.h"
#include "experiments/report/terminal.h"
#include "framework/decode/draft_tree.h"

namespace foretoken {

void add_tree_shape(CLI::App& app, Action& action) {
  struct Given {
    std::string file;
    TreeShapeOptions options;
    Look look;
  };
  const auto g = std::make_shared<Given>();
  CLI::App* c = app.add_subcommand(
      "tree-shape", "the best shape of a draft tree, from the acceptance and the step times of stored results");
  c->add_option("results", g->file, "a file of results with runs of a drafter that has a \"shape\"")->required();
  c->add_option("--nodes", g->options.nodes, "the most nodes of the tree, the root included")
      ->check(CLI::Range(2, kMaxNodes))
      ->required();
  add_repeatable(*c, "--where", g->options.where, "/POINTER=VALUE: only runs with this value; may be given again");
  add_look(*c, g->look);
  c->callback([g, &action] {
    action = [g] {
      g->options.format = g->look.chosen(), g->options.width = terminal_columns(STDOUT_FILENO);
      print(tree_shape(load_results(g->file), g->options));
      return 0;
    };
  });
}

}  // namespace foretoken
