// The subcommands of foretoken, each with its options and what it does when chosen. Knows CLI11 and whom to call,
// nothing else.
#pragma once
#include <functional>

#include <CLI/CLI.hpp>

#include "framework/components/registry.h"

namespace foretoken {

// What the chosen subcommand does; its value is the exit code.
using Action = std::function<int()>;

// --plugin LIB, repeatable: for every command that meets drafters, policies or verifiers.
void add_plugins(CLI::App& command, std::vector<std::string>& plugins);

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
