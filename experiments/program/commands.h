// The subcommands of foretoken: their options and the calls that they make. This module must not know more than that
// and CLI11.
#pragma once
#include <functional>

#include <CLI/CLI.hpp>

#include "experiments/report/result.h"
#include "framework/components/registry.h"

namespace foretoken {

// The chosen subcommand; returns the exit code.
using Action = std::function<int()>;

// --json and --format, of all commands that print tables.
struct Look {
  std::string format = "terminal";
  bool json = false;
  std::string chosen() const { return json ? "json" : format; }
};
// `latex`: whether the command's tables can be LaTeX.
void add_look(CLI::App& command, Look& look, bool latex = false);

// A repeatable option that takes one value each time, so the next argument is not its second value.
CLI::Option* add_repeatable(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                            const std::string& meaning);
// An option that takes one list, "a,b,c".
CLI::Option* add_list_option(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                             const std::string& meaning);
// --tables, of commands that print tables of runs.
void add_tables(CLI::App& command, std::vector<std::string>& tables, const std::string& standard = "all");
// Those that are given, else the standard ones; none, which stands for all of them, where "all" is given.
std::vector<std::string> chosen_tables(const std::vector<std::string>& given, const std::vector<std::string>& standard);
// --where, repeatable, of commands that show results: the conditions of select().
void add_where(CLI::App& command, std::vector<std::string>& where);
// The results of some files, of runs that are not finished too (load_with_unfinished(), joined()), that meet the
// conditions.
std::vector<Result> selected_results(const std::vector<std::string>& files, const std::vector<std::string>& where);
// --plugin LIB, repeatable: for every command that uses drafters, policies or verifiers.
void add_plugins(CLI::App& command, std::vector<std::string>& plugins);

// Whether lines of files of results have no figures, each of which is an error message.
bool report_damages(const std::vector<std::string>& files, const std::vector<Result>& lines);

// The JSON object in an option's value.
nlohmann::json json_object(const std::string& text, const std::string& option);
// The config of a drafter, policy or verifier in an option's value: a name, or a JSON object with "name" and options;
// null for "".
nlohmann::json component_config(const std::string& text, const std::string& option);

void add_run(CLI::App& app, Action& action);
void add_show(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_merge(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_replay(CLI::App& app, Action& action);
void add_tree_shape(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_quickstart(CLI::App& app, Action& action);
void add_list(CLI::App& app, const Registries& registries, Action& action);
void add_keys(CLI::App& app, const Registries& registries, Action& action);
void add_check(CLI::App& app, Action& action);
void add_options(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_quantize(CLI::App& app, Action& action);
void add_datastore(CLI::App& app, Action& action);
void add_quality(CLI::App& app, Action& action);
void add_schema(CLI::App& app, Action& action);
void add_convert(CLI::App& app, Action& action);
void add_version(CLI::App& app, Action& action);

}  // namespace foretoken
