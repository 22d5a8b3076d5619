#include "experiments/serve/overhead.h"

#include <algorithm>
#include <cstdio>
#include <mutex>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include "experiments/serve/api_error.h"
#include "kernels/error.h"

namespace foretoken::serve {

namespace asio = boost::asio;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_from(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at = values.begin() + std::ptrdiff_t(share * double(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

struct Figures {
  double tokens_per_second = 0, first_p50 = 0, first_p99 = 0, gap_p50 = 0, gap_p99 = 0;
};
constexpr std::array kFigures{&Figures::tokens_per_second, &Figures::first_p50, &Figures::first_p99, &Figures::gap_p50,
                              &Figures::gap_p99};

// When each stream heard of its rounds.
class Heard {
 public:
  explicit Heard(int streams) : begun_(Clock::now()), last_(std::size_t(streams)), any_(std::size_t(streams)) {}
  void begin(int stream) { last_[std::size_t(stream)] = Clock::now(); }
  void hear(int stream) {
    const std::size_t i = std::size_t(stream);
    const Clock::time_point now = Clock::now();
    (any_[i] ? gaps_ : firsts_).push_back(seconds_from(last_[i], now));
    any_[i] = true;
    last_[i] = now;
  }
  Figures figures(long tokens) const {
    return {.tokens_per_second = double(tokens) / seconds_from(begun_, *std::ranges::max_element(last_)),
            .first_p50 = quantile(firsts_, .5),
            .first_p99 = quantile(firsts_, .99),
            .gap_p50 = quantile(gaps_, .5),
            .gap_p99 = quantile(gaps_, .99)};
  }

 private:
  Clock::time_point begun_;
  std::vector<Clock::time_point> last_;
  std::vector<bool> any_;
  std::vector<double> firsts_, gaps_;
};

std::string prompt_of(int stream) { return "Story number " + std::to_string(stream) + ": once upon a time"; }

Figures alone(ServedModel& model, const OverheadOptions& o) {
  Heard heard(o.streams);
  std::mutex mutex;
  std::vector<SubmittedOutput> outputs;
  outputs.reserve(std::size_t(o.streams));
  for (int i = 0; i < o.streams; ++i) {
    ApiRequest request = model.standard();
    request.prompts = {prompt_of(i)};
    request.max_tokens = o.tokens;
    request.ignore_eos = request.seeded = true;
    {
      const std::lock_guard lock(mutex);
      heard.begin(i);
    }
    outputs.push_back(std::move(model.submit(request).front()));
    outputs.back().stream.listen([&, i] {
      const std::lock_guard lock(mutex);
      heard.hear(i);
    });
  }
  long tokens = 0;
  for (SubmittedOutput& output : outputs) tokens += output.stream.ended().generated();
  for (SubmittedOutput& output : outputs) output.stream.listen({});
  return heard.figures(tokens);
}

// One client, which reads its stream to the end.
class StreamClient {
 public:
  StreamClient(asio::io_context& io, int port, int number, const OverheadOptions& o, Heard& heard)
      : socket_(io), number_(number), heard_(heard) {
    socket_.connect({asio::ip::make_address("127.0.0.1"), static_cast<unsigned short>(port)});
    const std::string body = text_of({{"prompt", prompt_of(number)},
                                      {"max_tokens", o.tokens},
                                      {"ignore_eos", true},
                                      {"seed", 1},
                                      {"stream", true},
                                      {"stream_options", {{"include_usage", true}}}});
    request_ =
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  void start() {
    heard_.begin(number_);
    asio::async_write(socket_, asio::buffer(request_), [this](const auto& failed, std::size_t) {
      if (!failed) read();
    });
  }
  // What the last event says; an Error where there was none.
  long tokens() const {
    const std::string key = "\"completion_tokens\":";
    const std::size_t at = text_.rfind(key);
    if (at == text_.npos || text_.find("[DONE]") == text_.npos)
      throw Error("a stream ended before its time: " + text_.substr(0, 300));
    return std::stol(text_.substr(at + key.size()));
  }

 private:
  void read() {
    socket_.async_read_some(asio::buffer(piece_), [this](const auto& failed, std::size_t size) {
      if (failed) return;
      text_.append(piece_.data(), size);
      // An event of a round names a choice; those that end a stream do not.
      for (; (seen_ = text_.find("\"index\"", seen_)) != text_.npos; ++seen_) heard_.hear(number_);
      seen_ = text_.size() - std::min<std::size_t>(text_.size(), 6);
      if (text_.find("[DONE]", text_.size() - std::min<std::size_t>(text_.size(), size + 6)) == text_.npos) read();
    });
  }

  asio::ip::tcp::socket socket_;
  int number_;
  Heard& heard_;
  std::string request_, text_;
  std::size_t seen_ = 0;
  std::array<char, 4096> piece_{};
};

Figures served(int port, const OverheadOptions& o) {
  asio::io_context io{1};
  Heard heard(o.streams);
  std::vector<std::unique_ptr<StreamClient>> clients;
  for (int i = 0; i < o.streams; ++i) clients.push_back(std::make_unique<StreamClient>(io, port, i, o, heard));
  for (auto& client : clients) client->start();
  io.run();
  long tokens = 0;
  for (const auto& client : clients) tokens += client->tokens();
  if (tokens != long(o.streams) * o.tokens)
    throw Error("clients got " + std::to_string(tokens) + " of " + std::to_string(long(o.streams) * o.tokens) +
                " tokens");
  return heard.figures(tokens);
}

Figures median_of(const std::vector<Figures>& all) {
  Figures median;
  for (const auto figure : kFigures) {
    std::vector<double> values;
    for (const Figures& one : all) values.push_back(one.*figure);
    median.*figure = quantile(values, .5);
  }
  return median;
}

}  // namespace

std::string measured_overhead(ServedModel& model, Server& server, const OverheadOptions& o) {
  std::vector<Figures> engine, clients;
  alone(model, o);  // warms up
  for (int i = 0; i < o.repeats; ++i) {
    engine.push_back(alone(model, o));
    clients.push_back(served(server.port(), o));
  }
  const Figures a = median_of(engine), s = median_of(clients);
  char text[1000];
  std::snprintf(text, sizeof text,
                "%d streams of %d tokens, medians of %d alternations\n"
                "                           engine     served\n"
                "tokens/s               %10.1f %10.1f   ratio %.3f\n"
                "first token p50, ms    %10.2f %10.2f   added %.2f\n"
                "first token p99, ms    %10.2f %10.2f   added %.2f\n"
                "between rounds p50, ms %10.2f %10.2f   ratio %.3f\n"
                "between rounds p99, ms %10.2f %10.2f   ratio %.3f",
                o.streams, o.tokens, o.repeats, a.tokens_per_second, s.tokens_per_second,
                s.tokens_per_second / a.tokens_per_second, 1e3 * a.first_p50, 1e3 * s.first_p50,
                1e3 * (s.first_p50 - a.first_p50), 1e3 * a.first_p99, 1e3 * s.first_p99,
                1e3 * (s.first_p99 - a.first_p99), 1e3 * a.gap_p50, 1e3 * s.gap_p50, s.gap_p50 / a.gap_p50,
                1e3 * a.gap_p99, 1e3 * s.gap_p99, s.gap_p99 / a.gap_p99);
  return text;
}

}  // namespace foretoken::serve
