#include "experiments/program/commands.h"

#include <cstdio>
#include <filesystem>
#include <memory>

#include <spdlog/spdlog.h>
#include <unistd.h>

#include "experiments/bench/bench.h"
#include "experiments/bench/bench_steps.h"
#include "experiments/program/generate.h"
#include "experiments/program/list.h"
#include "experiments/report/report.h"
#include "experiments/report/results.h"
#include "experiments/report/summary.h"
#include "experiments/report/terminal.h"
#include "experiments/sweep/quickstart.h"
#include "experiments/sweep/run_document.h"
#include "experiments/sweep/soak.h"
#include "experiments/sweep/unfinished.h"
#include "foretoken_version.h"
#include "framework/components/plugin.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

Registries with_plugins(Registries registries, const std::vector<std::string>& plugins) {
  for (const auto& path : plugins) load_plugin(path, registries);
  return registries;
}

}  // namespace

void add_look(CLI::App& command, Look& look, bool latex) {
  std::vector<std::string> formats = {"terminal", "markdown", "csv", "json"};
  if (latex) formats.emplace_back("latex");
  command.add_option("--format", look.format, "how tables are written")
      ->check(CLI::IsMember(formats))
      ->capture_default_str();
  command.add_flag("--json", look.json, "the same for programs");
}

CLI::Option* add_repeatable(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                            const std::string& meaning) {
  return command.add_option(name, values, meaning)->allow_extra_args(false)->take_all();
}

CLI::Option* add_list_option(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                             const std::string& meaning) {
  return add_repeatable(command, name, values, meaning)->delimiter(',');
}

void add_plugins(CLI::App& command, std::vector<std::string>& plugins) {
  add_repeatable(command, "--plugin", plugins,
                 "a shared library with drafters, policies or verifiers; may be given again");
}

json json_object(const std::string& text, const std::string& option) {
  json value = json::parse(text, nullptr, false);
  if (!value.is_object()) throw Error(option + " takes a JSON object, not '" + text + "'");
  return value;
}

json component_config(const std::string& text, const std::string& option) {
  if (text.empty()) return nullptr;
  const json config = text.front() == '{' ? json_object(text, option) : json{{"name", text}};
  if (!config.contains("name") || !config["name"].is_string())
    throw Error(option + " '" + text + "' has no name; write it as " + option +
                " '{\"name\": NAME, ...}' with a name that foretoken list has");
  return config;
}

void add_tables(CLI::App& command, std::vector<std::string>& tables, const std::string& standard) {
  add_list_option(
      command, "--tables", tables,
      "which of main, theory, positions, categories, load, latency, phases, memory, best; or all (default: " +
          standard + ")");
}

std::vector<std::string> chosen_tables(const std::vector<std::string>& given,
                                       const std::vector<std::string>& standard) {
  if (given == std::vector<std::string>{"all"}) return {};
  return given.empty() ? standard : given;
}

void add_where(CLI::App& command, std::vector<std::string>& where) {
  add_repeatable(command, "--where", where,
                 "/POINTER=VALUE: only runs with this value, as /drafter/name=ngram; may be given again");
}

std::vector<Result> selected_results(const std::vector<std::string>& files, const std::vector<std::string>& where) {
  std::vector<std::vector<Result>> all;
  for (const std::string& file : files) all.push_back(load_with_unfinished(file));
  std::vector<Result> results = joined(std::move(all));
  select(where, {&results});
  return results;
}

bool report_damages(const std::vector<std::string>& files, const std::vector<Result>& lines) {
  const auto damages = damages_of(lines);
  std::string names;
  for (const std::string& file : files) names += (names.empty() ? "" : ", ") + file;
  for (const std::string& damage : damages) spdlog::error("a line of {} has no figures: {}", names, damage);
  return !damages.empty();
}

void add_compare(CLI::App& app, Action& action) {
  struct Given {
    std::string a, b;
    std::vector<std::string> ignore, where;
    Look look;
  };
  const auto g = std::make_shared<Given>();
  CLI::App* c = app.add_subcommand("compare", "compare two files of results, run by run");
  c->add_option("a", g->a, "a file of results")->required();
  c->add_option("b", g->b, "another")->required();
  add_list_option(*c, "--ignore", g->ignore, "JSON pointers into the run whose values may differ, as /engine/device");
  add_where(*c, g->where);
  add_look(*c, g->look);
  c->callback([g, &action] {
    action = [g] {
      std::vector<Result> a = load_results(g->a), b = load_results(g->b);
      select(g->where, {&a, &b});
      print(compare(a, b,
                    {.format = g->look.chosen(),
                     .name_a = g->a,
                     .name_b = g->b,
                     .ignore = g->ignore,
                     .width = terminal_columns(STDOUT_FILENO)}));
      const bool damaged = report_damages({g->a}, a);  // both files are reported
      return report_damages({g->b}, b) || damaged ? 1 : 0;
    };
  });
}

void add_quickstart(CLI::App& app, Action& action) {
  const auto g = std::make_shared<QuickstartOptions>();
  const auto look = std::make_shared<Look>();
  CLI::App* c =
      app.add_subcommand("quickstart", "a first table of acceptance rates and speedups, in about three minutes");
  c->add_option("--results", g->results,
                "file of results; an older file is renamed to FILE.1, or to the next free number")
      ->capture_default_str();
  c->add_option("--seconds", g->seconds, "seconds to measure for, where three alternations of each run take less")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  c->add_option("--device", g->device, "auto, cpu, reference or cuda")->capture_default_str();
  add_repeatable(*c, "--set", g->settings,
                 "/POINTER=VALUE, a change of the sweep, whose table then compares with no other");
  add_look(*c, *look);
  c->callback([g, look, &action] {
    action = [g, look] {
      g->format = look->chosen(), g->width = terminal_columns(STDOUT_FILENO);
      return quickstart(*g);
    };
  });
}

void add_list(CLI::App& app, const Registries& registries, Action& action) {
  const auto as_json = std::make_shared<bool>(false);
  const auto plugins = std::make_shared<std::vector<std::string>>();
  CLI::App* c = app.add_subcommand("list", "drafters, length policies and verifiers, with their options");
  add_plugins(*c, *plugins);
  c->add_flag("--json", *as_json, "the same for programs");
  c->callback([as_json, plugins, &registries, &action] {
    action = [as_json, plugins, &registries] {
      print(list_registered(with_plugins(registries, *plugins), *as_json));
      return 0;
    };
  });
}

void add_keys(CLI::App& app, const Registries& registries, Action& action) {
  const auto markdown = std::make_shared<bool>(false);
  const auto plugins = std::make_shared<std::vector<std::string>>();
  CLI::App* c = app.add_subcommand("keys", "every key of a run document, with type, range and default");
  add_plugins(*c, *plugins);
  c->add_flag("--markdown", *markdown, "print the Markdown tables of experiments/keys.md");
  c->callback([markdown, plugins, &registries, &action] {
    action = [markdown, plugins, &registries] {
      print(describe_keys(with_plugins(registries, *plugins), *markdown));
      return 0;
    };
  });
}

// What is measured, where neither --steps nor --soak is given.
void add_product_options(CLI::App& command, BenchOptions& g) {
  command.add_option("--model", g.model,
                     "directory, GGUF file or published shape whose products to measure (default: the demo target)");
  command.add_option("--dtype", g.dtype, "of the weights: bf16, f32, or a weight format as of /target/dtype")
      ->capture_default_str();
  command.add_option("--threads", g.threads, "0: as many as the machine has")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command.add_option("--instructions", g.instructions,
                     "amx, avx512bf16, avx512vnni, avx512, avx2 or scalar (default: the best)");
  command.add_option("--rows", g.rows, "rows of the products, separated by commas (default: 1 to 64)")
      ->delimiter(',')
      ->check(CLI::Range(1, 8192));
  command.add_option("--repeats", g.repeats, "repeats of every measurement; medians are reported")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
}

void add_bench(CLI::App& app, Action& action) {
  const auto g = std::make_shared<BenchOptions>();
  CLI::App* c = app.add_subcommand("bench", "measure this machine's limits, and matrix products beside their roofline");
  const auto steps = std::make_shared<StepsOptions>();
  CLI::Option* const file = c->add_option(
      "--steps", steps->file,
      "measure whole steps of the engine instead: a JSON file of scenarios, as experiments/configs/steps.json");
  c->add_option("--only", steps->only, "only scenarios whose name contains this")->needs(file);
  c->add_option("--device", steps->device, "device of the scenarios: auto, cpu, reference or cuda")->needs(file);
  c->add_option("--results", steps->results, "a file to which JSON lines are appended");
  add_product_options(*c, *g);
  c->add_flag("--json", g->json, "the same for programs");
  const auto soak = std::make_shared<SoakOptions>();
  CLI::Option* const endured =
      c->add_option("--soak", soak->file,
                    "serve thousands of queued requests of a run instead: experiments/configs/soak.json")
          ->excludes(file);
  for (const char* shapes : {"--model", "--dtype", "--threads", "--instructions", "--rows", "--repeats"})
    c->get_option(shapes)->excludes(file)->excludes(endured);
  c->add_option("--requests", soak->requests, "number of requests of --soak")
      ->check(CLI::Range(1, 100000000))
      ->capture_default_str()
      ->needs(endured);
  c->callback([g, steps, soak, &action] {
    action = [g, steps, soak] {
      steps->json = soak->json = g->json;
      soak->results = g->results = steps->results;
      if (!soak->file.empty()) return run_soak(*soak);
      return steps->file.empty() ? run_bench(*g) : run_steps(*steps);
    };
  });
}

void add_version(CLI::App& app, Action& action) {
  CLI::App* c = app.add_subcommand("version", "print version, commit and compiler");
  c->callback([&action] {
    action = [] {
      std::printf("foretoken %s, commit %s, %s, %s\n", kVersion, kCommit, kCompiler, kBuildType);
      return 0;
    };
  });
}

}  // namespace foretoken
