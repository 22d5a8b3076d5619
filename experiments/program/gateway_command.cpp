// `foretoken gateway`: HAProxy before several servers.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "experiments/program/commands.h"
#include "experiments/serve/gateway.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

struct GatewayFlags {
  serve::GatewayOptions options;
  std::string keys, route = "least";
  serve::Rates rates;
  bool print_only = false;
};

// A file without a name, which HAProxy inherits, so that nothing is left lying about.
std::string inherited_file(const std::string& text) {
  const int file = ::memfd_create("foretoken gateway", 0);
  if (file < 0 || ::write(file, text.data(), text.size()) != ::ssize_t(text.size()))
    throw Error(std::string("the gateway's configuration cannot be written: ") + std::strerror(errno) +
                "; write it with --print, and start haproxy -db -f FILE");
  return "/proc/self/fd/" + std::to_string(file);
}

int run_gateway(GatewayFlags& g) {
  if (g.route == "prefix") g.options.route = serve::Route::prefix;
  if (g.route == "concurrency") g.options.route = serve::Route::concurrency;
  const std::string text =
      serve::haproxy_configuration(g.options, g.keys.empty() ? serve::Keys(g.rates) : serve::Keys(g.keys, g.rates));
  if (g.print_only) {
    print(text);
    return 0;
  }
  const std::string file = inherited_file(text);
  std::fprintf(stderr, "foretoken: HAProxy takes requests at http://%s:%d/v1 for %zu replicas\n",
               g.options.host.c_str(), g.options.port, g.options.replicas.size() + g.options.few.size());
  std::fflush(nullptr);
  ::execlp("haproxy", "haproxy", "-db", "-f", file.c_str(), static_cast<char*>(nullptr));
  throw Error(std::string("haproxy cannot be started: ") + std::strerror(errno) +
              "; install it (apt install haproxy), or write its configuration with --print");
}

}  // namespace

void add_gateway(Commands& all) {
  const auto [c, g] = all.add_subcommand("gateway", "one address for several servers, by HAProxy", run_gateway);
  add_list_option(c, "--replicas", g.options.replicas, "HOST:PORT of each server")->required();
  add_shown(c, "--route", g.route,
            "least: the fewest requests; prefix: by the first bytes of prompts; concurrency: --few before the others")
      ->check(CLI::IsMember({"least", "prefix", "concurrency"}));
  add_list_option(c, "--few", g.options.few, "HOST:PORT of servers for few requests, as those of tensor parallelism");
  add_shown(c, "--few-requests", g.options.few_requests, "the most that these have, of all clients")
      ->check(CLI::Range(1, 1 << 20));
  add_shown(c, "--prefix-bytes", g.options.prefix_bytes, "of prompts, by which --route prefix chooses")
      ->check(CLI::Range(1, 1 << 16));
  c.add_option("--keys", g.keys, "file of keys as foretoken serve reads it: requests without one end here");
  add_shown(c, "--requests-per-minute", g.rates.requests_per_minute,
            "of each key, or without keys of each address; 0: no limit");
  add_shown(c, "--connections-per-address", g.options.connections_per_address, "open at once; 0: no limit")
      ->check(CLI::Range(0, 1 << 20));
  add_repeatable(c, "--allow-host", g.options.hosts,
                 "name in the header Host that is allowed where no key is asked for; may be given again");
  add_shown(c, "--host", g.options.host, "address that is listened at");
  add_shown(c, "--port", g.options.port, "likewise")->check(CLI::Range(1, 65535));
  add_shown(c, "--metrics-port", g.options.metrics_port, "of its own figures for Prometheus, on loopback; 0: none")
      ->check(CLI::Range(0, 65535));
  add_shown(c, "--running", g.options.running, "the most requests of one replica at once, others wait; 0: no limit")
      ->check(CLI::Range(0, 1 << 20));
  add_shown(c, "--request-seconds", g.options.request_seconds, "until the first byte of an answer, and between two")
      ->check(number_within(0.01, 1e6));
  c.add_flag("--print", g.print_only, "print the configuration and start nothing");
}

}  // namespace foretoken
