#include "experiments/session/request.h"

#include <algorithm>
#include <utility>

#include "experiments/session/response_format.h"
#include "experiments/session/workbench.h"
#include "foretoken_version.h"
#include "framework/model/model_files.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

class StopStrings {
 public:
  StopStrings(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops)
      : tokenizer_(std::move(tokenizer)), stops_(std::move(stops)) {
    for (const auto& s : stops_) longest_ = std::max(longest_, s.size());
  }

  std::optional<int> operator()(std::span<const Token> generated, int seen) {
    if (tokens_ != seen)
      restart(generated.first(std::size_t(std::min<std::size_t>(std::size_t(seen), generated.size()))));
    while (tokens_ < int(generated.size())) {
      push(generated[std::size_t(tokens_)]);
      for (const auto& s : stops_)
        if (tail_.find(s) != std::string::npos) return tokens_;
    }
    return std::nullopt;
  }

 private:
  // Bytes before the last longest - 1 cannot be part of a later match.
  void push(Token token) {
    if (tail_.size() >= longest_) tail_.erase(0, tail_.size() - longest_ + 1);
    tail_ += tokenizer_->decode_inside(std::span(&token, 1), true);
    ++tokens_;
  }

  void restart(std::span<const Token> generated) {
    tail_.clear();
    tokens_ = 0;
    for (const Token t : generated) push(t);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::string> stops_;
  std::size_t longest_ = 0;
  std::string tail_;
  int tokens_ = 0;
};

}  // namespace

StopRule stop_at(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops) {
  if (stops.empty()) return {};
  return StopStrings(std::move(tokenizer), std::move(stops));
}

std::uint64_t stream_of(int prompt, std::uint64_t sample, std::uint64_t part) {
  constexpr int kPromptBits = 32, kSampleBits = 20, kPartBits = 64 - kPromptBits - kSampleBits;
  const auto expect = [](std::uint64_t value, int bits, const char* what, const char* remedy) {
    if (value >> bits == 0) return;
    throw Error("a " + std::string(what) + " is number " + std::to_string(value) + ", but draws have names for " +
                std::to_string(std::uint64_t(1) << bits) + ": it would meet the draws of another; " + remedy);
  };
  expect(sample, kSampleBits, "sample of a prompt", "lower '/sampling/samples' or '/workload/repeats'");
  expect(part, kPartBits, "turn of a conversation, or pass of a soak test over its prompts",
         "lower '/workload/turns', or give the soak test fewer requests or more prompts");
  return part << (kPromptBits + kSampleBits) | sample << kPromptBits | std::uint32_t(prompt);
}

std::filesystem::path locate(const std::string& path, const std::filesystem::path& beside) {
  std::error_code ignored;
  for (const auto& base : {std::filesystem::path(), beside, std::filesystem::path(kSourceDirectory)})
    if (const auto candidate = base / path; std::filesystem::exists(candidate, ignored)) return candidate;
  return path;
}

std::filesystem::path model_path(const std::string& directory, const std::filesystem::path& beside) {
  const auto path = locate(directory, beside);
  expect_model(path);
  return path;
}

std::optional<ChatTemplate> chat_of(const json& run, const std::filesystem::path& beside) {
  const json& w = run.at("workload");
  const std::string chat = w.value("chat", "none");
  if (chat == "none" && w.contains("system") && !w["system"].is_null())
    throw Error("'/workload/system' needs a form of chat to stand in; choose one with '/workload/chat'");
  if (chat == "none") return std::nullopt;
  ChatTemplate made = chat == "auto"
                          ? ModelFiles::open(model_path(target_of(run).tokenizer_directory(), beside))->chat()
                          : ChatTemplate::named(chat);
  if (w.contains("date")) made.set_date(Date::parse(w["date"].get<std::string>(), "'/workload/date'"));
  return made;
}

std::optional<std::string> system_of(const json& run) {
  const json system = run.at("workload").value("system", json());
  return system.is_null() ? std::nullopt : std::optional(system.get<std::string>());
}

std::vector<Token> encoded_prompt(const json& run, const Tokenizer& tokenizer, const std::optional<ChatTemplate>& chat,
                                  const std::string& text) {
  return chat ? chat->encode(tokenizer, text, system_of(run)) : tokenizer.encode(text);
}

Sampling sampling_of(const json& run) {
  const json& s = run.at("sampling");
  Sampling sampling = {.temperature = s.at("temperature"),
                       .top_k = s.at("top_k"),
                       .top_p = s.at("top_p"),
                       .min_p = s.at("min_p"),
                       .repetition_penalty = s.at("repetition_penalty"),
                       .frequency_penalty = s.at("frequency_penalty"),
                       .presence_penalty = s.at("presence_penalty"),
                       .seed = s.at("seed"),
                       .logprobs = s.at("logprobs"),
                       .warped_logprobs = s.at("warped_logprobs")};
  for (const auto& [token, bias] : s.at("logit_bias").items())
    sampling.logit_bias.push_back({std::stoi(token), bias.get<float>()});
  return sampling;
}

Request request_of(const json& run, const ModelInfo& target, const std::shared_ptr<const Tokenizer>& tokenizer,
                   const std::optional<ChatTemplate>& chat, const Prompt& prompt, std::uint64_t sample) {
  const json& w = run.at("workload");
  Request r;
  r.prompt = encoded_prompt(run, *tokenizer, chat, prompt.text);
  r.limits.max_new_tokens = w.at("max_new_tokens");
  if (!w.at("ignore_eos").get<bool>()) r.limits.stop_tokens = target.stop_tokens;
  r.limits.stop = stop_at(tokenizer, w.at("stop").get<std::vector<std::string>>());
  r.sampling = sampling_of(run);
  r.sampling.constraint =
      constraint_of(run.at("sampling").value("response_format", json()), tokenizer, std::span(r.limits.stop_tokens));
  r.stream = stream_of(prompt.number, sample);
  r.category = prompt.category;
  return r;
}

}  // namespace foretoken
