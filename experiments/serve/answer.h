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
    std::string model;             // as the answer names it
    std::string id;                // of the request, without its prefix
    Clock::time_point arrived;     // of its first byte
    Metrics& metrics;              // outlives the answer
    std::size_t judged_bytes = 0;  // of an output, after so many of which somebody judges it; 0: nobody does
  };
  Answer(ApiRequest request, std::vector<SubmittedOutput> submitted, Context context);
  ~Answer();

  // `heard` is called, on the loop's thread, when there is something to read, and not any more once this is destroyed.
  void listen(const std::function<void()>& heard);
  // Reads what is there, without waiting. Of a stream: its events, with the end of it once all has come; where `joined`
  // (the client is behind) one event for all rounds of an output.
  // What is to be judged is held back.
  std::string read(bool joined);
  // Outputs that are to be judged now, of those that wait for it: their places and their texts so far. Once for each
  // text.
  std::vector<std::pair<std::size_t, std::string>> to_judge();
  // Events that follow from a verdict: what was held back, or the end of the output.
  std::string judged(std::size_t index, bool allowed);
  bool streams() const { return request_.stream; }
  bool ended() const;
  // Why the request failed: that of the first output that did. Empty where none did.
  std::string failure() const;
  // Of one that is not a stream and has ended.
  std::string document() const;

  double first_token_seconds() const { return first_seconds_; }  // below 0: none has come
  int prompt_tokens() const;
  // Tokens that it may have at most, of prompts and outputs, and those that it has now, whether they were read or not.
  double granted_tokens() const;
  double used_tokens();
  RoundCounts counts() const;
  // "stop", "length", "content_filter", or "mixed" of several.
  std::string finish() const;

 private:
  struct Choice {
    Output output;
    std::string text = {};           // so far; of one that is no stream
    std::vector<Token> tokens = {};  // likewise, with log-probabilities
    std::vector<float> logprobs = {};
    std::size_t offset = 0;                   // characters before the next token, for log-probabilities
    bool opened = false;                      // its first event was written
    std::optional<Clock::time_point> read{};  // its last round
    Output::Piece waiting{}, judging{};       // where outputs are judged: what came since, and what is judged now
    std::string judged = {};                  // its text with that
    bool is_judged = false, refused = false, over = false;
  };
  void take(Choice& choice, std::size_t index, const Output::Piece& piece, std::string& events) const;
  bool ended(const Choice& choice) const;
  const char* finish_of(const Choice& choice) const;
  std::string closing();
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
