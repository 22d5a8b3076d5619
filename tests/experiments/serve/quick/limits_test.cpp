// What bounds a client: names of hosts, rates, long prompts; and what the log says of those that break off.
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <set>

#include <fcntl.h>
#include <unistd.h>

#include "tests/experiments/serve/served.h"

namespace foretoken::test {
namespace {

using namespace std::chrono_literals;

struct TemporaryFile {
  explicit TemporaryFile(const std::string& text = "") { std::ofstream(path) << text; }
  ~TemporaryFile() { std::filesystem::remove(path); }
  std::vector<json> lines() const {
    std::vector<json> all;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) all.push_back(json::parse(line));
    return all;
  }
  std::string path = ::testing::TempDir() + "foretoken_limits_" + std::to_string(::getpid());
};

json completion(int tokens, const json& more = json::object()) {
  json body{{"prompt", "Once upon a time"}, {"max_tokens", tokens}, {"temperature", 0}, {"ignore_eos", true}};
  body.update(more);
  return body;
}

TEST(ServedQuickly, texts_are_those_of_the_engine) {
  RunningServer server;
  const std::string alone = text_alone(demo_run(), "Once upon a time", 12);
  EXPECT_EQ(server.complete(completion(12)).document()["choices"][0]["text"], alone);
  EXPECT_EQ(server.complete(completion(12, {{"stream", true}})).streamed_text(), alone);
  std::deque<TestClient> clients;
  for (int i = 0; i < 6; ++i)
    clients.emplace_back(server.port()).send(post_text("/v1/completions", completion(400).dump()));
  while (server.model().loop().running() == 0) std::this_thread::sleep_for(1ms);
  for (TestClient& client : clients) client.close();
  EXPECT_TRUE(server.idle_within(20));
}

TEST(HostNames, that_are_not_this_machines_are_refused_where_no_key_is_asked_for) {
  RunningServer::Options options;
  options.server.hosts = {"gpu-box"};
  RunningServer server(std::move(options));
  const auto status = [&](const std::string& host) {
    TestClient client(server.port());
    client.send("GET /v1/models HTTP/1.1\r\n" + (host.empty() ? "" : "Host: " + host + "\r\n") + "\r\n");
    return client.read().status;
  };
  for (const char* own : {"", "localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "[::1]", "10.1.2.3:80",
                          "gpu-box", "gpu-box:8000"})
    EXPECT_EQ(status(own), 200) << own;
  for (const char* other : {"evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example",
                            "0.0.0.0", "[::]:8000", "[", "]", ":", "gpu-box.evil"})
    EXPECT_EQ(status(other), 421) << other;
}

TEST(TokenRates, are_charged_with_what_was_granted_and_get_back_what_was_not_used) {
  RunningServer::Options options;
  options.keys = serve::Keys(serve::Rates{.tokens_per_minute = 200});
  GatedServer gated(std::move(options));
  gated.gate.set(false);
  TestClient first(gated.server.port());
  first.send(post_text("/v1/completions", completion(300).dump()));
  ASSERT_TRUE(gated.gate.reached());
  const Answered second = gated.server.complete(completion(4));
  EXPECT_EQ(second.status, 429) << "the first one may use it up";
  EXPECT_GT(std::stoi(second.retry_after), 1);
  first.close();
  while (gated.server.metric("foretoken_dropped_total") < 1) std::this_thread::sleep_for(1ms);
  gated.gate.set(true);
  EXPECT_EQ(gated.server.complete(completion(60)).status, 200) << "it did not";
  EXPECT_EQ(gated.server.complete(completion(400)).status, 200) << "some is left";
  EXPECT_EQ(gated.server.complete(completion(4)).status, 429) << "these are used";
}

TEST(LongPrompts, are_refused_by_their_bytes_and_hold_up_no_short_one) {
  RunningServer server;
  const Answered refused = server.complete({{"prompt", std::string(1 << 20, 'x')}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.message().find("1048576 bytes"), std::string::npos) << refused.body;
  const json messages = json::array({{{"role", "user"}, {"content", std::string(1 << 20, 'x')}}});
  EXPECT_EQ(server.post("/v1/chat/completions", {{"messages", messages}}).document()["error"]["code"],
            "context_length_exceeded");
  // So many tokens take a while to read.
  const std::string body = json{{"prompt", std::vector<int>(200000, 1)}}.dump();
  std::deque<TestClient> clients;
  for (int i = 0; i < 6; ++i) clients.emplace_back(server.port()).send(post_text("/v1/completions", body));
  EXPECT_EQ(server.complete(completion(1)).status, 200);
  EXPECT_EQ(clients.back().available(), 0u) << "the last long one is not read yet";
  for (TestClient& client : clients) EXPECT_EQ(client.read().status, 400);
}

TEST(DroppedConnections, are_noticed_behind_the_bytes_of_the_next_request) {
  GatedServer gated;
  gated.gate.set(false);
  TestClient client(gated.server.port());
  client.send(post_text("/v1/completions", completion(1500).dump()));
  ASSERT_TRUE(gated.gate.reached());
  client.send(post_text("/v1/completions", completion(3).dump()));
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(gated.server.metric("foretoken_dropped_total"), 0);
  client.close();
  for (int i = 0; i < 2000 && gated.server.metric("foretoken_dropped_total") < 1; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(gated.server.metric("foretoken_dropped_total"), 1);
  gated.gate.set(true);
  EXPECT_TRUE(gated.server.idle_within(20));
}

TEST(AccessLogs, name_bodies_that_are_broken_off) {
  const TemporaryFile log;
  RunningServer::Options options;
  options.log = log.path;
  options.server.read_seconds = 0.3;
  RunningServer server(std::move(options));
  const std::string whole = post_text("/v1/completions", completion(4).dump());
  TestClient gone(server.port()), slow(server.port());
  gone.send(whole.substr(0, whole.size() - 9));
  gone.close();
  slow.send(whole.substr(0, whole.size() - 9));
  EXPECT_EQ(slow.read_some(), "");
  for (int i = 0; i < 2000 && log.lines().size() < 2; ++i) std::this_thread::sleep_for(5ms);
  std::multiset<int> statuses;
  for (const json& line : log.lines()) statuses.insert(line["status"].get<int>());
  EXPECT_EQ(statuses, (std::multiset<int>{408, 499}));
}

TEST(AccessLogs, end_though_nobody_reads_them) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const auto begun = std::chrono::steady_clock::now();
  {
    serve::AccessLog log("/proc/self/fd/" + std::to_string(pipe[1]));
    for (int i = 0; i < 3000; ++i) log.write({{"id", std::string(100, 'x')}});  // more than a pipe holds
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 10s);
  ::close(pipe[1]);
  std::string all(1 << 17, '\0');
  const auto size = ::read(pipe[0], all.data(), all.size());
  ::close(pipe[0]);
  ASSERT_GT(size, 1000);
  EXPECT_NO_THROW(json::parse(all.substr(0, all.find('\n'))));
}

TEST(ChatTemplateFiles, get_the_special_tokens_of_the_model) {
  const TemporaryFile form("{{ bos_token }}{{ messages[0]['content'] }}");
  RunningServer::Options options;
  options.chat_template = form.path;
  RunningServer server(std::move(options));
  const json body{{"messages", json::array({{{"role", "user"}, {"content", "Once upon a time"}}})},
                  {"max_tokens", 12},
                  {"temperature", 0},
                  {"ignore_eos", true}};
  const std::string with = text_alone(demo_run(), "<|endoftext|>Once upon a time", 12);
  EXPECT_NE(with, text_alone(demo_run(), "Once upon a time", 12));
  EXPECT_EQ(server.post("/v1/chat/completions", body).document()["choices"][0]["message"]["content"], with);
}

TEST(Errors, name_no_folders) {
  RunningServer::Options options;
  options.chat_template.clear();
  RunningServer server(std::move(options));
  const json body{{"messages", json::array({{{"role", "user"}, {"content", "x"}}})}};
  const Answered refused = server.post("/v1/chat/completions", body);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.message().find("target has no chat template"), std::string::npos) << refused.body;
  EXPECT_EQ(refused.body.find(FORETOKEN_SOURCE_DIR), std::string::npos) << refused.body;
  EXPECT_EQ(refused.body.find("experiments"), std::string::npos) << refused.body;
}

// A bias of 100 makes a model write one token alone, whose one character has three bytes.
TEST(TextOffsets, count_characters) {
  RunningServer server;
  const std::vector<Token> tokens = server.model().tokenizer()->encode("\u2019");
  ASSERT_EQ(tokens.size(), 1u);
  const json forced{{"logit_bias", {{std::to_string(tokens[0]), 100}}}, {"logprobs", 0}};
  const json choice = server.complete(completion(4, forced)).document()["choices"][0];
  EXPECT_EQ(choice["text"], "\u2019\u2019\u2019\u2019");
  EXPECT_EQ(choice["logprobs"]["text_offset"], json({0, 1, 2, 3}));
}

}  // namespace
}  // namespace foretoken::test
