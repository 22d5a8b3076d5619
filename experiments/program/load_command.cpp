// `foretoken load`: the requests of runs, sent to a server by HTTP.
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "experiments/load/load.h"
#include "experiments/program/commands.h"
#include "experiments/session/arrival_rate.h"
#include "experiments/session/interrupt.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/progress.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

struct LoadFlags {
  std::string file, url, out, key_variable;
  std::vector<std::string> set, plugins;
  std::vector<int> concurrency;
  bool quiet = false;
  Look look;
  LoadOptions options;
};

// Each run of the document, or each with these numbers of requests at once.
std::vector<LoadLevel> levels_of(const LoadFlags& f, Workbench& bench) {
  const auto document = read_document(f.file);
  std::vector<LoadLevel> levels;
  const auto add = [&](std::vector<std::string> settings) {
    settings.insert(settings.begin(), f.set.begin(), f.set.end());
    for (const Run& run : expand(document, settings, bench.registries(), f.file)) {
      if (!f.concurrency.empty() && !rate_key_of(run.document).empty())
        throw Error("the run has '" + rate_key_of(run.document) +
                    "', at which its requests arrive, however many are running; leave --concurrency out, or the rate");
      if (f.options.waves && !rate_key_of(run.document).empty())
        throw Error("--waves is of requests at once, and the run has a rate; leave one of them out");
      levels.push_back({run.document, run.axes});
    }
  };
  if (f.concurrency.empty()) add({});
  for (const int at_once : f.concurrency) add({"/engine/batch=" + std::to_string(at_once)});
  return levels;
}

std::string shown(const std::vector<json>& lines, const std::string& format) {
  if (format == "json") return json(lines).dump(1) + "\n";
  const Table table = load_table(lines);
  if (format == "csv") return table.csv();
  return format == "markdown" ? table.markdown() : table.terminal(terminal_columns(STDOUT_FILENO));
}

int send_load(LoadFlags& f) {
  watch_interrupts();
  f.options.target = target_of_url(f.url);
  if (f.options.label.empty()) f.options.label = f.options.target.host + ":" + f.options.target.port;
  if (!f.key_variable.empty()) {
    const char* const key = std::getenv(f.key_variable.c_str());
    if (!key || !*key) throw Error("--key-variable names " + f.key_variable + ", which has no key; export it first");
    f.options.target.authorization = std::string("Bearer ") + key;
  }
  Workbench bench(f.plugins);
  const std::filesystem::path beside = std::filesystem::path(f.file).parent_path();
  bench.load_plugins(json::parse(read_document(f.file).dump()), beside);
  const std::vector<LoadLevel> levels = levels_of(f, bench);
  std::optional<JsonLinesFile> out;
  if (!f.out.empty()) out.emplace(f.out, load_lines());
  std::vector<json> lines;
  Progress progress("foretoken load", int(levels.size()), 0, f.quiet, "levels");
  for (const LoadLevel& level : levels) {
    const std::string note = level.run.at("workload").at("prompts");
    lines.push_back(measured_level(level, f.options, bench, beside, [&](std::size_t done, std::size_t all) {
      progress.show(int(lines.size()), note, double(done) / double(all));
      check_interrupt();
    }));
    if (out) out->append(lines.back());
  }
  progress.clear();
  print(shown(lines, f.look.chosen()));
  return 0;
}

}  // namespace

void add_load(Commands& all) {
  const auto [c, f] =
      all.add_subcommand("load", "send a run's requests to a server of OpenAI's API, and time them", send_load);
  c.add_option("file", f.file, "run or sweep; its workload, sampling and rates")->required();
  c.add_option("--url", f.url, "http://HOST:PORT of the server")->required();
  add_numbers(c, "--concurrency", f.concurrency, 1, 4096,
              "requests at once, 1,2,4: each is a level (default: /engine/batch)");
  c.add_option("--model", f.options.model, "as the server names it, where it wants a name");
  c.add_option("--label", f.options.label, "of the server in lines and tables (default: HOST:PORT)");
  c.add_option("--key-variable", f.key_variable, "variable of the environment that has the key");
  c.add_option("--out", f.out, "file of JSON lines, to which each level is appended");
  c.add_flag("--waves", f.options.waves, "send the next requests when all have ended, as static batching has it");
  add_shown(c, "--warmup", f.options.warmup, "short requests before a level, for each that runs at once; 0: none")
      ->check(CLI::Range(0, 1 << 16));
  add_shown(c, "--request-seconds", f.options.seconds, "for each request")->check(number_within(0.01, 1e6));
  add_repeatable(c, "--set", f.set, "/POINTER=VALUE, any key of a run (foretoken keys); may be given again");
  c.add_flag("--quiet", f.quiet, "show no progress");
  add_look(c, f.look);
  add_plugins(c, f.plugins);
}

}  // namespace foretoken
