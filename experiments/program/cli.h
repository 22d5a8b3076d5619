// The command line: one subcommand per job, errors as one sentence, exit codes (0 success, 1 failure, 2 usage, 130
// Ctrl-C).
#pragma once

namespace foretoken {

int run_cli(int argc, const char* const* argv);

}  // namespace foretoken
