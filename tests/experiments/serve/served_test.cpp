// The server and its clients that the other tests here use: tests/experiments/serve/served.h.
#include "tests/experiments/serve/served.h"

#include <chrono>

#include <boost/asio/connect.hpp>
#include <boost/asio/write.hpp>

#include "experiments/session/run_document.h"
#include "tests/support/source.h"

namespace foretoken::test {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;

json demo_run(int batch) {
  const std::string models = std::string(FORETOKEN_SOURCE_DIR) + "/experiments/models/";
  return {{"target", {{"model", models + "target"}}},
          {"drafter", {{"name", "draft_model"}, {"model", models + "draft"}}},
          {"policy", {{"name", "fixed"}, {"length", 3}}},
          {"verifier", {{"name", "speculative_sampling"}}},
          {"engine", {{"batch", batch}, {"device", "cpu"}, {"threads", 1}}},
          {"sampling", {{"temperature", 0}}}};
}

std::string text_alone(const json& document, const std::string& prompt, int max_tokens, double temperature,
                       std::uint64_t seed, std::uint64_t sample, bool ignore_eos) {
  static Workbench bench;
  json run = document;
  run["workload"] = {
      {"prompts", "(one)"}, {"chat", "none"}, {"max_new_tokens", max_tokens}, {"ignore_eos", ignore_eos}};
  run["sampling"] = {{"temperature", temperature}, {"seed", seed}};
  run = complete_run(run, bench.registries(), "the test's run");
  const auto engine = bench.engine(run, Side::speculative, "");
  const auto tokenizer = bench.tokenizer(target_of(run), "");
  engine->submit(request_of(run, engine->target().info(), tokenizer, {}, Prompt{0, prompt, ""}, sample));
  std::vector<Token> tokens;
  while (!engine->idle())
    for (const SequenceReport& r : engine->step().sequences)
      tokens.insert(tokens.end(), r.emitted.begin(), r.emitted.end());
  TextStream stream(tokenizer);
  const std::string text = stream.push(tokens);
  return text + stream.finish();
}

std::vector<std::string> Answered::events() const {
  std::vector<std::string> all;
  const std::string begin = "data: ", end = "\n\n";
  for (std::size_t at = 0; at < body.size();) {
    EXPECT_EQ(body.compare(at, begin.size(), begin), 0) << body.substr(at, 80);
    const std::size_t until = std::min(body.find(end, at), body.size());
    all.push_back(body.substr(at + begin.size(), until - at - begin.size()));
    at = until + end.size();
  }
  return all;
}

std::vector<json> Answered::documents() const {
  std::vector<std::string> all = events();
  EXPECT_TRUE(!all.empty() && all.back() == "[DONE]") << body;
  if (!all.empty()) all.pop_back();
  std::vector<json> documents;
  for (const std::string& event : all) documents.push_back(json::parse(event));  // refuses what is no UTF-8
  return documents;
}

std::string Answered::streamed_text(int index) const {
  std::string text;
  for (const json& document : documents())
    for (const json& choice : document.at("choices")) {
      if (choice.at("index") != index) continue;
      const json piece = choice.contains("delta") ? choice.at("delta").value("content", json("")) : choice.at("text");
      text += piece.get<std::string>();
    }
  return text;
}

TestClient::TestClient(int port) {
  socket_.connect({asio::ip::make_address("127.0.0.1"), static_cast<unsigned short>(port)});
}

void TestClient::send(const std::string& bytes) { asio::write(socket_, asio::buffer(bytes)); }

std::string TestClient::read_some() {
  boost::system::error_code failed;
  std::string bytes(1 << 16, '\0');
  bytes.resize(socket_.read_some(asio::buffer(bytes), failed));
  return bytes;
}

void TestClient::read_byte() {
  boost::system::error_code ignored;
  char byte = 0;
  socket_.read_some(asio::buffer(&byte, 1), ignored);
}

Answered TestClient::read() {
  beast::http::response_parser<beast::http::string_body> parser;
  parser.body_limit(64 << 20);
  boost::system::error_code failed;
  beast::http::read(socket_, buffer_, parser, failed);
  if (failed) return {.status = 0, .body = failed.message()};
  const auto& response = parser.get();
  const auto after = response[beast::http::field::retry_after];
  return {.status = int(response.result_int()), .body = response.body(), .retry_after = {after.data(), after.size()}};
}

std::string post_text(const std::string& path, const std::string& body, const std::string& headers) {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body;
}

Answered TestClient::post_bytes(const std::string& path, const std::string& body, const std::string& headers) {
  send(post_text(path, body, headers));
  return read();
}

Answered TestClient::get(const std::string& path, const std::string& headers) {
  send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
  return read();
}

RunningServer::RunningServer() : RunningServer(Options{}) {}

RunningServer::RunningServer(Options options) : log_(options.log), keys_(std::move(options.keys)) {
  options.server.port = 0;
  model_ = std::make_unique<serve::ServedModel>(
      options.run, std::vector<std::string>{}, "",
      serve::ServedModelOptions{.waiting = options.waiting,
                                .after_step =
                                    [this, also = options.after_step](const StepReport& report) {
                                      metrics_.observe(report);
                                      if (also) also();
                                    },
                                .limits = options.limits,
                                .chat_template = options.chat_template});
  server_ = std::make_unique<serve::Server>(*model_, keys_, metrics_, log_, options.server);
  port_ = server_->port();
  thread_ = std::thread([this] { server_->run(); });
}

RunningServer::~RunningServer() {
  server_->stop();
  join();
  server_.reset();
}

double RunningServer::metric(const std::string& beginning) const {
  for (const std::string& line : split_lines(client().get("/metrics").body))
    if (line.starts_with(beginning)) return std::stod(line.substr(line.rfind(' ')));
  ADD_FAILURE() << "no line of the metrics begins with " << beginning;
  return -1;
}

bool RunningServer::idle_within(double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < until) {
    EngineLoop& loop = model_->loop();
    if (loop.waiting() + loop.running() == 0 && metric("foretoken_cache_pages_in_use{") == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace foretoken::test
