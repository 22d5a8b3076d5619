// `foretoken options`: the matrix of sampling options, drafters and verifiers; every cell is tested when it runs.
#include <memory>

#include <spdlog/spdlog.h>

#include "experiments/conformance/check.h"
#include "experiments/conformance/laws.h"
#include "experiments/program/commands.h"
#include "experiments/report/terminal.h"
#include "framework/components/plugin.h"

namespace foretoken {

void add_options(CLI::App& app, Action& action) {
  const auto plugins = std::make_shared<std::vector<std::string>>();
  CLI::App* c = app.add_subcommand(
      "options", "sampling options against drafters and verifiers: exact, or refused with the reason (Markdown)");
  add_plugins(*c, *plugins);
  c->callback([plugins, &action] {
    action = [plugins] {
      Registries registries = conformance::all_registries();
      for (const auto& path : *plugins) load_plugin(path, registries);
      print(conformance::option_tables(registries));
      for (const std::string& sentence : conformance::left_out({registries, nullptr, {{"name", "fixed"}}, nullptr}))
        spdlog::warn("without a column or table: {}", sentence);
      return 0;
    };
  });
}

}  // namespace foretoken
