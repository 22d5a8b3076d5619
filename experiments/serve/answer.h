// Answers of one request in the form of OpenAI's API: a document, or events of a stream. This module must not know
// connections.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "experiments/serve/api_request.h"
#include "experiments/serve/metrics.h"
#include "experiments/serve/output.h"

namespace foretoken::serve {

class Answer {
 public:
  using Clock = std::chrono::steady_clock;
  struct Context {
    std::shared_ptr<const Tokenizer> tokenizer;
    std::string model;          // as the answer names it
    std::string id;             // of the request, without its prefix
    Clock::time_point arrived;  // of its first byte
    Metrics& metrics;           // outlives the answer
  };
  Answer(ApiRequest request, std::vector<SubmittedOutput> submitted, Context context);
  ~Answer();

  // `heard` is called, on the loop's thread, when there is something to read, and not any more once this is destroyed.
  void listen(const std::function<void()>& heard);
  // Reads what is there, without waiting. Of a stream: its events, with the end of it once all has come; where `joined`
  // (the client is behind) one event for all rounds of an output.
  std::string read(bool joined);
  bool streams() const { return request_.stream; }
  bool begun() const;  // a token has come, or an end
  bool ended() const;
  // Why the request failed: that of the first output that did. Empty where none did.
  std::string failure() const;
  // Of one that is not a stream and has ended.
  std::string document() const;

  double first_token_seconds() const { return first_seconds_; }  // below 0: none has come
  int prompt_tokens() const;
  RoundCounts counts() const;
  // "stop", "length", or "mixed" of several.
  std::string finish() const;

 private:
  struct Choice {
    Output output;
    std::string text = {};           // so far; of one that is no stream
    std::vector<Token> tokens = {};  // likewise, with log-probabilities
    std::vector<float> logprobs = {};
    std::size_t offset = 0;                   // bytes of text before the next token, for log-probabilities
    bool opened = false;                      // its first event was written
    std::optional<Clock::time_point> read{};  // its last round
  };
  void time(Choice& choice, const Output::Piece& piece);
  void write(Choice& choice, std::size_t index, const Output::Piece& piece, std::string& events) const;
  void open(Choice& choice, std::size_t index, std::string& events) const;
  std::string event(std::size_t index, const std::string& text, const std::string& logprobs, const char* finish) const;
  std::string role_event(std::size_t index) const;
  nlohmann::json logprobs_of(const std::vector<Token>& tokens, const std::vector<float>& values,
                             std::size_t& offset) const;
  nlohmann::json choice_document(const Choice& choice, std::size_t index) const;
  nlohmann::json usage() const;
  bool chat() const { return request_.endpoint == Endpoint::chat; }

  ApiRequest request_;
  Context context_;
  std::string id_;
  std::int64_t created_;
  double first_seconds_ = -1;
  std::string head_, tail_;  // of every event: before its choice, and behind it
  std::vector<Choice> choices_;
  bool closed_ = false;  // the end of the stream was written
};

}  // namespace foretoken::serve
