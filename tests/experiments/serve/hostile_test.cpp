// Clients that go, stall, send anything, or ask for too much; and the server's end.
#include <atomic>
#include <chrono>
#include <fstream>
#include <random>

#include "kernels/error.h"
#include "tests/experiments/serve/served.h"

namespace foretoken::test {
namespace {

using namespace std::chrono_literals;

json long_stream(int tokens = 1500) {
  return {{"prompt", "Once"}, {"max_tokens", tokens}, {"ignore_eos", true}, {"stream", true}, {"temperature", 1}};
}

TEST(DroppedConnections, give_back_their_pages) {
  RunningServer server;
  for (const bool half : {false, true}) {
    std::vector<std::unique_ptr<TestClient>> clients;
    for (int i = 0; i < 16; ++i) {
      clients.push_back(std::make_unique<TestClient>(server.port()));
      json body = long_stream();
      body["stream"] = i % 2 == 0;
      body["draft_length"] = i % 3;
      clients.back()->send(post_text("/v1/completions", body.dump()));
    }
    EXPECT_NE(clients[0]->read_some(), "");
    for (int i = 0; i < 5000 && server.model().loop().running() == 0; ++i) std::this_thread::sleep_for(1ms);
    EXPECT_GT(server.model().loop().running(), 0u);
    for (auto& client : clients) half ? client->half_close() : client->close();
    EXPECT_TRUE(server.idle_within(20)) << (half ? "half-closed" : "closed");
  }
  EXPECT_GE(server.metric("foretoken_dropped_total"), 32);
  EXPECT_EQ(server.metric("foretoken_connections"), 1) << "the one that asks";
}

TEST(SlowClients, are_let_go_and_hold_up_no_other) {
  RunningServer::Options options;
  options.server.write_seconds = 0.3;
  RunningServer server(std::move(options));
  json body = long_stream(1900);
  body["n"] = 8;
  body["logprobs"] = 0;  // so that there is more to send than sockets hold
  TestClient slow(server.port());
  slow.send(post_text("/v1/completions", body.dump()));
  EXPECT_EQ(server.complete(json{{"prompt", "x"}, {"max_tokens", 4}}).status, 200);
  EXPECT_TRUE(server.idle_within(60));
  EXPECT_EQ(server.metric("foretoken_dropped_total"), 1);
}

TEST(SlowClients, that_send_no_whole_request_are_let_go) {
  RunningServer::Options options;
  options.server.read_seconds = 0.2;
  RunningServer server(std::move(options));
  for (const char* beginning :
       {"", "POST /v1/compl",
        "POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"}) {
    TestClient client(server.port());
    client.send(beginning);
    EXPECT_EQ(client.read_some(), "") << beginning;
  }
}

// A byte now and then gives nobody more time.
TEST(SlowClients, that_dribble_have_no_longer) {
  RunningServer::Options options;
  options.server.read_seconds = 0.3;
  RunningServer server(std::move(options));
  const std::string whole = post_text("/v1/completions", R"({"prompt": "x", "max_tokens": 1})");
  for (const std::size_t at_once : {std::size_t(0), whole.find('{')}) {  // in its header, and in its body
    TestClient client(server.port());
    client.send(whole.substr(0, at_once));
    const auto begun = std::chrono::steady_clock::now();
    bool open = true;
    for (std::size_t i = at_once; i < whole.size() && open; ++i) {
      std::this_thread::sleep_for(100ms);
      try {
        client.send(whole.substr(i, 1));
      } catch (const std::exception&) {
        open = false;
      }
    }
    EXPECT_FALSE(open) << "it would have taken " << (whole.size() - at_once) / 10 << " s";
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 2500ms);
  }
  EXPECT_EQ(server.complete(json{{"prompt", "x"}, {"max_tokens", 1}}).status, 200);
}

// One that takes its stream byte by byte is not one that has taken it.
TEST(SlowClients, that_take_bytes_one_by_one_hold_up_no_other) {
  RunningServer::Options options;
  options.server.write_seconds = 0.5;
  RunningServer server(std::move(options));
  json body = long_stream(1900);
  body["n"] = 8;
  body["logprobs"] = 0;
  TestClient slow(server.port());
  slow.send(post_text("/v1/completions", body.dump()));
  std::atomic<bool> done = false;
  std::thread reader([&] {
    for (; !done; std::this_thread::sleep_for(5ms)) slow.read_byte();
  });
  EXPECT_EQ(server.complete(json{{"prompt", "x"}, {"max_tokens", 4}}).status, 200);
  EXPECT_TRUE(server.idle_within(60));
  done = true;
  reader.join();
  EXPECT_EQ(server.metric("foretoken_dropped_total"), 1);
}

TEST(HostileRequests, are_answered_with_one_sentence) {
  RunningServer::Options options;
  options.server.body_bytes = 64 << 10;
  RunningServer server(std::move(options));
  const auto refused = [&](const Answered& a, int status) {
    EXPECT_EQ(a.status, status) << a.body;
    if (a.status > 0) {
      EXPECT_FALSE(a.message().empty());
    }
  };
  refused(server.client().post_bytes("/v1/completions", std::string(65 << 10, ' ')), 413);
  refused(server.client().post_bytes("/v1/completions", R"({"prompt": "x"})",
                                     "X-Long: " + std::string(20 << 10, 'x') + "\r\n"),
          431);
  refused(server.client().post_bytes("/v1/completions", "{\"prompt\": \"\xc3\x28\"}"), 400);
  refused(server.client().post_bytes("/v1/completions", std::string(60 << 10, '[')), 400);
  TestClient other(server.port());
  other.send("nonsense\r\n\r\n");
  refused(other.read(), 400);
  TestClient chunked(server.port());
  chunked.send("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
               std::string("20000\r\n") + std::string(0x20000, ' '));
  refused(chunked.read(), 413);
  TestClient plain(server.port());
  plain.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}");
  refused(plain.read(), 415);
  EXPECT_TRUE(server.idle_within(10));
}

// Bodies with bytes changed, cut and doubled at random places, and headers likewise.
TEST(HostileRequests, of_any_bytes_end_nothing) {
  RunningServer::Options options;
  options.server.read_seconds = 0.5;  // of those that wait for more
  RunningServer server(std::move(options));
  std::mt19937 draw(46);
  const std::string body =
      R"({"model":"target","prompt":["a","b"],"n":2,"max_tokens":2,"temperature":0.7,"stop":["x"],)"
      R"("seed":3,"stream":false,"logit_bias":{"7":-3},"logprobs":0,"user":"\u00e9"})";
  int served = 0, refused = 0;
  for (int i = 0; i < 600; ++i) {
    std::string sent = i % 3 == 0 ? post_text("/v1/completions", body) : body;
    for (int k = int(draw() % 3); k >= 0; --k) {
      const std::size_t at = draw() % sent.size();
      const auto kind = draw() % 4;
      if (kind == 0) sent[at] = char(draw() % 256);
      if (kind == 1) sent.erase(at, draw() % 8);
      if (kind == 2) sent.insert(at, sent.substr(at, draw() % 16));
      if (kind == 3) sent.insert(at, std::string(draw() % 3, "{}[]\",:\\0\xff"[draw() % 10]));
    }
    TestClient client(server.port());
    if (i % 3 != 0) {
      const Answered a = client.post_bytes("/v1/completions", sent);
      EXPECT_TRUE(a.status == 200 || a.status == 400 || a.status == 404) << sent << "\n" << a.status << a.body;
      ++(a.status == 200 ? served : refused);
    } else {
      client.send(sent);
      if (i % 2 == 0) client.half_close();
      if (i % 5 == 0) client.read_some();
    }
  }
  EXPECT_GT(served, 10);
  EXPECT_GT(refused, 50);
  EXPECT_EQ(server.client().get("/health").status, 200);
  EXPECT_TRUE(server.idle_within(40));
}

TEST(Queues, are_bounded_and_answer_429) {
  RunningServer::Options options;
  options.run = demo_run(1);
  options.waiting = 2;
  GatedServer gated(std::move(options));
  gated.gate.set(false);
  std::vector<std::unique_ptr<TestClient>> clients;
  const json body{{"prompt", "Once"}, {"max_tokens", 3}, {"ignore_eos", true}};
  const auto ask = [&] {
    clients.push_back(std::make_unique<TestClient>(gated.server.port()));
    clients.back()->send(post_text("/v1/completions", body.dump()));
  };
  ask();
  ASSERT_TRUE(gated.gate.reached());
  ask();  // the first one counts as waiting until its step has ended
  while (gated.server.model().loop().waiting() < 2) std::this_thread::sleep_for(5ms);
  const Answered busy = gated.server.complete(body);
  EXPECT_EQ(busy.status, 429);
  EXPECT_EQ(busy.retry_after, "1");
  EXPECT_NE(busy.message().find("busy"), std::string::npos);
  json several = body;
  several["n"] = 5;
  EXPECT_EQ(gated.server.complete(several).status, 400) << "never fits the queue";
  gated.gate.set(true);
  for (auto& client : clients) EXPECT_EQ(client->read().status, 200);
  EXPECT_TRUE(gated.server.idle_within(10));
}

TEST(FirstBytes, are_sent_with_the_first_token) {
  GatedServer gated;
  gated.gate.set(false);
  TestClient client(gated.server.port());
  client.send(post_text("/v1/completions", long_stream(5).dump()));
  ASSERT_TRUE(gated.gate.reached());
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(client.available(), 0u);
  gated.gate.set(true);
  EXPECT_EQ(client.read().events().back(), "[DONE]");
}

TEST(TimeLimits, end_requests_before_their_first_byte_with_504_and_later_as_incomplete) {
  RunningServer::Options options;
  options.server.request_seconds = 0.3;
  GatedServer gated(std::move(options));
  gated.gate.set(false);
  TestClient client(gated.server.port());
  client.send(post_text("/v1/completions", long_stream(5).dump()));
  EXPECT_EQ(client.read().status, 504);
  gated.gate.set(true);
  EXPECT_TRUE(gated.server.idle_within(10));
  TestClient begun(gated.server.port());
  json body = long_stream(1900);
  body["n"] = 16;
  begun.send(post_text("/v1/completions", body.dump()));
  std::string all;
  for (std::string bytes = begun.read_some(); !bytes.empty(); bytes = begun.read_some()) all += bytes;
  EXPECT_NE(all.find("200 OK"), std::string::npos);
  EXPECT_NE(all.find("\"error\""), std::string::npos);
  EXPECT_EQ(all.find("[DONE]"), std::string::npos);
  EXPECT_FALSE(all.ends_with("0\r\n\r\n")) << "no client takes it for whole";
  EXPECT_TRUE(gated.server.idle_within(10));
}

TEST(ServerKeys, are_asked_for_and_have_rates) {
  const std::string file = ::testing::TempDir() + "foretoken_server_keys";
  std::ofstream(file) << "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad alice\n";
  RunningServer::Options options;
  options.keys = serve::Keys(file, {.requests_per_minute = 2});
  RunningServer server(std::move(options));
  const json body{{"prompt", "x"}, {"max_tokens", 1}};
  const std::string key = "Authorization: Bearer abc\r\n";
  EXPECT_EQ(server.client().get("/health").status, 200);
  for (const char* path : {"/v1/models", "/metrics"}) {
    EXPECT_EQ(server.client().get(path).status, 401);
    EXPECT_EQ(server.client().get(path, key).status, 200);
  }
  const Answered refused = server.client().post("/v1/completions", body, "Authorization: Bearer abd\r\n");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.document()["error"]["code"], "invalid_api_key");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(server.client().post("/v1/completions", body, key).status, 200);
  const Answered late = server.client().post("/v1/completions", body, key);
  EXPECT_EQ(late.status, 429);
  EXPECT_GT(std::stoi(late.retry_after), 20);
  EXPECT_EQ(late.document()["error"]["code"], "rate_limit_exceeded");
}

TEST(Endings, let_running_requests_end_and_take_no_more) {
  RunningServer server;
  TestClient running(server.port()), idle(server.port());
  EXPECT_EQ(idle.get("/health").status, 200);
  running.send(post_text("/v1/completions", long_stream(1900).dump()));
  while (server.model().loop().running() == 0) std::this_thread::sleep_for(1ms);
  server.server().stop();
  EXPECT_EQ(idle.read_some(), "") << "a connection without a request is closed";
  EXPECT_EQ(running.read().events().back(), "[DONE]");
  server.join();
  EXPECT_EQ(server.model().loop().running(), 0u);
}

TEST(Endings, wait_no_longer_than_they_may) {
  RunningServer::Options options;
  options.server.drain_seconds = 0.2;
  GatedServer gated(std::move(options));
  gated.gate.set(false);
  TestClient running(gated.server.port());
  running.send(post_text("/v1/completions", long_stream(5).dump()));
  ASSERT_TRUE(gated.gate.reached());
  gated.server.server().stop();
  EXPECT_EQ(running.read().status, 503);
  running.close();
  gated.server.join();
  gated.gate.set(true);
}

TEST(Models, that_fail_end_their_requests_and_say_so) {
  std::atomic<bool> fail = false;
  RunningServer::Options options;
  options.after_step = [&] {
    if (fail) throw Error("the hook fails");
  };
  RunningServer server(std::move(options));
  const json body{{"prompt", "x"}, {"max_tokens", 4}};
  EXPECT_EQ(server.complete(body).status, 200);
  fail = true;
  EXPECT_EQ(server.complete(body).status, 500);
  EXPECT_EQ(server.client().get("/health").status, 503) << "the loop has ended";
  EXPECT_EQ(server.complete(body).status, 503);
}

}  // namespace
}  // namespace foretoken::test
