// One engine for another language: a run document, what it is made of, and the loop that drives it. Any thread may call
// it. This module must not know which language.
#pragma once
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/session/engine_loop.h"
#include "experiments/session/workbench.h"

namespace foretoken {

// One round of a request: what it emitted, and the text that can be shown with it.
struct OutputRound {
  std::vector<Token> tokens;
  std::string text;
  int drafted = 0, accepted = 0;
};

// Counts over the rounds of a request, as of SequenceReport.
struct OutputCounts {
  long rounds = 0, drafted = 0, tested = 0, accepted = 0;
};

// The output of one request. One thread at a time may read it. Destroyed before its request has ended, it cancels it.
class OutputStream {
 public:
  OutputStream(TokenStream stream, std::shared_ptr<const Tokenizer> tokenizer, int prompt_tokens)
      : stream_(std::move(stream)), text_(std::move(tokenizer)), prompt_tokens_(prompt_tokens) {}

  bool ready(double seconds) { return stream_.ready(seconds); }                   // TokenStream::ready
  void listen(std::function<void()> heard) { stream_.listen(std::move(heard)); }  // TokenStream::listen
  void cancel() { stream_.cancel(); }
  std::optional<OutputRound> next();  // none once it has ended; the last one has the rest of the text
  const Sequence& ended() { return stream_.ended(); }
  const OutputCounts& counts() const { return counts_; }
  int prompt_tokens() const { return prompt_tokens_; }
  const TokenStream& stream() const { return stream_; }

 private:
  TokenStream stream_;
  TextStream text_;
  OutputCounts counts_;
  int prompt_tokens_;
  bool finished_ = false;
};

class Session {
 public:
  // `document`: a run, as `foretoken run` reads it; its workload's prompts are not read. Paths may also lie `beside`
  // it.
  Session(const nlohmann::json& document, const Registries& registries, const std::filesystem::path& beside);

  // How requests are made: the run of the engine, with changes of its sampling and workload.
  struct Form {
    nlohmann::json run;
    std::optional<ChatTemplate> chat;
  };
  // `changes`: {"sampling": {name: value}, "workload": ...}, each in the place of the run's own, as a whole; null: the
  // run's own stays. What it may not hold is an Error, as in a document.
  std::shared_ptr<const Form> form(const nlohmann::json& changes) const;

  struct Asked {
    std::variant<std::string, std::vector<Token>> prompt;
    int number = 0;  // names its draws, with `sample`
    std::uint64_t sample = 0;
    const OutputStream* like = nullptr;  // of another sample of the same prompt, submitted before
  };
  // None where as many requests are waiting as the loop takes: read some, then try again.
  std::unique_ptr<OutputStream> submit(const Form& form, const Asked& asked);

  const nlohmann::json& run() const { return run_; }  // complete
  const std::string& promise() const { return engine_->soundness().promise; }
  bool learns() const { return engine_->learns(); }
  const ModelInfo& target() const { return target_; }
  std::vector<Token> encode(const Form& form, const std::string& text) const;
  std::string decode(std::span<const Token> tokens) const { return tokenizer_->decode(tokens); }
  // What the engine has to say of its drafter (Engine::doubt, Engine::notice), when a request last ended.
  std::vector<std::string> notices() const;
  // Cancels what has not ended; nothing may be submitted any more. Waits at most so many seconds for the end of the
  // step, which a component that does not return holds up; whether it has ended. May be called again.
  bool close(double seconds);

 private:
  void note(const StepReport& report);

  std::filesystem::path beside_;
  Workbench bench_;
  nlohmann::json run_;
  std::unique_ptr<Engine> engine_;
  ModelInfo target_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  mutable std::mutex mutex_;  // of notices_
  std::vector<std::string> notices_;
  std::mutex closing_;
  std::shared_ptr<EngineLoop> loop_;
  std::future<void> closed_;  // by a thread that ends the loop
};

}  // namespace foretoken
