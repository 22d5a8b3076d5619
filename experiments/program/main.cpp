// The command line: one subcommand per job, errors as one sentence, exit codes (0 success, 1 failure, 2 usage, 130
// Ctrl-C).
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <new>

#include <fcntl.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "experiments/program/commands.h"
#include "experiments/report/terminal.h"
#include "experiments/session/interrupt.h"
#include "foretoken_version.h"
#include "framework/text/known_names.h"
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

// What the user of a command can do where memory does not suffice.
std::string more_memory_for(const std::string& command) {
  if (command == "run" || command == "quickstart")
    return "lower \"memory_mib\" or \"batch\" of the engine (--set /engine/memory_mib=N), or use smaller models";
  if (command == "generate")
    return "lower --samples or --max-new-tokens, give less memory to the caches with --set /engine/memory_mib=N, or "
           "use a "
           "smaller --model";
  if (command == "serve")
    return "lower --batch, give less memory to the caches with --set /engine/memory_mib=N, or use a smaller --model";
  if (command == "quality") return "lower --window, or use a smaller --model";
  if (command == "quantize") return "lower --tokens of the calibration, or use a machine with more memory";
  if (command == "bench") return "lower --rows, or choose fewer scenarios with --only or a smaller --model";
  if (command == "calibrate") return "give fewer or smaller --batches and --contexts, or use smaller models";
  if (command == "check") return "lower --threads";
  return "give it smaller files, or use a machine with more memory";
}

// Every exception becomes one sentence.
int guarded(const std::function<int()>& action, const std::string& command) {
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

// A file opened while one of the descriptors 0 to 2 is closed gets its number, so standard error could be written into
// the results. Each closed one becomes a null device opened in the wrong direction, which fails as a closed descriptor
// does.
bool occupy_standard_descriptors() {
  for (int number = 0; number <= 2; ++number)
    if (::fcntl(number, F_GETFD) < 0 && ::open("/dev/null", number == 0 ? O_WRONLY : O_RDONLY) != number) return false;
  return true;
}

int run_cli(int argc, const char* const* argv) {
  log_to_stderr();
  take_full_files_as_errors();
  CLI::App app("Foretoken: speculative decoding, measured.", "foretoken");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("foretoken ") + kVersion + " (" + kCommit + ")");
  Commands all{app};
  for (AddCommand* const add :
       {add_quickstart, add_run,       add_show,      add_report,  add_merge,    add_compare, add_replay,
        add_tree_shape, add_tune,      add_calibrate, add_predict, add_generate, add_serve,   add_gateway,
        add_load,       add_list,      add_keys,      add_check,   add_options,  add_bench,   add_quality,
        add_quantize,   add_datastore, add_schema,    add_convert, add_version})
    add(all);  // in the order of --help
  refuse_empty_values(app);
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands(nullptr)) known.push_back(command->get_name());
  try {
    if (argc > 1 && argv[1][0] != '-' && std::ranges::find(known, argv[1]) == known.end())
      unknown_name("command", argv[1], known);
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const Error& e) {
    complain(e.what());
    return kUsage;
  } catch (const CLI::ParseError& e) {
    complain(std::string(e.what()) + "; see foretoken --help and foretoken COMMAND --help");
    return kUsage;
  }
  return guarded(all.chosen, app.get_subcommands().front()->get_name());
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  return foretoken::occupy_standard_descriptors() ? foretoken::run_cli(argc, argv) : 1;
}
