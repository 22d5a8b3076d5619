// Requests of a complete run: a prompt in the form that its model takes, sampling, limits, and the names of its draws.
// This module must not know engines, nor where prompts come from.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/engine/engine.h"
#include "framework/text/chat_template.h"
#include "framework/text/tokenizer.h"

namespace foretoken {

struct Prompt {
  int number = 0;  // of the line among the prompts of the file, from 0
  std::string text;
  std::string category;              // the line's own, else the name of its data set; empty: none
  std::vector<std::string> later{};  // turns of a conversation after `text`
};

// Names the draws of a request: different prompts, samples and parts have different ones. `part`: the turn of a
// conversation, or how often a soak test has served the request before. A sample or part without room is an Error.
std::uint64_t stream_of(int prompt, std::uint64_t sample, std::uint64_t part = 0);

// `path` as given, else below `beside`, else below the project's own folder; the first that exists, or as given.
std::filesystem::path locate(const std::string& path, const std::filesystem::path& beside = {});

// The same of a model, which must exist.
std::filesystem::path model_path(const std::string& directory, const std::filesystem::path& beside);
// The sequence ends with the token that completes the first of `stops`, like a stop token, wherever rounds divide the
// output. One rule per request; without stop strings the rule is empty.
StopRule stop_at(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops);

// The form in which a complete run puts prompts to a chat model; none: as they are.
std::optional<ChatTemplate> chat_of(const nlohmann::json& run, const std::filesystem::path& beside);
// The system prompt of its chat form.
std::optional<std::string> system_of(const nlohmann::json& run);
// The tokens of a prompt's text, in the form in which a complete run puts it to the model.
std::vector<Token> encoded_prompt(const nlohmann::json& run, const Tokenizer& tokenizer,
                                  const std::optional<ChatTemplate>& chat, const std::string& text);
// How a complete run draws.
Sampling sampling_of(const nlohmann::json& run);
// A request of a complete run: sample number `sample` of a prompt, with the run's sampling, limits and stop texts.
Request request_of(const nlohmann::json& run, const ModelInfo& target,
                   const std::shared_ptr<const Tokenizer>& tokenizer, const std::optional<ChatTemplate>& chat,
                   const Prompt& prompt, std::uint64_t sample);

}  // namespace foretoken
