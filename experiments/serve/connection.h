// One connection: requests of HTTP/1.1, one after another. It is its server's thread's, and lives as long as something
// is to come of it. This module must not know how requests are served.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "experiments/serve/answer.h"
#include "experiments/serve/api_error.h"
#include "experiments/serve/server_state.h"

namespace foretoken::serve {

inline std::chrono::nanoseconds duration_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, ServerState& server);
  ~Connection();

  void start();
  // Ends it where it serves no request, else after that.
  void drain();
  // Ends it now: what it serves is answered with an error, or left incomplete.
  void end();

 private:
  using Failed = boost::system::error_code;
  using Clock = std::chrono::steady_clock;
  struct Prepared;  // a request that the engine has, or why not

  // Reading.
  void read_header();
  void on_header(const Failed& failed);
  void expect_welcome();  // an ApiError where the request is refused whatever its body says
  void expect_rate(RateLimit& limit, const char* what);
  void read_body();
  void on_body(const Failed& failed);
  // Serving.
  void route();
  void prepare(Endpoint endpoint);
  void prepared(Prepared& prepared);
  void wake();
  void ask_filter();
  void on_verdict(std::size_t output, Verdict verdict);
  void give_up(const ApiError& error);
  void on_deadline();
  void watch();
  void watch_behind_bytes();
  void on_gone();
  // Writing.
  void respond(int status, const std::string& type, std::string body, std::optional<int> retry_after = {});
  void respond(const ApiError& error);
  void write_events(const std::string& events, bool last);
  void write(std::string bytes, bool last);
  void on_written(const Failed& failed, bool last);
  void account(int status);
  void next();
  void linger();
  void discard();
  void close();

  ServerState& server_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  boost::asio::steady_timer deadline_, look_;
  // Of the request that is read or served:
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  std::string id_, path_, out_;
  std::string judged_;  // events that a filter has let through, and which are not yet written
  Client* client_ = nullptr;
  Clock::time_point arrived_;
  std::unique_ptr<Answer> answer_;
  double charged_ = 0;  // tokens, to the client's rate
  std::shared_ptr<std::atomic<bool>> woken_ = std::make_shared<std::atomic<bool>>(false);
  bool busy_ = false;     // a request was read and is not yet answered
  bool begun_ = false;    // bytes of its answer were written
  bool writing_ = false;  // an operation is under way
  bool behind_ = false;   // rounds came while one was
  bool keep_ = false;     // the connection, after the answer
  bool body_read_ = false;
  bool watching_ = false;  // for the client's end
  bool closed_ = false;
  int lingers_ = 0;  // reads of what nobody wants any more
};

}  // namespace foretoken::serve
