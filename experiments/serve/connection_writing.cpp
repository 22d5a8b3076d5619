// What a connection writes, and how it ends.
#include <tuple>

#include <boost/asio/write.hpp>

#include "experiments/serve/connection.h"
#include "experiments/serve/responses.h"

namespace foretoken::serve {

namespace asio = boost::asio;

namespace {

constexpr int kLingers = 64;  // reads of what nobody wants any more
constexpr std::size_t kLingerBytes = 16 << 10;
constexpr double kLingerSeconds = 2;

}  // namespace

void Connection::respond(const ApiError& error) {
  respond(error.status, kJson, text_of(document_of(error)), error.retry_after);
}

void Connection::respond(int status, const std::string& type, std::string body, std::optional<int> retry_after) {
  account(status);
  answer_.reset();
  if (!body_read_) keep_ = false;
  write(response_of({.status = status,
                     .type = type,
                     .id = id_,
                     .keep = keep_,
                     .old = body_read_ && parser_->get().version() < 11,
                     .retry_after = retry_after},
                    body),
        true);
}

void Connection::write_events(const std::string& events, bool last) {
  const bool chunked = parser_->get().version() >= 11;
  if (!chunked) keep_ = false;
  std::string bytes = begun_ ? "" : stream_head(id_, keep_, chunked);
  bytes += chunked ? chunk_of(events) : events;
  if (last && chunked) bytes += "0\r\n\r\n";
  if (last) {
    account(200);
    answer_.reset();
  }
  write(std::move(bytes), last);
}

// At once as far as the socket takes it, which is nearly always: an operation of its own for each round of 512 streams
// takes as long as a step.
void Connection::write(std::string bytes, bool last) {
  begun_ = writing_ = true;
  out_ = std::move(bytes);
  Failed failed;
  std::ignore = stream_.socket().non_blocking(true, failed);
  const std::size_t sent = stream_.socket().write_some(asio::buffer(out_), failed);
  if (failed && failed != asio::error::would_block) return on_written(failed, last);
  if (sent == out_.size()) return on_written({}, last);
  stream_.expires_after(duration_of(server_.options.write_seconds));
  asio::async_write(stream_, asio::buffer(out_) + sent,
                    [self = shared_from_this(), last](const Failed& failed, std::size_t) {
                      self->stream_.expires_never();
                      self->on_written(failed, last);
                    });
}

void Connection::on_written(const Failed& failed, bool last) {
  writing_ = false;
  if (closed_) return;
  if (failed) {
    if (answer_) {
      server_.metrics.dropped();
      account(499);
    }
    return close();
  }
  if (last) return next();
  if (behind_) wake();
}

// In the access log, and for the metrics and rates, once for each request.
void Connection::account(int status) {
  if (!busy_) return;
  busy_ = false;
  deadline_.cancel();
  const double seconds = std::chrono::duration<double>(Clock::now() - arrived_).count();
  server_.metrics.answered(endpoint_of(path_), status, seconds);
  nlohmann::ordered_json line{{"id", id_},
                              {"client", client_ ? client_->name : ""},
                              {"path", path_.substr(0, 200)},
                              {"status", status},
                              {"seconds", seconds}};
  if (answer_) {
    client_->tokens.give_back(charged_ - answer_->used_tokens(), Clock::now());
    const RoundCounts counts = answer_->counts();
    const double first = answer_->first_token_seconds();
    line.update({{"stream", answer_->streams()},
                 {"prompt_tokens", answer_->prompt_tokens()},
                 {"output_tokens", counts.tokens},
                 {"first_token_seconds", first < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(first)},
                 {"finish", status == 200 ? answer_->finish() : "error"},
                 {"rounds", counts.rounds},
                 {"drafted", counts.drafted},
                 {"accepted", counts.accepted}});
  }
  server_.log.write(std::move(line));
}

void Connection::next() {
  answer_.reset();
  if (!keep_ || server_.draining) return linger();
  read_header();
}

// A socket that is closed with unread bytes may take back what was just sent, so these are read first.
void Connection::linger() {
  Failed ignored;
  std::ignore = stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  stream_.expires_after(duration_of(kLingerSeconds));
  discard();
}

void Connection::discard() {
  buffer_.clear();
  if (++lingers_ > kLingers) return close();
  stream_.async_read_some(buffer_.prepare(kLingerBytes),
                          [self = shared_from_this()](const Failed& failed, std::size_t) {
                            if (failed || self->closed_) return self->close();
                            self->discard();
                          });
}

// What runs for it in the engine is cancelled, and gives back its pages with the next step.
void Connection::close() {
  if (closed_) return;
  closed_ = true;
  answer_.reset();
  deadline_.cancel();
  look_.cancel();
  stream_.close();
}

}  // namespace foretoken::serve
