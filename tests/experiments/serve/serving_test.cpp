// What clients get: the texts of an engine without a server, in documents and in streams.
#include <atomic>

#include "tests/experiments/serve/served.h"

namespace foretoken::test {
namespace {

const char* const kOnce = "Once upon a time";

struct Serving : ::testing::Test {
  static RunningServer& server() {
    static RunningServer one;
    return one;
  }
  static json asking(const json& more) {
    json body{{"model", "target"}, {"prompt", kOnce}, {"max_tokens", 24}, {"ignore_eos", true}};
    body.update(more);
    return body;
  }
};

TEST_F(Serving, gives_the_texts_of_the_engine_alone) {
  const std::string greedy = text_alone(demo_run(), kOnce, 24);
  const Answered whole = server().complete(asking({{"temperature", 0}}));
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(whole.document()["choices"][0]["text"], greedy);
  EXPECT_EQ(whole.document()["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(whole.document()["usage"]["completion_tokens"], 24);
  EXPECT_EQ(server().complete(asking({{"temperature", 0}, {"stream", true}})).streamed_text(), greedy);
  const Answered drawn = server().complete(asking({{"temperature", 1}, {"seed", 7}, {"n", 3}}));
  for (int k = 0; k < 3; ++k)
    EXPECT_EQ(drawn.document()["choices"][std::size_t(k)]["text"],
              text_alone(demo_run(), kOnce, 24, 1, 7, std::uint64_t(k)))
        << k;
  const Answered streamed = server().complete(asking({{"temperature", 1}, {"seed", 7}, {"n", 3}, {"stream", true}}));
  for (int k = 0; k < 3; ++k)
    EXPECT_EQ(streamed.streamed_text(k), drawn.document()["choices"][std::size_t(k)]["text"].get<std::string>()) << k;
  const json unseeded = asking({{"temperature", 1}, {"max_tokens", 40}});
  EXPECT_NE(server().complete(unseeded).document()["choices"], server().complete(unseeded).document()["choices"]);
}

TEST_F(Serving, gives_64_streams_at_once_each_its_own_text) {
  const int count = 64;
  std::vector<std::string> expected(count), found(count);
  for (int i = 0; i < count; ++i) expected[std::size_t(i)] = text_alone(demo_run(), kOnce, 16, 1, std::uint64_t(i));
  std::vector<std::thread> clients;
  std::atomic<int> failed = 0;
  for (int i = 0; i < count; ++i)
    clients.emplace_back([&, i] {
      const Answered a =
          server().complete(asking({{"temperature", 1}, {"seed", i}, {"max_tokens", 16}, {"stream", true}}));
      failed += a.status != 200;
      found[std::size_t(i)] = a.streamed_text();
    });
  for (std::thread& t : clients) t.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(server().idle_within(10));
}

TEST_F(Serving, ends_at_stop_strings_wherever_tokens_divide_them) {
  const std::string text = text_alone(demo_run(), kOnce, 24);
  for (std::size_t at = 3; at + 5 < text.size(); at += 4) {
    const std::string stop = text.substr(at, 5);
    const std::string before = text.substr(0, text.find(stop));
    for (const bool stream : {false, true}) {
      const Answered a =
          server().complete(asking({{"temperature", 0}, {"stop", json::array({stop, "zzz"})}, {"stream", stream}}));
      ASSERT_EQ(a.status, 200) << a.body;
      EXPECT_EQ(stream ? a.streamed_text() : a.document()["choices"][0]["text"].get<std::string>(), before) << stop;
      const json last = stream ? a.documents().back() : a.document();
      EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
    }
  }
}

// A bias of 100 makes a model write one token alone: half of a character, whatever comes before and after.
TEST_F(Serving, never_sends_half_a_character) {
  const auto tokenizer = server().model().tokenizer();
  Token half = -1;
  for (Token t = 0; t < tokenizer->vocab() && half < 0; ++t) {
    const std::string bytes = tokenizer->decode_inside(std::span(&t, 1), true);
    if (bytes.size() == 1 && (bytes[0] & 0xe0) == 0xc0) half = t;
  }
  ASSERT_GE(half, 0);
  const json forced{{"temperature", 0}, {"logit_bias", {{std::to_string(half), 100}}}, {"max_tokens", 6}};
  json streamed = forced;
  streamed["stream"] = true;
  const std::string text = server().complete(asking(forced)).document()["choices"][0]["text"];
  EXPECT_EQ(text, "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd");
  EXPECT_EQ(server().complete(asking(streamed)).streamed_text(), text);
}

TEST_F(Serving, tells_usage_log_probabilities_and_speculation) {
  const Answered a =
      server().complete(asking({{"temperature", 0}, {"logprobs", 0}, {"echo", false}, {"report_speculation", true}}));
  const json choice = a.document()["choices"][0], usage = a.document()["usage"];
  const json& s = usage["speculation"];
  ASSERT_EQ(choice["logprobs"]["token_logprobs"].size(), 24u);
  std::string joined;
  for (const json& token : choice["logprobs"]["tokens"]) joined += token;
  EXPECT_EQ(joined, choice["text"].get<std::string>());
  for (const json& value : choice["logprobs"]["token_logprobs"]) EXPECT_LE(value.get<double>(), 0);
  EXPECT_GT(s["drafted_tokens"], 0);
  EXPECT_EQ(s["rounds"].get<int>() + s["accepted_tokens"].get<int>(), usage["completion_tokens"].get<int>());
  EXPECT_EQ(s["positions"][0]["tested"].get<int>() <= s["rounds"].get<int>(), true);
  const Answered plain =
      server().complete(asking({{"temperature", 0}, {"draft_length", 0}, {"report_speculation", true}}));
  EXPECT_EQ(plain.document()["usage"]["speculation"]["drafted_tokens"], 0);
  EXPECT_EQ(plain.document()["choices"][0]["text"], choice["text"]) << "drafts change no greedy text";
  const Answered streamed = server().complete(
      asking({{"temperature", 0}, {"logprobs", 0}, {"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  std::vector<json> values;
  for (const json& document : streamed.documents())
    for (const json& c : document["choices"])
      if (!c["logprobs"].is_null())
        values.insert(values.end(), c["logprobs"]["token_logprobs"].begin(), c["logprobs"]["token_logprobs"].end());
  EXPECT_EQ(json(values), choice["logprobs"]["token_logprobs"]);
  EXPECT_EQ(streamed.documents().back()["usage"]["completion_tokens"], 24);
  EXPECT_TRUE(streamed.documents().back()["choices"].empty());
  const Answered echoed = server().complete(asking({{"temperature", 0}, {"echo", true}}));
  EXPECT_EQ(echoed.document()["choices"][0]["text"], kOnce + choice["text"].get<std::string>());
}

TEST_F(Serving, puts_conversations_into_the_template) {
  const json messages = json::parse(R"([{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Who is there?"}])");
  const std::string expected =
      text_alone(demo_run(), "Be short.\nUSER: Hi\nSYSTEM: Hello.\nUSER: Who is there?\nSYSTEM:", 16);
  json body{{"messages", messages}, {"max_tokens", 16}, {"temperature", 0}, {"ignore_eos", true}};
  const json whole = server().post("/v1/chat/completions", body).document();
  EXPECT_EQ(whole["object"], "chat.completion");
  EXPECT_EQ(whole["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(whole["choices"][0]["message"]["content"], expected);
  body["stream"] = true;
  const Answered streamed = server().post("/v1/chat/completions", body);
  EXPECT_EQ(streamed.streamed_text(), expected);
  EXPECT_EQ(streamed.documents().front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(streamed.documents().back()["choices"][0]["finish_reason"], "length");
}

TEST_F(Serving, takes_several_prompts_and_tokens) {
  const std::vector<Token> tokens = server().model().tokenizer()->encode("The sea");
  const json many =
      server()
          .complete(asking(
              {{"prompt", json::array({json(kOnce), json(tokens)})}, {"temperature", 0}, {"n", 2}, {"max_tokens", 8}}))
          .document();
  ASSERT_EQ(many["choices"].size(), 4u);
  const std::string first = text_alone(demo_run(), kOnce, 8), second = text_alone(demo_run(), "The sea", 8);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(many["choices"][i]["text"], i < 2 ? first : second);
  const std::size_t read = tokens.size() + server().model().tokenizer()->encode(kOnce).size();
  EXPECT_EQ(many["usage"]["prompt_tokens"], read) << "a prompt of several outputs is read once";
}

TEST_F(Serving, refuses_what_the_engine_refuses) {
  for (const auto& [more, word] :
       std::vector<std::pair<json, std::string>>{{{{"prompt", ""}}, "empty"},
                                                 {{{"prompt", std::string(20000, 'x')}}, "context"},
                                                 {{{"prompt", json::array({999999})}}, "vocabulary"},
                                                 {{{"logit_bias", {{"999999", 1}}}}, "vocabulary"},
                                                 {{{"model", "other"}}, "'other' is not served"}}) {
    const Answered a = server().complete(asking(more));
    EXPECT_EQ(a.status, more.contains("model") ? 404 : 400) << a.body;
    EXPECT_NE(a.message().find(word), std::string::npos) << a.body;
  }
  EXPECT_TRUE(server().idle_within(10));
}

TEST_F(Serving, keeps_connections_and_answers_requests_in_order) {
  TestClient client = server().client();
  for (int i = 0; i < 3; ++i) {
    const Answered a = client.post("/v1/completions", asking({{"temperature", 0}, {"max_tokens", 1 + i}}));
    EXPECT_EQ(a.document()["usage"]["completion_tokens"], 1 + i);
    EXPECT_EQ(client.get("/health").status, 200);
  }
  // Two at once, of which the second waits.
  const std::string one = asking({{"temperature", 0}, {"max_tokens", 3}, {"stream", true}}).dump(),
                    two = asking({{"temperature", 0}, {"max_tokens", 5}}).dump();
  client.send(post_text("/v1/completions", one) + post_text("/v1/completions", two));
  EXPECT_EQ(client.read().events().back(), "[DONE]");
  EXPECT_EQ(client.read().document()["usage"]["completion_tokens"], 5);
  // A body that waits to be asked for.
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
      "Content-Length: " +
      std::to_string(two.size()) + "\r\n\r\n");
  EXPECT_EQ(client.read_some(), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(two);
  EXPECT_EQ(client.read().document()["usage"]["completion_tokens"], 5);
}

TEST_F(Serving, serves_clients_of_the_older_protocol) {
  const std::string body = asking({{"temperature", 0}, {"max_tokens", 3}, {"stream", true}}).dump();
  TestClient client = server().client();
  client.send("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  const Answered a = client.read();
  EXPECT_EQ(a.events().back(), "[DONE]");
  EXPECT_EQ(client.read_some(), "") << "the end of the connection is the end of the stream";
}

TEST_F(Serving, names_its_model_and_counts_what_it_does) {
  const json models = server().client().get("/v1/models").document();
  EXPECT_EQ(models["data"][0]["id"], "target");
  EXPECT_EQ(server().client().get("/v1/models/target").document()["id"], "target");
  EXPECT_EQ(server().client().get("/v1/models/other").status, 404);
  EXPECT_EQ(server().client().get("/nothing").status, 404);
  EXPECT_EQ(server().client().get("/v1/completions").status, 405);
  const double tokens = server().metric("foretoken_output_tokens_total"),
               firsts = server().metric("foretoken_time_to_first_token_seconds_count"),
               between = server().metric("foretoken_time_between_tokens_seconds_count");
  server().complete(asking({{"temperature", 0}, {"max_tokens", 24}, {"stream", true}}));
  EXPECT_EQ(server().metric("foretoken_output_tokens_total"), tokens + 24);
  EXPECT_EQ(server().metric("foretoken_time_to_first_token_seconds_count"), firsts + 1);
  const double gaps = server().metric("foretoken_time_between_tokens_seconds_count") - between;
  EXPECT_TRUE(gaps >= 20 && gaps <= 23) << gaps << ": one for each token behind those of the first round";
  EXPECT_LE(server().metric("foretoken_accepted_total{model=\"demo\",position=\"1\"}"),
            server().metric("foretoken_tested_total{model=\"demo\",position=\"1\"}"));
}

}  // namespace
}  // namespace foretoken::test
