// A command that judges prompts and outputs: what it refuses is not sent, and what it does not answer neither.
#include <chrono>

#include "experiments/serve/content_filter.h"
#include "tests/experiments/serve/served.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using serve::ContentFilter;
using serve::Verdict;

const char* const kBegin = "Once upon a time";

// Refuses texts that have the word.
std::string refusing(const std::string& word) {
  return "while read -r line; do case \"$line\" in *'" + word +
         "'*) echo '{\"allow\": false}';; *) echo '{\"allow\": true}';; esac; done";
}

// Answers so many texts, and then no more. The first one is asked when it is started.
std::string stuck_after(int texts) {
  return "for i in $(seq " + std::to_string(texts) + "); do read -r line; echo '{\"allow\": true}'; done; sleep 100";
}

json filtered_completion(const json& more = json::object()) {
  json body{{"prompt", kBegin}, {"max_tokens", 40}, {"temperature", 0}, {"ignore_eos", true}};
  body.update(more);
  return body;
}

RunningServer::Options filtered_by(ContentFilter& filter, std::size_t bytes = 8) {
  RunningServer::Options options;
  options.server.filter = &filter;
  options.server.filter_bytes = bytes;
  return options;
}

// A word of letters alone in the second half of a text.
std::string late_word(const std::string& text) {
  for (std::size_t at = text.find(' ', text.size() / 2); at != text.npos; at = text.find(' ', at + 1)) {
    const std::size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz", at + 1);
    const std::string word = text.substr(at, end == text.npos ? end : end - at);
    if (word.size() > 4 && text.find(word) == at) return word;
  }
  return "";
}

TEST(Filters, let_pass_what_they_allow) {
  ContentFilter filter(refusing("forbidden"), 20);
  RunningServer server(filtered_by(filter));
  const std::string alone = text_alone(demo_run(), kBegin, 40);
  EXPECT_EQ(server.complete(filtered_completion()).document()["choices"][0]["text"], alone);
  for (const int n : {1, 3}) {
    const Answered streamed = server.complete(filtered_completion(
        {{"stream", true}, {"n", n}, {"logprobs", 0}, {"stream_options", {{"include_usage", true}}}}));
    for (int k = 0; k < n; ++k) EXPECT_EQ(streamed.streamed_text(k), alone);
    EXPECT_EQ(streamed.documents().back()["usage"]["completion_tokens"], 40 * n);
  }
  const Answered refused = server.complete(filtered_completion({{"prompt", "a forbidden word"}}));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.document()["error"]["code"], "content_filter");
  const json messages = json::array({{{"role", "user"}, {"content", "forbidden"}}});
  EXPECT_EQ(server.post("/v1/chat/completions", {{"messages", messages}, {"max_tokens", 4}}).status, 400);
  const std::vector<Token> tokens = server.model().tokenizer()->encode("all that is forbidden");
  EXPECT_EQ(server.complete(filtered_completion({{"prompt", tokens}})).status, 400);
  EXPECT_TRUE(server.idle_within(10));
}

TEST(Filters, end_outputs_that_they_refuse_before_these_are_sent) {
  const std::string alone = text_alone(demo_run(), kBegin, 40), word = late_word(alone);
  ASSERT_NE(word, "") << alone;
  ContentFilter filter(refusing(word), 20);
  RunningServer server(filtered_by(filter));
  const json whole = server.complete(filtered_completion()).document();
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "content_filter");
  EXPECT_EQ(whole["choices"][0]["text"], "");
  const Answered streamed = server.complete(filtered_completion({{"stream", true}}));
  const std::string sent = streamed.streamed_text();
  EXPECT_TRUE(alone.starts_with(sent)) << sent;
  EXPECT_EQ(sent.find(word), sent.npos);
  EXPECT_GT(sent.size(), 8u) << "what was before it was sent";
  EXPECT_EQ(streamed.documents().back()["choices"][0]["finish_reason"], "content_filter");
  EXPECT_TRUE(server.idle_within(10));
}

TEST(Filters, that_do_not_answer_let_nothing_pass) {
  for (const int texts : {1, 2}) {  // stuck at the prompt, and at its output
    ContentFilter filter(stuck_after(texts), 0.3);
    RunningServer server(filtered_by(filter));
    const Answered refused = server.complete(filtered_completion());
    EXPECT_EQ(refused.status, 503) << texts;
    EXPECT_EQ(refused.document()["error"]["code"], "content_filter");
    EXPECT_TRUE(server.idle_within(10));
  }
}

TEST(Filters, that_think_for_long_hold_up_no_end) {
  ContentFilter filter(stuck_after(2), 100);
  const auto begun = std::chrono::steady_clock::now();
  {
    RunningServer::Options options = filtered_by(filter);
    options.server.drain_seconds = 0.1;
    RunningServer server(std::move(options));
    std::vector<std::unique_ptr<TestClient>> clients;  // one whose output is judged, and those whose prompts wait
    for (int i = 0; i < 4; ++i) {
      clients.push_back(std::make_unique<TestClient>(server.port()));
      clients.back()->send(post_text("/v1/completions", filtered_completion().dump()));
    }
    while (server.metric("foretoken_connections") < 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    server.server().stop();
    for (auto& client : clients) EXPECT_EQ(client->read().status, 503);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30));
  EXPECT_EQ(filter.judge("prompt", "x"), Verdict::none);
}

TEST(Filters, that_end_are_started_again) {
  // Ends behind the second text.
  ContentFilter filter("for i in 1 2; do read -r line; echo '{\"allow\": true}'; done", 20);
  EXPECT_EQ(filter.judge("output", "first"), Verdict::allowed);
  EXPECT_EQ(filter.judge("output", "second"), Verdict::none);
  for (int i = 0; i < 2000 && filter.judge("output", "third") != Verdict::allowed; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(filter.judge("output", "fourth"), Verdict::none);
  ContentFilter nonsense("read -r line; echo '{\"allow\": true}'; while read -r line; do echo yes; done", 20);
  EXPECT_EQ(nonsense.judge("prompt", "x"), Verdict::none);
  for (const char* command : {"exit 1", "echo no", "echo '{\"allow\": 1}'", "/nowhere/filter 2>/dev/null"})
    EXPECT_TRUE(says(sentence_of([&] { ContentFilter(command, 1); }), "does not answer", "allow")) << command;
}

}  // namespace
}  // namespace foretoken::test
