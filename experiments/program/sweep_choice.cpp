#include "experiments/program/sweep_choice.h"

#include <filesystem>

#include "experiments/program/commands.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/runner.h"
#include "framework/text/json_file.h"

namespace foretoken {

std::vector<Run> SweepChoice::runs(Workbench& bench) const {
  if (document.empty()) return {};
  const std::filesystem::path file = document;
  const auto read = read_document(file);
  bench.load_plugins(read, file.parent_path());
  return expand(read, set, bench.registries(), file.string());
}

void add_sweep(CLI::App& command, SweepChoice& sweep, const std::string& meaning) {
  CLI::Option* const document = command.add_option("--sweep", sweep.document, meaning);
  add_repeatable(command, "--set", sweep.set, "/POINTER=VALUE, as it was given to run; may be given again")
      ->needs(document);
  add_plugins(command, sweep.plugins);
}

std::string told(const Result& result) {
  return label_of({result.run, result.axes, result.key}) + " (key " + result.key + ", measured " + result.date + ")";
}

}  // namespace foretoken
