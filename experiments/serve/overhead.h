// What a server costs: streams of its clients beside the same requests of the engine's loop alone, in one process. This
// module must not know the command line.
#pragma once
#include <string>

#include "experiments/serve/server.h"

namespace foretoken::serve {

struct OverheadOptions {
  int streams = 64;  // at once
  int tokens = 64;   // of each
  int repeats = 3;   // alternations, of which medians are told
};

// A table of tokens per second, the time to the first token and the time between two rounds of a stream, alone and
// served, over loopback sockets. The server's thread must be running. A lost token is an Error.
std::string measured_overhead(ServedModel& model, Server& server, const OverheadOptions& options);

}  // namespace foretoken::serve
