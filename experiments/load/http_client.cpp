#include "experiments/load/http_client.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <tuple>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <nlohmann/json.hpp>

#include "kernels/error.h"

namespace foretoken {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using nlohmann::json;
using Failed = boost::system::error_code;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostBytes = std::size_t(1) << 30;  // of an answer
constexpr std::size_t kShown = 200;                       // bytes of a refusal

Clock::duration duration_of_seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Events of a stream, as its bytes come.
class EventReader {
 public:
  // Those that are whole now, of `text`, which only grows.
  template <class F> void read(const std::string& text, const F& event) {
    for (std::size_t end; (end = text.find("\n\n", at_)) != text.npos; at_ = end + 2) {
      const std::string_view line(text.data() + at_, end - at_);
      if (line.starts_with("data: ")) event(line.substr(6));
    }
  }

 private:
  std::size_t at_ = 0;
};

// What all connections of a load share.
struct Shared {
  const HttpTarget& target;
  const std::vector<std::string>& bodies;
  const double seconds;
  tcp::resolver::results_type addresses{};
  std::vector<HttpTimes> times{};
  std::size_t ended = 0;
  Clock::time_point start{};
  asio::io_context io{1};

  double now() const { return std::chrono::duration<double>(Clock::now() - start).count(); }
};

// One connection, which sends a request when the one before has ended.
class StreamingClient {
 public:
  StreamingClient(Shared& shared, std::function<void(StreamingClient&)> idle)
      : shared_(shared), idle_(std::move(idle)), stream_(shared.io) {}

  void send(std::size_t request) {
    request_ = request;
    times().began = shared_.now();
    message_ = {http::verb::post, shared_.target.path, 11};
    message_.set(http::field::host, shared_.target.host + ":" + shared_.target.port);
    message_.set(http::field::content_type, "application/json");
    if (!shared_.target.authorization.empty()) message_.set(http::field::authorization, shared_.target.authorization);
    message_.body() = shared_.bodies[request];
    message_.prepare_payload();
    begin(open_);
  }

 private:
  HttpTimes& times() { return shared_.times[request_]; }

  // `kept`: the connection was used before, and the server may have closed it meanwhile.
  void begin(bool kept) {
    kept_ = kept;
    parser_.emplace();
    parser_->body_limit(kMostBytes);
    reader_ = {};
    refusal_.clear();
    buffer_.clear();
    done_ = whole_ = false;
    stream_.expires_after(duration_of_seconds(shared_.seconds));
    if (kept) return write();
    stream_.async_connect(shared_.addresses, [this](const Failed& failed, const tcp::endpoint&) {
      if (failed) return end("no connection: " + failed.message());
      open_ = true;
      Failed ignored;
      std::ignore = stream_.socket().set_option(tcp::no_delay(true), ignored);
      write();
    });
  }
  void write() {
    http::async_write(stream_, message_, [this](const Failed& failed, std::size_t) {
      if (failed) return broken("the request was not taken: ", failed);
      http::async_read_header(stream_, buffer_, *parser_, [this](const Failed& bad, std::size_t) {
        if (bad) return broken("no answer: ", bad);
        kept_ = false;
        take();
        read();
      });
    });
  }
  void read() {
    if (parser_->is_done()) return finish();
    http::async_read_some(stream_, buffer_, *parser_, [this](const Failed& failed, std::size_t) {
      take();
      if (failed && !parser_->is_done()) return broken("the answer is incomplete: ", failed);
      read();
    });
  }
  void take() {
    if (parser_->get().result_int() != 200) return;
    reader_.read(parser_->get().body(), [this](std::string_view event) { hear(event); });
  }
  void hear(std::string_view event) {
    if (event == "[DONE]") {
      whole_ = true;
      return;
    }
    const json document = json::parse(event, nullptr, /*allow_exceptions=*/false);
    if (!document.is_object()) return;
    if (const auto error = document.find("error"); error != document.end() && error->is_object())
      refusal_ = error->value("message", "an error without a sentence");
    if (const auto choices = document.find("choices");
        choices != document.end() && choices->is_array() && !choices->empty())
      times().events.push_back(shared_.now());
    if (const auto usage = document.find("usage"); usage != document.end() && usage->is_object()) {
      times().prompt_tokens = usage->value("prompt_tokens", 0L);
      times().tokens = usage->value("completion_tokens", 0L);
    }
  }
  void finish() {
    const auto& answer = parser_->get();
    if (answer.result_int() != 200) {
      const json document = json::parse(answer.body(), nullptr, /*allow_exceptions=*/false);
      const json::json_pointer message("/error/message");
      const bool told = document.is_object() && document.contains(message) && document.at(message).is_string();
      const std::string why = told ? document.at(message).get<std::string>() : answer.body().substr(0, kShown);
      if (!answer.keep_alive()) shut();
      return end("status " + std::to_string(answer.result_int()) + ": " + why);
    }
    if (!answer.keep_alive()) shut();
    if (!refusal_.empty()) return end(refusal_);
    if (!whole_) return end("the stream has no end ([DONE]); was it a stream?");
    if (times().tokens < 1 || times().events.empty())
      return end("the server tells no usage of a stream, so that tokens cannot be counted");
    end("");
  }
  void broken(const std::string& what, const Failed& failed) {
    shut();
    if (kept_ && failed != beast::error::timeout && parser_ && !parser_->got_some()) return begin(false);
    if (failed == beast::error::timeout)
      return end("it took longer than the " + std::to_string(int(shared_.seconds)) + " s that it may");
    end(refusal_.empty() ? what + failed.message() : refusal_);
  }
  void shut() {
    open_ = false;
    stream_.close();
  }
  void end(const std::string& failure) {
    if (done_) return;
    done_ = true;
    stream_.expires_never();
    times().ended = shared_.now();
    times().failure = failure;
    ++shared_.ended;
    idle_(*this);
  }

  Shared& shared_;
  std::function<void(StreamingClient&)> idle_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> message_;
  std::optional<http::response_parser<http::string_body>> parser_;
  EventReader reader_;
  std::string refusal_;
  std::size_t request_ = 0;
  bool open_ = false, kept_ = false, done_ = false, whole_ = false;
};

// All requests of a load: in a closed loop each connection sends the next one when it is idle; in an open loop each is
// sent when it arrives, by an idle connection or a new one.
class LoadRunner {
 public:
  LoadRunner(Shared& shared, const HttpLoad& load) : shared_(shared), load_(load), arrival_(shared.io) {}

  void start() {
    if (open()) return arrive();
    const std::size_t first = std::min(std::size_t(load_.concurrency), shared_.bodies.size());
    for (std::size_t i = 0; i < first; ++i) send(made());
  }

 private:
  bool open() const { return !load_.arrivals.empty(); }
  StreamingClient& made() {
    return clients_.emplace_back(shared_, [this](StreamingClient& client) {
      idle_.push_back(&client);
      // Behind what called, so that failures do not pile up.
      if (!open() && (!load_.waves || idle_.size() == clients_.size())) asio::post(shared_.io, [this] { send_next(); });
    });
  }
  void send_next() {
    for (std::vector<StreamingClient*> idle = std::exchange(idle_, {}); StreamingClient * client : idle)
      if (next_ < shared_.bodies.size()) send(*client);
  }
  void send(StreamingClient& client) {
    const std::size_t request = next_++;
    shared_.times[request].arrived = open() ? load_.arrivals[request] : shared_.now();
    client.send(request);
  }
  void arrive() {
    while (next_ < shared_.bodies.size() && load_.arrivals[next_] <= shared_.now()) {
      StreamingClient* client = nullptr;
      if (!idle_.empty()) {
        client = idle_.back();
        idle_.pop_back();
      }
      send(client ? *client : made());
    }
    if (next_ >= shared_.bodies.size()) return;
    arrival_.expires_at(shared_.start + duration_of_seconds(load_.arrivals[next_]));
    arrival_.async_wait([this](const Failed& failed) {
      if (!failed) arrive();
    });
  }

  Shared& shared_;
  const HttpLoad& load_;
  std::deque<StreamingClient> clients_;
  std::vector<StreamingClient*> idle_;
  std::size_t next_ = 0;
  asio::steady_timer arrival_;
};

}  // namespace

HttpTarget target_of_url(const std::string& url) {
  const std::string scheme = "http://";
  std::string rest = url.starts_with(scheme) ? url.substr(scheme.size()) : "";
  while (rest.ends_with('/')) rest.pop_back();
  if (rest.ends_with("/v1")) rest.resize(rest.size() - 3);
  const std::size_t colon = rest.rfind(':'), bracket = rest.rfind(']');
  const bool has_port = colon != rest.npos && (bracket == rest.npos || colon > bracket);
  std::string host = has_port ? rest.substr(0, colon) : rest;
  const std::string port = has_port ? rest.substr(colon + 1) : "80";
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty() || host.find_first_of("/?# @[]") != host.npos || port.empty() || port.size() > 5 ||
      port.find_first_not_of("0123456789") != port.npos)
    throw Error("'" + url + "' is no address of a server; write --url http://HOST:PORT (TLS is a proxy's)");
  return {.host = host, .port = port, .path = "/v1/completions", .authorization = ""};
}

std::vector<HttpTimes> stream_over_http(const HttpTarget& target, const std::vector<std::string>& bodies,
                                        const HttpLoad& load, const std::function<void(std::size_t)>& meanwhile) {
  Shared shared{.target = target, .bodies = bodies, .seconds = load.seconds};
  shared.times.resize(bodies.size());
  Failed failed;
  shared.addresses = tcp::resolver(shared.io).resolve(target.host, target.port, failed);
  if (failed || shared.addresses.empty())
    throw Error("--url names " + target.host + ", which has no address: " + failed.message());
  shared.start = Clock::now();
  LoadRunner runner(shared, load);
  runner.start();
  while (shared.ended < bodies.size()) {
    shared.io.restart();
    shared.io.run_for(std::chrono::milliseconds(50));
    meanwhile(shared.ended);
  }
  return std::move(shared.times);
}

}  // namespace foretoken
