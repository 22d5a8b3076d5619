// A server over the demo models in this process, and clients of it over loopback sockets.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <gtest/gtest.h>

#include "experiments/serve/server.h"

namespace foretoken::test {

using nlohmann::json;

// The demo pair: drafts of three tokens, one thread, greedy where a request does not say. Servers below take the plain
// template of conversations.
json demo_run(int batch = 64);
// The tokens that an engine of the same run gives `prompt`, alone and without a server, as text.
std::string text_alone(const json& run, const std::string& prompt, int max_tokens, double temperature = 0,
                       std::uint64_t seed = 1, std::uint64_t sample = 0, bool ignore_eos = true);

struct Answered {
  int status = 0;
  std::string body;
  std::string retry_after = {};
  json document() const { return json::parse(body); }
  std::string message() const { return document().at("error").at("message"); }
  // Of a stream: the data of each event, in order.
  std::vector<std::string> events() const;
  // Of a stream: the documents of its events, without the last, which is "[DONE]".
  std::vector<json> documents() const;
  std::string streamed_text(int index = 0) const;
};

class TestClient {
 public:
  explicit TestClient(int port);
  // Any bytes.
  void send(const std::string& bytes);
  std::string read_some();  // empty: the server has closed
  void read_byte();         // or nothing, where the server has closed
  std::size_t available() { return socket_.available(); }
  void half_close() { socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send); }
  void close() { socket_.close(); }
  Answered read();
  Answered post_bytes(const std::string& path, const std::string& body, const std::string& headers = "");
  Answered post(const std::string& path, const json& body, const std::string& headers = "") {
    return post_bytes(path, body.dump(), headers);
  }
  Answered get(const std::string& path, const std::string& headers = "");

 private:
  boost::asio::io_context io_;
  boost::asio::ip::tcp::socket socket_{io_};
  boost::beast::flat_buffer buffer_;
};

std::string post_text(const std::string& path, const std::string& body, const std::string& headers = "");

// A model with its server, which runs in a thread of its own until this ends.
class RunningServer {
 public:
  struct Options {
    json run = demo_run();
    std::size_t waiting = 256;
    std::function<void()> after_step{};
    serve::RequestLimits limits{};
    serve::ServerOptions server{};
    serve::Keys keys{};
    std::string chat_template = std::string(FORETOKEN_SOURCE_DIR) + "/experiments/serve/plain.jinja";
    std::string log = "none";
  };
  RunningServer();
  explicit RunningServer(Options options);
  ~RunningServer();

  int port() const { return port_; }
  TestClient client() const { return TestClient(port_); }
  Answered post(const std::string& path, const json& body) const { return client().post(path, body); }
  Answered complete(json body) const { return post("/v1/completions", body); }
  serve::ServedModel& model() { return *model_; }
  serve::Server& server() { return *server_; }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  // The value of a line of /metrics that begins so.
  double metric(const std::string& beginning) const;
  // Whether no request is left in the engine, and no page in use, before so many seconds have passed.
  bool idle_within(double seconds);

 private:
  serve::Metrics metrics_{"demo"};
  serve::AccessLog log_;
  serve::Keys keys_;
  std::unique_ptr<serve::ServedModel> model_;
  std::unique_ptr<serve::Server> server_;
  int port_ = 0;
  std::thread thread_;
};

// Holds the engine behind each step until it is opened.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    --waiting_;
  }
  void set(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  bool reached() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return waiting_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int waiting_ = 0;
};

struct GatedServer {
  Gate gate;
  RunningServer server;
  explicit GatedServer(RunningServer::Options options = {}) : server(gated(std::move(options))) {}
  ~GatedServer() { gate.set(true); }
  RunningServer::Options gated(RunningServer::Options options) {
    options.after_step = [this] { gate.pass(); };
    return options;
  }
};

}  // namespace foretoken::test
