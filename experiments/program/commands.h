// The subcommands of foretoken, each with its options and what it does when chosen. Knows CLI11 and whom to call,
// nothing else.
#pragma once
#include <functional>

#include <CLI/CLI.hpp>

#include "framework/components/registry.h"

namespace foretoken {

// What the chosen subcommand does; its value is the exit code.
using Action = std::function<int()>;

// An option that may be given again and takes one value each time: what follows it is not its own.
CLI::Option* add_repeatable(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                            const std::string& meaning);
// An option that takes one list, "a,b,c".
CLI::Option* add_list_option(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                             const std::string& meaning);
// --plugin LIB, repeatable: for every command that meets drafters, policies or verifiers.
void add_plugins(CLI::App& command, std::vector<std::string>& plugins);

// The JSON object that an option gives.
nlohmann::json json_object(const std::string& text, const std::string& option);
// The config of a drafter, policy or verifier as an option gives it: a name, or a JSON object with "name" and options;
// null for "".
nlohmann::json component_config(const std::string& text, const std::string& option);

void add_run(CLI::App& app, Action& action);
void add_show(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_quickstart(CLI::App& app, Action& action);
void add_list(CLI::App& app, const Registries& registries, Action& action);
void add_keys(CLI::App& app, const Registries& registries, Action& action);
void add_check(CLI::App& app, Action& action);
void add_options(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_version(CLI::App& app, Action& action);

}  // namespace foretoken
