#include "experiments/serve/connection.h"

#include <tuple>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/version.hpp>
#include <poll.h>
#include <sys/socket.h>

#include "experiments/serve/responses.h"
#include "kernels/error.h"

namespace foretoken::serve {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

constexpr std::uint32_t kHeaderBytes = 16 << 10;
constexpr std::size_t kLongBody = 16 << 10;      // bytes
constexpr std::chrono::milliseconds kLook(100);  // between two looks whether a client is there
constexpr int kSendBuffer = 256 << 10;           // bytes that a client may be behind before writing to it waits

std::string path_of(std::string_view target) { return std::string(target.substr(0, target.find('?'))); }

ApiError filter_failure() {
  return ApiError(503, "the filter of prompts and outputs does not answer, and nothing passes without it; try again",
                  "", "content_filter");
}

void expect_allowed(ServerState& server, const ApiRequest& request) {
  if (!server.options.filter) return;
  const Verdict verdict = server.options.filter->judge("prompt", server.model.text_of_prompts(request));
  if (verdict == Verdict::none) throw filter_failure();
  if (verdict == Verdict::allowed) return;
  server.metrics.refused("filter");
  throw ApiError(400, "the filter of prompts and outputs does not allow this prompt", "prompt", "content_filter");
}

}  // namespace

struct Connection::Prepared {
  std::string id;  // of the request
  ApiRequest request = {};
  std::vector<SubmittedOutput> outputs = {};
  std::optional<ApiError> error = {};
};

Connection::Connection(asio::ip::tcp::socket socket, ServerState& server)
    : server_(server), stream_(std::move(socket)), deadline_(server.io), look_(server.io) {
  server_.connections.insert(this);
}

Connection::~Connection() {
  server_.connections.erase(this);
  server_.closed();
}

void Connection::start() {
  Failed ignored;
  std::ignore = stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  std::ignore = stream_.socket().set_option(asio::socket_base::send_buffer_size(kSendBuffer), ignored);
  read_header();
}

void Connection::drain() {
  if (!busy_ && !writing_) close();
  keep_ = false;
}

void Connection::end() {
  if (answer_ || (busy_ && body_read_))
    give_up(ApiError(503, "the server is ending, and this request took longer than it waits for"));
  else
    close();
}

// Reading ------------------------------------------------------------------------------------------------------------

void Connection::read_header() {
  parser_.emplace();
  parser_->header_limit(kHeaderBytes);
  parser_->body_limit(server_.options.body_bytes);
  client_ = nullptr;
  path_.clear();
  id_.clear();  // what is still prepared for the request before is nobody's
  charged_ = 0;
  judged_.clear();
  busy_ = begun_ = keep_ = body_read_ = false;
  stream_.expires_after(duration_of(server_.options.read_seconds));
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](const Failed& failed, std::size_t) { self->on_header(failed); });
}

void Connection::on_header(const Failed& failed) {
  if (closed_) return;
  arrived_ = Clock::now();
  id_ = server_.new_id();
  if (failed == http::error::end_of_stream || failed == beast::error::timeout) return close();
  const auto& header = parser_->get();
  path_ = path_of({header.target().data(), header.target().size()});
  busy_ = true;
  try {
    if (failed == http::error::body_limit)
      throw ApiError(413, "the body is larger than the " + std::to_string(server_.options.body_bytes) +
                              " bytes that are read; shorten it");
    if (failed == http::error::header_limit)
      throw ApiError(431, "the header is larger than the " + std::to_string(kHeaderBytes) + " bytes that are read");
    if (failed && failed.category() != make_error_code(http::error::bad_method).category()) return close();
    if (failed) throw ApiError(400, "this is no request of HTTP/1.1: " + failed.message());
    expect_welcome();
  } catch (const ApiError& e) {
    return respond(e);
  } catch (const std::exception& e) {
    return respond(ApiError(500, std::string("this should not happen, please report it: ") + e.what()));
  }
  read_body();
}

void Connection::expect_welcome() {
  const auto& header = parser_->get();
  expect_route({header.method_string().data(), header.method_string().size()}, path_);
  if (path_ == "/health") return;
  if (const auto host = header[http::field::host]; !server_.keys.needed())
    expect_host({host.data(), host.size()}, server_.options.hosts);
  const auto authorization = header[http::field::authorization];
  client_ = server_.keys.find({authorization.data(), authorization.size()});
  if (!client_) {
    server_.metrics.refused("key");
    throw ApiError(401, "no key that is known here came with the request; send the header Authorization: Bearer KEY",
                   "", "invalid_api_key");
  }
  if (header.method() != http::verb::post) return;
  if (server_.draining) throw ApiError(503, "the server is ending and takes no more requests");
  const auto type = header[http::field::content_type];
  if (!beast::iequals(type.substr(0, std::min(type.find(';'), type.size())), "application/json"))
    throw ApiError(415, "the body must be JSON; send the header Content-Type: application/json");
  expect_rate(client_->requests, "requests");
  expect_rate(client_->tokens, "tokens");
  client_->requests.use(1, arrived_);
}

void Connection::expect_rate(RateLimit& limit, const char* what) {
  const double wait = limit.seconds_until(1, Clock::now());
  if (wait <= 0) return;
  server_.metrics.refused(what);
  ApiError error(429,
                 "the rate of " + std::string(what) + " of '" + client_->name + "' is used up; try again in " +
                     std::to_string(int(wait) + 1) + " s",
                 "", "rate_limit_exceeded");
  error.retry_after = int(wait) + 1;
  throw error;
}

void Connection::read_body() {
  const auto read = [self = shared_from_this()] {
    http::async_read(self->stream_, self->buffer_, *self->parser_,
                     [self](const Failed& failed, std::size_t) { self->on_body(failed); });
  };
  stream_.expires_after(duration_of(server_.options.read_seconds));
  if (!beast::iequals(parser_->get()[http::field::expect], "100-continue") || parser_->is_done()) return read();
  static const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(stream_, asio::buffer(go_on), [self = shared_from_this(), read](const Failed& failed, std::size_t) {
    if (failed) return self->close();
    read();
  });
}

void Connection::on_body(const Failed& failed) {
  if (closed_) return;
  if (failed == http::error::body_limit)
    return respond(ApiError(413, "the body is larger than the " + std::to_string(server_.options.body_bytes) +
                                     " bytes that are read; shorten it"));
  if (failed) {
    server_.metrics.dropped();
    account(failed == beast::error::timeout ? 408 : 499);
    return close();
  }
  body_read_ = true;
  keep_ = parser_->get().keep_alive() && !server_.draining;
  stream_.expires_never();
  route();
}

// Serving ------------------------------------------------------------------------------------------------------------

void Connection::route() {
  if (path_ == "/v1/completions") return prepare(Endpoint::completions);
  if (path_ == "/v1/chat/completions") return prepare(Endpoint::chat);
  EngineLoop& loop = server_.model.loop();
  if (path_ == "/health") {
    const std::string broken = loop.broken();
    if (!broken.empty())
      return respond(ApiError(503, server_.model.for_clients("no request is served any more: " + broken)));
    if (server_.draining) return respond(ApiError(503, "the server is ending"));
    return respond(200, kJson, R"({"status":"ok"})");
  }
  if (path_ == "/metrics")
    return respond(200, "text/plain; version=0.0.4; charset=utf-8",
                   server_.metrics.text({.waiting = loop.waiting(),
                                         .running = loop.running(),
                                         .connections = server_.connections.size(),
                                         .pages = server_.model.engine().pool().pages()}));
  if (path_ != "/v1/models" && path_ != "/v1/models/" + server_.name)
    return respond(ApiError(404,
                            "the model '" + path_.substr(std::string("/v1/models/").size()) +
                                "' is not served here, but '" + server_.name + "'",
                            "model", "model_not_found"));
  respond(200, kJson, models_document(server_.name, path_ != "/v1/models"));
}

// On the other thread, since a step of the engine is not to wait for a long prompt.
void Connection::prepare(Endpoint endpoint) {
  watch();
  deadline_.expires_at(arrived_ + duration_of(server_.options.request_seconds));
  deadline_.async_wait([self = shared_from_this(), of = id_](const Failed& failed) {
    if (!failed && self->id_ == of) self->on_deadline();
  });
  std::string& whole = parser_->get().body();
  asio::post(whole.size() > kLongBody ? server_.workers_of_long : server_.workers,
             [self = shared_from_this(), id = id_, endpoint, body = std::move(whole)]() mutable {
               const auto made = std::make_shared<Prepared>(Prepared{.id = std::move(id)});
               ServerState& server = self->server_;
               try {
                 made->request = read_request(endpoint, body, server.model.standard(), server.model.limits());
                 expect_model(made->request.model, server.name);
                 expect_allowed(server, made->request);
                 made->outputs = server.model.submit(made->request);
               } catch (const ApiError& e) {
                 made->error = e;
               } catch (const Error& e) {
                 made->error = ApiError(400, server.model.for_clients(e.what()));
               } catch (const std::bad_alloc&) {
                 made->error = ApiError(503, "there is no memory for this request; try again later, or shorten it");
               } catch (const std::exception& e) {
                 made->error = ApiError(500, std::string("this should not happen, please report it: ") + e.what());
               }
               // The connection goes back to its thread with what was made, so that neither ends here.
               asio::post(server.io, [self = std::move(self), made] { self->prepared(*made); });
             });
}

void Connection::prepared(Prepared& made) {
  if (closed_ || begun_ || id_ != made.id) return;  // gone meanwhile, or too late: the outputs are cancelled
  if (made.error) {
    if (made.error->status == 429) server_.metrics.refused("queue");
    return respond(*made.error);
  }
  try {
    expect_rate(client_->tokens, "tokens");  // others may have used it since
  } catch (const ApiError& e) {
    return respond(e);
  }
  answer_ = std::make_unique<Answer>(
      std::move(made.request), std::move(made.outputs),
      Answer::Context{
          .tokenizer = server_.model.tokenizer(),
          .model = server_.name,
          .id = id_,
          .arrived = arrived_,
          .metrics = server_.metrics,
          .judged_bytes = server_.options.filter ? std::max<std::size_t>(1, server_.options.filter_bytes) : 0});
  charged_ = answer_->granted_tokens();
  client_->tokens.use(charged_, Clock::now());
  // Many rounds may come before this thread hears of the first.
  answer_->listen([&io = server_.io, woken = woken_, weak = weak_from_this()] {
    if (woken->exchange(true)) return;
    asio::post(io, [woken, weak] {
      *woken = false;
      if (const auto self = weak.lock()) self->wake();
    });
  });
}

void Connection::wake() {
  if (!answer_ || closed_) return;
  if (writing_) {
    behind_ = true;
    return;
  }
  const std::string events = std::exchange(judged_, {}) + answer_->read(std::exchange(behind_, false));
  if (const std::string why = answer_->failure(); !why.empty())
    return give_up(ApiError(500, server_.model.for_clients(why)));
  if (server_.options.filter) ask_filter();
  if (!answer_->streams()) {
    if (answer_->ended()) respond(200, kJson, answer_->document());
    return;
  }
  if (!events.empty()) write_events(events, answer_->ended());
}

void Connection::ask_filter() {
  for (const auto& [output, text] : answer_->to_judge())
    server_.options.filter->ask(
        "output", text, [&io = server_.io, weak = weak_from_this(), id = id_, output = output](Verdict verdict) {
          asio::post(io, [weak, id, output, verdict] {
            if (const auto self = weak.lock(); self && self->id_ == id) self->on_verdict(output, verdict);
          });
        });
}

void Connection::on_verdict(std::size_t output, Verdict verdict) {
  if (!answer_ || closed_) return;
  if (verdict == Verdict::none) return give_up(filter_failure());
  if (verdict == Verdict::refused) server_.metrics.refused("filter");
  judged_ += answer_->judged(output, verdict == Verdict::allowed);
  wake();
}

void Connection::on_deadline() {
  if (busy_ && !closed_)
    give_up(ApiError(504, "the request took longer than the " + std::to_string(int(server_.options.request_seconds)) +
                              " s that it may; ask for fewer tokens"));
}

// A stream that was begun ends with an event, and without its last chunk, so that no client takes it for whole.
void Connection::give_up(const ApiError& error) {
  if (!begun_ && !writing_) return respond(error);
  if (answer_ && !writing_ && answer_->streams()) {
    account(error.status);
    answer_.reset();
    keep_ = false;
    const std::string event = "data: " + text_of(document_of(error)) + "\n\n";
    return write(parser_->get().version() >= 11 ? chunk_of(event) : event, true);
  }
  account(error.status);
  close();
}

// A client that goes while nothing is sent to it would not be noticed: its tokens are not to be computed.
void Connection::watch() {
  if (watching_) return;
  watching_ = true;
  stream_.socket().async_wait(asio::socket_base::wait_read, [self = shared_from_this()](const Failed& failed) {
    self->watching_ = false;
    if (failed || self->closed_ || !self->busy_) return;
    char byte = 0;
    const auto have = ::recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (have > 0) return self->watch_behind_bytes();  // it has sent the next request already, and waits for both
    if (have < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return self->watch();
    self->on_gone();
  });
}

// A socket with unread bytes is readable all the time, so that it is asked now and then whether its other end is there.
void Connection::watch_behind_bytes() {
  watching_ = true;
  look_.expires_after(kLook);
  look_.async_wait([self = shared_from_this()](const Failed& failed) {
    self->watching_ = false;
    if (failed || self->closed_ || !self->busy_) return;
    pollfd socket{.fd = self->stream_.socket().native_handle(), .events = POLLRDHUP, .revents = 0};
    if (::poll(&socket, 1, 0) > 0) return self->on_gone();
    self->watch_behind_bytes();
  });
}

void Connection::on_gone() {
  server_.metrics.dropped();
  account(499);
  close();
}

}  // namespace foretoken::serve
