// One output of a request as its client reads it: whole characters, without the stop string that ended it. This module
// must not know JSON or connections.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "experiments/serve/served_model.h"

namespace foretoken::serve {

// Text in pieces, up to a stop string; what may be the beginning of one is held back.
class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  // What of `text`, which continues the text before, can be shown now.
  std::string push(const std::string& text);
  // The rest.
  std::string finish();
  bool stopped() const { return stopped_; }  // a stop string has come; nothing follows it

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

// Code points that begin in it, which may be a part of a text.
std::size_t characters_in(std::string_view text);

// Counts over the rounds of an output, as of SequenceReport.
struct RoundCounts {
  long tokens = 0, rounds = 0, drafted = 0, tested = 0, accepted = 0;
  std::vector<long> tested_at = {}, accepted_at = {};  // by level of the draft, from 0

  void add(const SequenceReport& report);
  RoundCounts& operator+=(const RoundCounts& o);
};

class Output {
 public:
  Output(SubmittedOutput submitted, std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops);

  // One or more rounds.
  struct Piece {
    std::string text = {};  // empty where what came is held back
    std::vector<Token> tokens = {};
    std::vector<float> logprobs = {};  // of `tokens`, where they were asked for
    bool ended = false;

    void add(const Piece& next);
  };
  // The rounds that are there, without waiting; one piece for each, or one for all where `joined`. After the last piece
  // none follow.
  std::vector<Piece> read(bool joined);
  // Ends it in the engine.
  void cancel() { stream_.cancel(); }
  void listen(std::function<void()> heard) { stream_.listen(std::move(heard)); }

  bool ended() const { return ended_; }
  // "stop" or "length", of one that has ended.
  const char* finish_reason() const;
  // Why it failed or was cancelled; empty where it ended as it should.
  const std::string& failure() const { return failure_; }
  const RoundCounts& counts() const { return counts_; }
  int prompt_tokens() const { return prompt_tokens_; }
  int most_tokens() const { return most_tokens_; }
  const std::string& echo() const { return echo_; }

 private:
  Piece piece_of(const SequenceReport& report);
  void end(Piece& piece, Finish finish);

  TokenStream stream_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  TextStream characters_;
  StopFilter filter_;
  std::shared_ptr<LogProbabilities> logprobs_;
  RoundCounts counts_;
  int prompt_tokens_, most_tokens_;
  std::string echo_, failure_;
  Finish finish_ = Finish::running;
  bool ended_ = false;
};

}  // namespace foretoken::serve
