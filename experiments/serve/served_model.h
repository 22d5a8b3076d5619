// The model that a server serves: a run document, its engine, and the loop that drives it. Requests come from any
// thread. This module must not know HTTP.
#pragma once
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/serve/api_request.h"
#include "experiments/serve/draft_caps.h"
#include "experiments/session/engine_loop.h"
#include "experiments/session/workbench.h"

namespace foretoken::serve {

// Log-probabilities of one output, in the order of its tokens. Written by the loop's thread before the stream of tokens
// has the round that they belong to.
class LogProbabilities {
 public:
  void add(const Sequence& sequence, std::size_t emitted);
  // The first so many that were not taken.
  std::vector<float> take(std::size_t count);

 private:
  std::mutex mutex_;
  std::deque<float> values_;
};

// One output of a request that the engine has.
struct SubmittedOutput {
  TokenStream stream;
  int prompt_tokens = 0, most_tokens = 0;           // of the output: those that it may have
  std::string echo = {};                            // the prompt's text, where the request asks for it
  std::shared_ptr<LogProbabilities> logprobs = {};  // null where the request asks for none
};

struct ServedModelOptions {
  std::size_t waiting = 256;                            // requests that wait for a place in the batch (EngineLoop)
  std::function<void(const StepReport&)> after_step{};  // on the loop's thread
  RequestLimits limits{};
  std::string chat_template{};  // a file with a Jinja template of conversations; empty: as the run has it
};

class ServedModel {
 public:
  // `document`: a run; its workload's prompts come with the requests, and paths may also lie `beside` it. What it says
  // of sampling and of outputs is the default of requests; where it says nothing, OpenAI's is. Loads the models.
  ServedModel(const nlohmann::json& document, const std::vector<std::string>& plugins,
              const std::filesystem::path& beside, ServedModelOptions options);
  // Cancels what has not ended.
  ~ServedModel() = default;

  // All outputs of a request, those of one prompt after another, or an ApiError: 400 where the engine refuses it, 429
  // where as many are waiting as may, 503 where the loop serves no more.
  std::vector<SubmittedOutput> submit(const ApiRequest& request);

  // The texts of a request's prompts, one after another. An ApiError where they are longer than the context.
  std::string text_of_prompts(const ApiRequest& request) const;

  const nlohmann::json& run() const { return run_; }  // complete
  const ApiRequest& standard() const { return standard_; }
  const RequestLimits& limits() const { return options_.limits; }
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  const Engine& engine() const { return *engine_; }
  EngineLoop& loop() { return *loop_; }
  // The last part of the path of the target.
  const std::string& name() const { return name_; }
  // Why no conversation can be served; empty where one can.
  const std::string& no_chat() const { return no_chat_; }
  // A sentence of an Error as clients may read it: without the folders in which this machine has its files.
  std::string for_clients(std::string sentence) const;

 private:
  std::vector<std::pair<std::vector<Token>, std::string>> encoded(const ApiRequest& request) const;  // with texts
  void expect_known(const std::vector<Token>& tokens) const;
  void expect_room(std::size_t bytes, const char* parameter) const;
  void name_files(const std::filesystem::path& beside);
  Request request_of_prompt(const ApiRequest& request, const std::vector<Token>& prompt, int number) const;
  int most_new_tokens(const ApiRequest& request, Request made) const;
  SubmittedOutput submit_one(const ApiRequest& request, Request made, const TokenStream* sample_of);
  void choose_chat(const nlohmann::json& document, const std::filesystem::path& beside);

  ServedModelOptions options_;
  Workbench bench_;
  nlohmann::json run_;
  ApiRequest standard_;
  std::string name_, no_chat_;
  std::size_t most_bytes_ = 0;  // that a prompt can have; more have more tokens than the context
  std::vector<std::pair<std::string, std::string>> files_;  // paths, longest first, and what clients read for them
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  std::shared_ptr<DraftCaps> caps_ = std::make_shared<DraftCaps>();
  Registries registries_;
  std::unique_ptr<Engine> engine_;
  ModelInfo target_;
  std::unique_ptr<EngineLoop> loop_;
};

}  // namespace foretoken::serve
