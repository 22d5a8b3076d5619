// `foretoken options`: the matrix of sampling options, drafters and verifiers, each cell shown on the spot.
#include <cstdio>
#include <memory>

#include "experiments/conformance/options.h"
#include "experiments/program/commands.h"
#include "framework/components/plugin.h"

namespace foretoken {

void add_options(CLI::App& app, Action& action) {
  const auto plugins = std::make_shared<std::vector<std::string>>();
  CLI::App* c = app.add_subcommand(
      "options", "sampling options against drafters and verifiers: exact, or refused and why (Markdown)");
  add_plugins(*c, *plugins);
  c->callback([plugins, &action] {
    action = [plugins] {
      Registries registries = conformance::all_registries();
      for (const auto& path : *plugins) load_plugin(path, registries);
      std::fputs(conformance::option_tables(registries).c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace foretoken
