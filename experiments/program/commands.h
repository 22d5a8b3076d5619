// The subcommands of foretoken: their options and the calls that they make. This module must not know more than that
// and CLI11.
#pragma once
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "experiments/report/result.h"
#include "experiments/report/terminal.h"
#include "experiments/session/workbench.h"
#include "experiments/sweep/sweep.h"
#include "framework/components/registry.h"

namespace foretoken {

struct Commands {
  CLI::App& app;
  std::function<int()> chosen{};  // what the chosen subcommand does; returns the exit code

  // A subcommand, and what its options set, with which `run` is called where it is the chosen one.
  template <class Given>
  std::pair<CLI::App&, Given&> add_subcommand(const char* name, const char* meaning, int (*run)(Given&)) {
    const auto given = std::make_shared<std::remove_const_t<Given>>();
    CLI::App* const command = app.add_subcommand(name, meaning);
    command->callback([this, given, run] { chosen = [given, run] { return run(*given); }; });
    return {*command, *given};
  }
};

using AddCommand = void(Commands& all);
AddCommand add_quickstart, add_run, add_show, add_report, add_merge, add_compare, add_replay, add_tree_shape, add_tune,
    add_calibrate, add_predict, add_generate, add_serve, add_gateway, add_load, add_list, add_keys, add_check,
    add_options, add_bench, add_quality, add_quantize, add_datastore, add_schema, add_convert, add_version;

// --json and --format, of all commands that print tables.
struct Look {
  std::string format = "terminal";
  bool json = false;
  std::string chosen() const { return json ? "json" : format; }
};
// `latex`: whether the command's tables can be LaTeX.
void add_look(CLI::App& command, Look& look, bool latex = false);

// The options of what a command calls, which take their format and width from --format and the terminal.
template <class Options> struct Shown {
  Options options;
  Look look;
  const Options& whole() {
    options.format = look.chosen();
    options.width = terminal_columns(STDOUT_FILENO);
    return options;
  }
};

// An option whose default --help has.
template <class T>
CLI::Option* add_shown(CLI::App& command, const std::string& name, T& value, const std::string& meaning) {
  return command.add_option(name, value, meaning)->capture_default_str();
}
// A repeatable option that takes one value each time, so the next argument is not its second value.
CLI::Option* add_repeatable(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                            const std::string& meaning);
// An option that takes one list, "a,b,c".
CLI::Option* add_list_option(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                             const std::string& meaning);
// An option that takes a list of integers, "1,4,16".
CLI::Option* add_numbers(CLI::App& command, const std::string& name, std::vector<int>& values, int least, int most,
                         const std::string& meaning);
// --tables, of commands that print tables of runs.
void add_tables(CLI::App& command, std::vector<std::string>& tables, const std::string& standard = "all");
// Those that are given, else the standard ones; none, which stands for all of them, where "all" is given.
std::vector<std::string> chosen_tables(const std::vector<std::string>& given, const std::vector<std::string>& standard);
// --plugin LIB, repeatable: for every command that uses drafters, policies or verifiers.
void add_plugins(CLI::App& command, std::vector<std::string>& plugins);
// All components of the program, and of plugins.
Registries with_plugins(const std::vector<std::string>& plugins);

// Makes every option of every subcommand refuse an empty value, which CLI11 reads as 0.
void refuse_empty_values(CLI::App& app);
// A number from `least` to `most`, and not NaN.
CLI::Validator number_within(double least, double most);

// The sweep whose results a command reads: --sweep, --stand-ins, --set and --plugin.
struct SweepChoice {
  std::string document;  // empty: none
  std::vector<std::string> set, plugins;
  bool stand_ins = false;  // the document's are to come before `set`

  // All runs of the document; none without one. Its plugins are loaded into the workbench, and its stand-ins, where
  // they are wanted, are in `set` from then on.
  std::vector<Run> runs(Workbench& bench);
};
std::set<std::string> keys_of(const std::vector<Run>& runs);
// Puts the document's stand-ins before these settings. A document without any is an Error.
void put_stand_ins(const nlohmann::ordered_json& document, const std::string& file, std::vector<std::string>& set);
void add_sweep(CLI::App& command, SweepChoice& sweep, const std::string& meaning);

// The JSON object in an option's value.
nlohmann::json json_object(const std::string& text, const std::string& option);
// The config of a drafter, policy or verifier in an option's value: a name, or a JSON object with "name" and options;
// null for "".
nlohmann::json component_config(const std::string& text, const std::string& option);

// `foretoken list`: the registered components with options, defaults, sources and plugins.
std::string list_registered(const Registries& registries, bool as_json);
// With --models: the families that are read, and the published shapes.
std::string list_models(bool as_json);

}  // namespace foretoken
