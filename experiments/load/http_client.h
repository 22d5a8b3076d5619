// Streams of a server of OpenAI's API, many at once, and when their parts came (Boost.Beast, one thread). This module
// must not know what is asked, or what is made of the times.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace foretoken {

struct HttpTarget {
  std::string host, port, path;  // of the requests
  std::string authorization;     // value of the header of this name; empty: none
};

// Of "http://HOST:PORT", with or without /v1, the completions; anything else is an Error.
HttpTarget target_of_url(const std::string& url);

struct HttpTimes {
  double arrived = 0, began = 0;  // seconds after the first arrival: when it was to be sent, and when it was
  std::vector<double> events;     // likewise: when text, or a reason for the end, came
  double ended = 0;
  long prompt_tokens = 0, tokens = 0;  // as the server counts them
  std::string failure;                 // one sentence; empty: it was whole
};

struct HttpLoad {
  // Open loop: when requests arrive, seconds after the first one, ascending. Empty: closed loop.
  std::vector<double> arrivals = {};
  bool waves = false;    // of a closed loop: the next ones are sent when all have ended, as static batching has it
  int concurrency = 1;   // of a closed loop: requests at once
  double seconds = 600;  // for each request
};

// Bodies of streams with usage ("stream_options": {"include_usage": true}), of which each is sent once; a connection
// serves one after another. `meanwhile` is called twenty times a second with the number of those that have ended, and
// may throw to stop. A request that fails is in its times, and no Error; a host without an address is one.
std::vector<HttpTimes> stream_over_http(const HttpTarget& target, const std::vector<std::string>& bodies,
                                        const HttpLoad& load, const std::function<void(std::size_t)>& meanwhile);

}  // namespace foretoken
