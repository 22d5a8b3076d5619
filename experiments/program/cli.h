// The command line: one subcommand per job, errors as one sentence, exit codes (0 well, 1 failed, 2 usage, 130 Ctrl-C).
#pragma once

namespace foretoken {

int run_cli(int argc, const char* const* argv);

}  // namespace foretoken
