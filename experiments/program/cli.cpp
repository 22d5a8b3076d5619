#include "experiments/program/cli.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <new>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "experiments/program/commands.h"
#include "experiments/program/option_values.h"
#include "experiments/report/terminal.h"
#include "experiments/session/interrupt.h"
#include "foretoken_version.h"
#include "kernels/error.h"
#include "kernels/out_of_memory.h"

namespace foretoken {
namespace {

constexpr int kFailed = 1, kUsage = 2;

// A message as one line without control characters, whatever names and paths it holds.
class OneLine : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& line) override {
    const std::string shown = one_line({message.payload.data(), message.payload.size()});
    line.append(shown.data(), shown.data() + shown.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<OneLine>(); }
};

void log_to_stderr() {
  auto logger = std::make_shared<spdlog::logger>("foretoken", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<OneLine>('*').set_pattern("foretoken: %*");
  logger->set_formatter(std::move(formatter));
  spdlog::set_default_logger(logger);
}

// One line, even if names in a file have line breaks.
int complain(const std::string& sentence) {
  std::fflush(stdout);
  std::fprintf(stderr, "foretoken: %s\n", one_line(sentence).c_str());
  return kFailed;
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands(nullptr)) known.push_back(command->get_name());
  return known;
}

int unknown_command(const CLI::App& app, const std::string& name) {
  try {
    unknown_name("command", name, commands_of(app));
  } catch (const Error& e) {
    complain(e.what());
  }
  return kUsage;
}

// What the user of a command can do where memory does not suffice.
std::string more_memory_for(const std::string& command) {
  if (command == "run" || command == "quickstart")
    return "lower \"memory_mib\" or \"batch\" of the engine (--set /engine/memory_mib=N), or use smaller models";
  if (command == "generate")
    return "lower --samples or --max-new-tokens, give less memory to the caches with --set /engine/memory_mib=N, or "
           "use a "
           "smaller --model";
  if (command == "quality") return "lower --window, or use a smaller --model";
  if (command == "quantize") return "lower --tokens of the calibration, or use a machine with more memory";
  if (command == "bench") return "lower --rows, or choose fewer scenarios with --only or a smaller --model";
  if (command == "check") return "lower --threads";
  return "give it smaller files, or use a machine with more memory";
}

// Every exception becomes one sentence.
int guarded(const Action& action, const std::string& command) {
  try {
    const int code = action();
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      throw Error("standard output cannot be written; is the disk full?");
    return code;
  } catch (const Interrupted&) {
    complain("interrupted");
    return kInterruptedExit;
  } catch (const OutOfMemory& e) {
    return complain(e.cause() + "; " + more_memory_for(command));
  } catch (const Error& e) {
    return complain(e.what());
  } catch (const std::bad_alloc&) {
    return complain("out of memory; " + more_memory_for(command));
  } catch (const std::filesystem::filesystem_error& e) {
    return complain(e.path1().string() + ": " + e.code().message() + "; check the path and its permissions");
  } catch (const std::exception& e) {
    return complain(std::string("this should not happen, please report it: ") + e.what());
  } catch (...) {
    return complain("something was thrown that is not a std::exception; a plugin must throw foretoken::Error");
  }
}

// In the order of --help.
void add_commands(CLI::App& app, const Registries& registries, Action& action) {
  add_quickstart(app, action);
  add_run(app, action);
  add_show(app, action);
  add_report(app, action);
  add_merge(app, action);
  add_compare(app, action);
  add_replay(app, action);
  add_tree_shape(app, action);
  add_generate(app, action);
  add_list(app, registries, action);
  add_keys(app, registries, action);
  add_check(app, action);
  add_options(app, action);
  add_bench(app, action);
  add_quality(app, action);
  add_quantize(app, action);
  add_datastore(app, action);
  add_schema(app, action);
  add_convert(app, action);
  add_version(app, action);
}

}  // namespace

int run_cli(int argc, const char* const* argv) {
  log_to_stderr();
  take_full_files_as_errors();
  Registries registries;
  register_drafters(registries);
  register_verifiers(registries);

  CLI::App app("Foretoken: speculative decoding, measured.", "foretoken");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("foretoken ") + kVersion + " (" + kCommit + ")");
  Action action;
  add_commands(app, registries, action);
  refuse_empty_values(app);
  const std::vector<std::string> commands = commands_of(app);
  if (argc > 1 && argv[1][0] != '-' && std::ranges::find(commands, argv[1]) == commands.end())
    return unknown_command(app, argv[1]);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    complain(std::string(e.what()) + "; see foretoken --help and foretoken COMMAND --help");
    return kUsage;
  }
  return guarded(action, app.get_subcommands().front()->get_name());
}

}  // namespace foretoken
