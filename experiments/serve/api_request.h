// What a client asks for: the bodies of /v1/completions and /v1/chat/completions, read and checked. Whatever is
// unknown, unsupported or out of range is an ApiError that names the key. This module must not know connections or
// engines.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/decode/sequence.h"

namespace foretoken::serve {

enum class Endpoint { completions, chat };

// The most that one request may ask for.
struct RequestLimits {
  int choices = 64;       // outputs, over all of its prompts
  int stops = 16;         // stop strings
  int stop_bytes = 256;   // of each
  int messages = 1024;    // of a conversation
  int biases = 1024;      // of tokens
  int new_tokens = 4096;  // of each output
};

// A text, or the tokens of one.
using ApiPrompt = std::variant<std::string, std::vector<Token>>;

struct ApiRequest {
  Endpoint endpoint = Endpoint::completions;
  std::string model = {};                // empty: the one that is served
  std::vector<ApiPrompt> prompts = {};   // of completions
  nlohmann::ordered_json messages = {};  // of chat: {"role", "content"} each, contents as text
  int n = 1;                             // outputs of each prompt
  std::optional<int> max_tokens = {};    // none: as the endpoint has it
  bool stream = false, include_usage = false, echo = false;
  Sampling sampling = {};
  nlohmann::json response_format = {};  // null: any text
  bool seeded = false;                  // else the seed is drawn
  std::vector<std::string> stops = {};
  bool ignore_eos = false;
  std::optional<int> draft_length = {};  // levels of a draft at most; 0: no speculation; none: as the policy has it
  bool report_speculation = false;       // rounds and acceptance in `usage`
};

// `standard`: what a body that does not say otherwise asks for.
ApiRequest read_request(Endpoint endpoint, std::string_view body, const ApiRequest& standard,
                        const RequestLimits& limits);

}  // namespace foretoken::serve
