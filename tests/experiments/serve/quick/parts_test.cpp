// Parts of the server that need no model: bodies, keys and rates, stop strings, lengths of drafts.
#include <filesystem>
#include <fstream>

#include "experiments/serve/api_error.h"
#include "experiments/serve/draft_caps.h"
#include "experiments/serve/gateway.h"
#include "experiments/serve/keys.h"
#include "experiments/serve/output.h"
#include "experiments/serve/responses.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using namespace serve;
using nlohmann::json;

// Status, key at fault and sentence of the refusal of a body; "" where it is read.
std::string refusal(Endpoint endpoint, const std::string& body) {
  try {
    read_request(endpoint, body, {}, {});
  } catch (const ApiError& e) {
    return std::to_string(e.status) + " " + e.parameter + ": " + e.what();
  }
  return "";
}
std::string refusal_of_completion(const json& more) {
  json body{{"prompt", "x"}};
  body.update(more);
  return refusal(Endpoint::completions, body.dump());
}
std::string refusal_of_chat(const json& more) {
  json body{{"messages", json::array({{{"role", "user"}, {"content", "x"}}})}};
  body.update(more);
  return refusal(Endpoint::chat, body.dump());
}

TEST(RequestBodies, are_read_whole) {
  const ApiRequest r = read_request(
      Endpoint::completions,
      R"({"model": "m", "prompt": ["a", [1, 2]], "n": 2, "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "seed": 9,
          "stop": ["x", "y"], "logit_bias": {"5": -100}, "presence_penalty": 1, "frequency_penalty": -1, "echo": true,
          "stream": true, "stream_options": {"include_usage": true}, "draft_length": 0, "report_speculation": true,
          "user": "somebody", "best_of": 2, "suffix": null})",
      {}, {});
  EXPECT_EQ(r.model, "m");
  ASSERT_EQ(r.prompts.size(), 2u);
  EXPECT_EQ(std::get<std::string>(r.prompts[0]), "a");
  EXPECT_EQ(std::get<std::vector<Token>>(r.prompts[1]), (std::vector<Token>{1, 2}));
  EXPECT_EQ(r.n, 2);
  EXPECT_EQ(r.max_tokens, 7);
  EXPECT_FLOAT_EQ(r.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(r.sampling.top_p, 0.9f);
  EXPECT_TRUE(r.seeded && r.sampling.seed == 9);
  EXPECT_EQ(r.stops, (std::vector<std::string>{"x", "y"}));
  ASSERT_EQ(r.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(r.sampling.logit_bias[0].token, 5);
  EXPECT_TRUE(r.echo && r.stream && r.include_usage && r.report_speculation);
  EXPECT_EQ(r.draft_length, 0);
  const ApiRequest chat = read_request(Endpoint::chat,
                                       R"({"messages": [{"role": "developer", "content": "be short"}, {"role": "user",
          "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "max_completion_tokens": 3,
          "logprobs": true, "response_format": {"type": "text"}, "tools": null})",
                                       {}, {});
  EXPECT_EQ(chat.messages[0]["role"], "system");
  EXPECT_EQ(chat.messages[1]["content"], "ab");
  EXPECT_EQ(chat.max_tokens, 3);
  EXPECT_TRUE(chat.sampling.logprobs);
  EXPECT_FALSE(chat.seeded);
}

TEST(RequestBodies, are_refused_with_the_key_at_fault) {
  for (const auto& [more, words] : std::vector<std::pair<json, std::string>>{
           {{{"tempratur", 1}}, "400 tempratur: 'tempratur' is no option here (did you mean 'temperature'?)"},
           {{{"temperature", 3}}, "400 temperature: 'temperature' must be a number from 0 to 2, not 3"},
           {{{"temperature", "hot"}}, "400 temperature:"},
           {{{"temperature", 1e-45}}, "400 temperature:"},
           {{{"top_p", 0}}, "400 top_p:"},
           {{{"n", 0}}, "400 n:"},
           {{{"n", 1.5}}, "400 n:"},
           {{{"n", 65}}, "400 n:"},
           {{{"max_tokens", 0}}, "400 max_tokens:"},
           {{{"max_tokens", 1e30}}, "400 max_tokens:"},
           {{{"stop", json::array({"a", ""})}}, "400 stop:"},
           {{{"stop", json(std::vector<std::string>(17, "a"))}}, "400 stop:"},
           {{{"stop", std::string(257, 'a')}}, "400 stop:"},
           {{{"logit_bias", {{"x", 1}}}}, "400 logit_bias:"},
           {{{"logit_bias", {{"1", 101}}}}, "400 logit_bias:"},
           {{{"logprobs", 1}}, "400 logprobs:"},
           {{{"logprobs", 0}, {"echo", true}}, "400 logprobs:"},
           {{{"seed", -1}}, "400 seed:"},
           {{{"seed", 18446744073709551615u}}, "400 seed:"},
           {{{"stream_options", {{"include_usage", true}}}}, "400 stream_options:"},
           {{{"stream", true}, {"stream_options", {{"usage", true}}}}, "400 stream_options.usage:"},
           {{{"suffix", "x"}}, "400 suffix:"},
           {{{"best_of", 3}}, "400 best_of:"},
           {{{"prompt", nullptr}}, "400 prompt: 'prompt' is missing"},
           {{{"prompt", json::array({json::array()})}}, "400 prompt:"},
           {{{"prompt", json::array({1, -1})}}, "400 prompt:"},
           {{{"prompt", json(std::vector<std::string>(33, "a"))}, {"n", 2}}, "400 prompt:"},
           {{{"response_format", {{"type", "grammar"}}}}, "400 response_format:"},
           {{{"draft_length", 65}}, "400 draft_length:"},
           {{{"messages", json::array()}}, "400 messages: 'messages' is no option here"}})
    EXPECT_TRUE(refusal_of_completion(more).starts_with(words)) << more << ": " << refusal_of_completion(more);
  const json tool{{"type", "function"}};
  for (const auto& [more, words] : std::vector<std::pair<json, std::string>>{
           {{{"tools", json::array({tool})}}, "400 tools: 'tools' cannot be honoured: this server calls no tools"},
           {{{"max_tokens", 3}, {"max_completion_tokens", 4}}, "400 max_tokens:"},
           {{{"messages", "hello"}}, "400 messages:"},
           {{{"messages", json::array({{{"role", "tool"}, {"content", "x"}}})}}, "400 messages[0].role:"},
           {{{"messages", json::array({{{"role", "user"}}})}}, "400 messages[0].content:"},
           {{{"messages", json::array({{{"role", "assistant"}, {"content", "x"}}})}}, "400 messages:"},
           {{{"messages", json::array({3})}}, "400 messages[0]:"},
           {{{"top_logprobs", 2}}, "400 top_logprobs:"},
           {{{"prompt", "x"}}, "400 prompt:"}})
    EXPECT_TRUE(refusal_of_chat(more).starts_with(words)) << more << ": " << refusal_of_chat(more);
  for (const char* body : {"", "[", "[]", "3", "{\"prompt\": \"\xff\"}", R"({"prompt": "x", "prompt": "y"})"})
    EXPECT_TRUE(refusal(Endpoint::completions, body).starts_with("400 ")) << body;
  EXPECT_NE(refusal(Endpoint::completions, std::string(100000, '[')), "");
}

TEST(StopFilters, hold_back_what_may_become_a_stop_string) {
  StopFilter filter({"</end>", "\n\n"});
  EXPECT_EQ(filter.push("a</e"), "a");
  EXPECT_EQ(filter.push("x"), "</ex");
  EXPECT_EQ(filter.push("b\n"), "b");
  EXPECT_EQ(filter.push("c</"), "\nc");
  EXPECT_EQ(filter.push("end"), "");
  EXPECT_FALSE(filter.stopped());
  EXPECT_EQ(filter.push("> and more"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("nothing"), "");
  EXPECT_EQ(filter.finish(), "");
  StopFilter unended({"xyz"});
  EXPECT_EQ(unended.push("wxy"), "w");
  EXPECT_EQ(unended.finish(), "xy");
  StopFilter earliest({"bc", "ab"});
  EXPECT_EQ(earliest.push("1abc"), "1");
  StopFilter again({"aab"});
  EXPECT_EQ(again.push("aa"), "");
  EXPECT_EQ(again.push("a"), "a") << "a later beginning is held";
  EXPECT_EQ(again.push("b"), "");
  EXPECT_TRUE(again.stopped());
  StopFilter none({});
  EXPECT_EQ(none.push("all"), "all");
}

TEST(ApiKeys, are_found_by_their_hashes) {
  // FIPS 180-4's example "abc".
  const Hash abc = sha256("abc");
  EXPECT_EQ(abc[0], 0xba);
  EXPECT_EQ(abc[31], 0xad);
  const auto file = std::filesystem::temp_directory_path() / ("foretoken_keys_" + std::to_string(::getpid()));
  const auto write = [&](const std::string& text) { std::ofstream(file) << text; };
  const std::string digits = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  write("# keys\n" + digits + " alice requests_per_minute=2\n\n" + std::string(64, '0') + " bob # nobody has it\n");
  Keys keys(file, {.tokens_per_minute = 60});
  EXPECT_EQ(keys.size(), 2u);
  ASSERT_TRUE(keys.find("Bearer abc"));
  EXPECT_EQ(keys.find("Bearer abc")->name, "alice");
  for (const char* other : {"", "abc", "Bearer ", "Bearer abd", "Bearer abc ", "bearer abc", "Basic abc"})
    EXPECT_FALSE(keys.find(other)) << other;
  for (const auto& [text, word] : std::vector<std::pair<std::string, std::string>>{
           {"", "no key"},
           {"abc alice\n", "line 1"},
           {"\n" + digits + "\n", "line 2"},
           {digits + " a rate=3\n", "rate=3"},
           {digits + " a requests_per_minute=-1\n", "requests_per_minute"}}) {
    write(text.empty() ? "# nothing\n" : text);
    EXPECT_TRUE(says(sentence_of([&] { Keys(file, {}); }), word)) << text;
  }
  std::filesystem::remove(file);
  Keys open;
  ASSERT_TRUE(open.find(""));
  EXPECT_FALSE(open.needed());
}

TEST(RateLimits, refill_by_time) {
  using namespace std::chrono_literals;
  const RateLimit::Clock::time_point start{};
  RateLimit two(2);
  EXPECT_EQ(two.seconds_until(1, start), 0);
  two.use(1, start);
  two.use(1, start);
  EXPECT_NEAR(two.seconds_until(1, start), 30, 1e-6);
  EXPECT_NEAR(two.seconds_until(1, start + 20s), 10, 1e-6);
  EXPECT_EQ(two.seconds_until(1, start + 31s), 0);
  two.use(10, start + 31s);
  EXPECT_GT(two.seconds_until(1, start + 60s), 100) << "what was used beyond the rate is waited for";
  EXPECT_EQ(two.seconds_until(1, start + 1h), 0);
  RateLimit unlimited;
  unlimited.use(1e12, start);
  EXPECT_EQ(unlimited.seconds_until(1, start), 0);
  RateLimit small(5);
  EXPECT_EQ(small.seconds_until(100, start), 0) << "more than a minute's amount waits for a full bucket alone";
}

TEST(DraftLengths, of_requests_cut_budgets) {
  DraftCaps caps;
  const Budget chain{5, 4, 0}, tree{20, 4, 0};
  EXPECT_EQ(caps.cut(1, chain).nodes, 5);
  caps.set(1, 2);
  caps.set(2, 0);
  EXPECT_EQ(caps.cut(1, chain).nodes, 3);
  EXPECT_EQ(caps.cut(1, chain).depth, 2);
  EXPECT_EQ(caps.cut(1, tree).nodes, 20);
  EXPECT_EQ(caps.cut(1, tree).depth, 2);
  EXPECT_EQ(caps.cut(2, tree).nodes, 1);
  EXPECT_EQ(caps.cut(2, tree).depth, 0);
  EXPECT_EQ(caps.cut(3, tree).nodes, 20);
  caps.forget(1);
  EXPECT_EQ(caps.cut(1, chain).nodes, 5);
}

TEST(Gateways, name_their_replicas) {
  const std::string text =
      haproxy_configuration({.replicas = {"127.0.0.1:8001", "http://node-2:8002/v1/"}, .running = 8});
  for (const char* line : {"  server replica1 127.0.0.1:8001\n", "  server replica2 node-2:8002\n", " maxconn 8\n",
                           "  retry-on conn-failure empty-response\n", "  balance leastconn\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line;
  EXPECT_EQ(text.find("prometheus"), std::string::npos);
  for (const char* wrong : {"127.0.0.1:99999", "127.0.0.1:0", "", "node", ":80", "node:", "node:port", "node:123456",
                            "a b:80", "x:1\n  server y:2"})
    EXPECT_TRUE(says(sentence_of([&] { haproxy_configuration({.replicas = {wrong}}); }), "no address", "HOST:PORT"))
        << wrong;
  EXPECT_TRUE(says(
      sentence_of([] { haproxy_configuration({.replicas = {"127.0.0.1:8001"}, .host = "127.0.0.1\n  stats enable"}); }),
      "no address to listen at", "--host"));
  EXPECT_TRUE(says(sentence_of([] { haproxy_configuration({}); }), "--replicas"));
}

TEST(Gateways, choose_by_route_and_check_keys) {
  const std::string prefix = haproxy_configuration({.replicas = {"a:1"}, .route = Route::prefix, .prefix_bytes = 99});
  EXPECT_NE(prefix.find("bytes(0,99)"), std::string::npos);
  EXPECT_EQ(prefix.find("leastconn"), std::string::npos);
  const std::string few =
      haproxy_configuration({.replicas = {"a:1"}, .route = Route::concurrency, .few = {"b:2"}, .few_requests = 7});
  for (const char* line : {"be_conn(few) lt 7", "backend few\n", "  server replica1 b:2\n  server other1 a:1 backup\n"})
    EXPECT_NE(few.find(line), std::string::npos) << line;
  for (const GatewayOptions& half : {GatewayOptions{.replicas = {"a:1"}, .few = {"b:2"}},
                                     GatewayOptions{.replicas = {"a:1"}, .route = Route::concurrency}})
    EXPECT_TRUE(says(sentence_of([&] { haproxy_configuration(half); }), "--few", "--route"));
  EXPECT_TRUE(
      says(sentence_of([] { haproxy_configuration({.replicas = {"a:1"}, .hosts = {"a b"}}); }), "--allow-host"));
  EXPECT_EQ(few.find("401"), std::string::npos) << "no key is asked for";
}

TEST(Routes, are_found_by_path_and_method) {
  const auto status = [](const char* method, const char* path) {
    try {
      expect_route(method, path);
      return 200;
    } catch (const ApiError& e) {
      return e.status;
    }
  };
  EXPECT_EQ(status("POST", "/v1/completions"), 200);
  EXPECT_EQ(status("GET", "/v1/completions"), 405);
  EXPECT_EQ(status("POST", "/v1/models"), 405);
  EXPECT_EQ(status("GET", "/v1/models/any"), 200);
  EXPECT_EQ(status("GET", "/"), 404);
  EXPECT_EQ(chunk_of(std::string(26, 'x')), "1a\r\n" + std::string(26, 'x') + "\r\n");
}

}  // namespace
}  // namespace foretoken::test
