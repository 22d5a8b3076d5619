#include "experiments/serve/server.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <tuple>

#include <boost/asio/signal_set.hpp>
#include <sys/resource.h>

#include "experiments/serve/connection.h"
#include "kernels/error.h"

namespace foretoken::serve {

namespace asio = boost::asio;
using asio::ip::tcp;
using Failed = boost::system::error_code;

namespace {

constexpr std::size_t kOtherDescriptors = 128;  // of files, devices and the like

// As many connections as the process may have descriptors for, whose limit is raised as far as it may be.
std::size_t possible_connections(std::size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min<rlim_t>(limit.rlim_max, wanted + kOtherDescriptors));
  setrlimit(RLIMIT_NOFILE, &limit);
  return std::min<std::size_t>(wanted, std::max<rlim_t>(limit.rlim_cur, kOtherDescriptors + 1) - kOtherDescriptors);
}

tcp::endpoint endpoint_of(asio::io_context& io, const std::string& host, int port) {
  Failed failed;
  const auto found = tcp::resolver(io).resolve(host, std::to_string(port), tcp::resolver::passive, failed);
  if (failed || found.empty())
    throw Error("--host " + host + " is no address of this machine: " + failed.message() +
                "; 127.0.0.1 is reached from here alone, 0.0.0.0 from everywhere");
  return found.begin()->endpoint();
}

}  // namespace

std::string ServerState::new_id() {
  char digits[25];
  std::snprintf(digits, sizeof digits, "%016llx%08llx", static_cast<unsigned long long>(draw()),
                static_cast<unsigned long long>(draw() & 0xffffffffu));
  return digits;
}

struct Server::Parts {
  Parts(ServedModel& model, Keys& keys, Metrics& metrics, AccessLog& log, const ServerOptions& options)
      : state{.model = model,
              .keys = keys,
              .metrics = metrics,
              .log = log,
              .options = options,
              .name = options.name.empty() ? model.name() : options.name} {
    state.options.connections = possible_connections(options.connections);
    state.closed = [this] { on_closed(); };
    listen();
  }

  void listen() {
    const tcp::endpoint at = endpoint_of(state.io, state.options.host, state.options.port);
    Failed failed;
    failed = acceptor.open(at.protocol(), failed);
    if (!failed) failed = acceptor.set_option(tcp::acceptor::reuse_address(true), failed);
    if (!failed) failed = acceptor.bind(at, failed);
    if (!failed) failed = acceptor.listen(tcp::acceptor::max_listen_connections, failed);
    if (failed)
      throw Error("port " + std::to_string(state.options.port) + " of " + state.options.host +
                  " cannot be listened to: " + failed.message() + "; choose another with --port, or 0 for any");
  }

  void accept() {
    if (accepting || state.draining || state.connections.size() >= state.options.connections) return;
    accepting = true;
    acceptor.async_accept([this](const Failed& failed, tcp::socket socket) {
      accepting = false;
      if (failed == asio::error::operation_aborted) return;
      if (failed) return accept_later();  // no descriptors are left
      std::make_shared<Connection>(std::move(socket), state)->start();
      accept();
    });
  }
  void accept_later() {
    pause.expires_after(std::chrono::milliseconds(100));
    pause.async_wait([this](const Failed& failed) {
      if (!failed) accept();
    });
  }

  void on_closed() {
    if (state.draining && state.connections.empty())
      state.io.stop();
    else if (!state.draining)
      accept();
  }

  void each_connection(void (Connection::*f)()) {
    std::vector<std::shared_ptr<Connection>> all;  // one that ends leaves the set
    for (Connection* c : state.connections)
      if (auto held = c->weak_from_this().lock()) all.push_back(std::move(held));
    for (const auto& c : all) ((*c).*f)();
  }

  void drain() {
    if (state.draining) return;
    state.draining = true;
    Failed ignored;
    std::ignore = acceptor.close(ignored);
    each_connection(&Connection::drain);
    if (state.connections.empty()) return state.io.stop();
    patience.expires_after(std::chrono::milliseconds(std::int64_t(1000 * state.options.drain_seconds)));
    patience.async_wait([this](const Failed& failed) {
      if (failed) return;
      each_connection(&Connection::end);
      patience.expires_after(std::chrono::seconds(3));  // for their last words
      patience.async_wait([this](const Failed& f) {
        if (!f) state.io.stop();
      });
    });
  }

  void on_signal() {
    signals.async_wait([this](const Failed& failed, int) {
      if (failed) return;
      if (state.draining) return state.io.stop();  // the second one
      drain();
      on_signal();
    });
  }

  ServerState state;
  tcp::acceptor acceptor{state.io};
  asio::signal_set signals{state.io};
  asio::steady_timer pause{state.io}, patience{state.io};
  bool accepting = false;
};

Server::Server(ServedModel& model, Keys& keys, Metrics& metrics, AccessLog& log, const ServerOptions& options)
    : parts_(std::make_unique<Parts>(model, keys, metrics, log, options)) {}

Server::~Server() {
  ServerState& state = parts_->state;
  state.draining = true;
  parts_->each_connection(&Connection::end);
  if (state.options.filter) state.options.filter->stop();  // whose verdicts come to this server's thread
  for (auto* workers : {&state.workers, &state.workers_of_long}) workers->stop();  // what is queued is nobody's
  for (auto* workers : {&state.workers, &state.workers_of_long}) workers->join();
  state.closed = [] {};
}

int Server::port() const { return parts_->acceptor.local_endpoint().port(); }

std::string Server::url() const {
  const auto address = parts_->acceptor.local_endpoint().address();
  return "http://" + (address.is_v6() ? "[" + address.to_string() + "]" : address.to_string()) + ":" +
         std::to_string(port());
}

void Server::watch_signals() {
  parts_->signals.add(SIGTERM);
  parts_->signals.add(SIGINT);
  parts_->on_signal();
}

void Server::run() {
  parts_->accept();
  parts_->state.io.run();
}

void Server::stop() {
  asio::post(parts_->state.io, [parts = parts_.get()] { parts->drain(); });
}

}  // namespace foretoken::serve
