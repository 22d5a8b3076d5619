#include "experiments/serve/api_request.h"

#include <algorithm>
#include <set>

#include "experiments/serve/api_error.h"
#include "experiments/serve/request_body.h"
#include "experiments/session/response_format.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken::serve {

using nlohmann::json;

namespace {

constexpr double kMostSeed = 9e15;

json parsed(std::string_view body) {
  try {
    return parse_json(body, "the body of the request");
  } catch (const Error& e) {
    throw ApiError(400, e.what());
  }
}

void read_sampling(RequestBody& body, ApiRequest& r, const RequestLimits& limits) {
  Sampling& s = r.sampling;
  s.temperature = float(body.number("temperature", 0, 2, s.temperature));
  if (!is_temperature(s.temperature)) body.fail("temperature", "is too small to divide by; 0 is greedy decoding");
  s.top_p = float(body.number("top_p", 0, 1, s.top_p));
  if (s.top_p <= 0) body.fail("top_p", "must be above 0; \"temperature\": 0 is greedy decoding");
  s.top_k = int(body.integer("top_k", 0, 1'000'000'000, s.top_k));
  s.min_p = float(body.number("min_p", 0, 0.999, s.min_p));
  s.repetition_penalty = float(body.number("repetition_penalty", 0.01, 100, s.repetition_penalty));
  s.frequency_penalty = float(body.number("frequency_penalty", -2, 2, s.frequency_penalty));
  s.presence_penalty = float(body.number("presence_penalty", -2, 2, s.presence_penalty));
  const std::int64_t seed = body.integer("seed", 0, std::int64_t(kMostSeed), -1);
  if (seed >= 0) s.seed = std::uint64_t(seed);
  r.seeded = r.seeded || seed >= 0;
  const json* biases = body.find("logit_bias");
  if (!biases) return;
  if (!biases->is_object()) body.fail("logit_bias", "must be an object, {\"TOKEN\": BIAS} by token id");
  if (int(biases->size()) > limits.biases)
    body.fail("logit_bias", "has " + std::to_string(biases->size()) + " tokens, and at most " +
                                std::to_string(limits.biases) + " are taken");
  s.logit_bias.clear();
  for (const auto& [token, bias] : biases->items()) {
    const bool id = !token.empty() && token.size() <= 9 && token.find_first_not_of("0123456789") == token.npos;
    if (!id) body.fail("logit_bias", "names tokens by their ids, and " + shown(json(token)) + " is none");
    if (!bias.is_number() || !(bias.get<double>() >= -100 && bias.get<double>() <= 100))
      body.fail("logit_bias", "must be numbers from -100 to 100, not " + shown(bias));
    s.logit_bias.push_back({std::stoi(token), bias.get<float>()});
  }
}

void read_stops(RequestBody& body, ApiRequest& r, const RequestLimits& limits) {
  const json* stop = body.find("stop");
  if (!stop) return;
  const json list = stop->is_array() ? *stop : json::array({*stop});
  if (int(list.size()) > limits.stops)
    body.fail("stop", "has " + std::to_string(list.size()) + " strings, and at most " + std::to_string(limits.stops) +
                          " are taken");
  r.stops.clear();
  for (const json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty())
      body.fail("stop", "must be a string or a list of strings, none of them empty");
    r.stops.push_back(text);
    if (int(r.stops.back().size()) > limits.stop_bytes)
      body.fail("stop", "has a string of " + std::to_string(r.stops.back().size()) + " bytes, and at most " +
                            std::to_string(limits.stop_bytes) + " are taken");
  }
}

void read_stream(RequestBody& body, ApiRequest& r) {
  r.stream = body.boolean("stream", false);
  const json* options = body.find("stream_options");
  if (!options) return;
  if (!r.stream) body.fail("stream_options", "has a meaning with \"stream\": true alone; leave it out");
  RequestBody stream(*options, "stream_options.");
  r.include_usage = stream.boolean("include_usage", false);
  stream.refuse("include_obfuscation", "is not supported here; leave it out", false);
  stream.expect_nothing_else();
}

void read_response_format(RequestBody& body, ApiRequest& r) {
  const json* format = body.find("response_format");
  if (!format) return;
  try {
    expect_response_format(*format);
  } catch (const Error& e) {
    body.fail("response_format", std::string("cannot be honoured: ") + e.what());
  }
  r.response_format = *format;
}

// What both endpoints have, and what neither of them serves.
void read_common(RequestBody& body, ApiRequest& r, const RequestLimits& limits) {
  r.model = body.string("model");
  r.n = int(body.integer("n", 1, limits.choices, 1));
  read_sampling(body, r, limits);
  read_stops(body, r, limits);
  read_stream(body, r);
  r.ignore_eos = body.boolean("ignore_eos", r.ignore_eos);
  if (const std::int64_t length = body.integer("draft_length", 0, 64, -1); length >= 0) r.draft_length = int(length);
  r.report_speculation = body.boolean("report_speculation", false);
  body.find("user");  // names whom the client serves, which changes nothing
  read_response_format(body, r);
  for (const char* key : {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"})
    body.refuse(key, "is not read here; give the form of the output as 'response_format'");
  for (const char* key : {"min_tokens", "stop_token_ids", "metadata", "service_tier"})
    body.refuse(key, "is not supported here; leave it out");
  body.refuse("store", "is not supported: nothing is kept; leave it out", false);
}

ApiPrompt tokens_of(RequestBody& body, const json& list) {
  std::vector<Token> tokens;
  for (const json& token : list) {
    if (!integer_in(token, 0, 1 << 30)) body.fail("prompt", "has " + shown(token) + " where a token id is expected");
    tokens.push_back(token.get<Token>());
  }
  return tokens;
}

// A string, tokens, or a list of either.
void read_prompts(RequestBody& body, ApiRequest& r, const RequestLimits& limits) {
  const json* prompt = body.find("prompt");
  if (!prompt) body.fail("prompt", "is missing; give a string, or a list of token ids");
  const bool several = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  const json list = several ? *prompt : json::array({*prompt});
  if (list.size() * std::size_t(r.n) > std::size_t(limits.choices))
    body.fail("prompt", "has " + std::to_string(list.size()) + " prompts with " + std::to_string(r.n) +
                            " outputs each, and at most " + std::to_string(limits.choices) +
                            " outputs are taken in one request");
  for (const json& one : list) {
    if (one.is_string())
      r.prompts.emplace_back(one.get<std::string>());
    else if (one.is_array() && !one.empty())
      r.prompts.push_back(tokens_of(body, one));
    else
      body.fail("prompt", "must be a string, a list of token ids, or a list of these, not " + shown(one));
  }
}

void read_completions(RequestBody& body, ApiRequest& r, const RequestLimits& limits) {
  read_prompts(body, r, limits);
  r.max_tokens = int(body.integer("max_tokens", 1, limits.new_tokens, std::min(16, limits.new_tokens)));
  r.echo = body.boolean("echo", false);
  if (body.find("logprobs")) {
    if (body.integer("logprobs", 0, 100, 0) > 0)
      body.fail("logprobs",
                "must be 0: the log-probability of each token of the output is known, and those of "
                "other tokens are not");
    if (r.echo) body.fail("logprobs", "of the prompt are not known; leave out \"echo\" or \"logprobs\"");
    r.sampling.logprobs = true;
  }
  body.refuse("best_of", "is not supported: all outputs are returned; leave it out and set \"n\"", r.n);
  body.refuse("suffix", "is not supported here; leave it out");
}

// The text of a message's content, which may be a list of parts.
std::string content_of(RequestBody& body, RequestBody& message) {
  const json* content = message.find("content");
  if (!content) message.fail("content", "is missing; give a string");
  if (content->is_string()) return *content;
  if (!content->is_array()) message.fail("content", "must be a string or a list of parts, not " + shown(*content));
  std::string text;
  for (const json& part : *content) {
    if (!part.is_object() || part.value("type", json()) != "text" || !part.value("text", json()).is_string())
      body.fail("messages", "has a part that is no text, and this model reads text alone: " + shown(part));
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

void read_messages(RequestBody& body, ApiRequest& r, const RequestLimits& limits) {
  static const std::set<std::string> roles{"system", "user", "assistant"};
  const json* messages = body.find("messages");
  if (!messages || !messages->is_array() || messages->empty())
    body.fail("messages", "must be a list of {\"role\": ..., \"content\": ...} that is not empty");
  if (int(messages->size()) > limits.messages)
    body.fail("messages", "has " + std::to_string(messages->size()) + " messages, and at most " +
                              std::to_string(limits.messages) + " are taken");
  r.messages = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < messages->size(); ++i) {
    RequestBody message((*messages)[i], "messages[" + std::to_string(i) + "].");
    std::string role = message.string("role");
    if (role == "developer") role = "system";  // the newer name of the same
    if (!roles.contains(role))
      message.fail("role", "must be system, developer, user or assistant, not " + shown(json(role)));
    r.messages.push_back({{"role", role}, {"content", content_of(body, message)}});
    for (const char* key : {"name", "tool_calls", "function_call", "audio", "refusal"})
      message.refuse(key, "has no place in this model's prompts; leave it out");
    message.refuse("annotations", "has no place in this model's prompts; leave it out", json::array());
    message.expect_nothing_else();
  }
  if (r.messages.back()["role"] == "assistant")
    body.fail("messages", "ends with an answer; the last message must be the user's");
}

void read_chat(RequestBody& body, ApiRequest& r, const RequestLimits& limits) {
  read_messages(body, r, limits);
  const std::int64_t older = body.integer("max_tokens", 1, limits.new_tokens, 0),
                     newer = body.integer("max_completion_tokens", 1, limits.new_tokens, 0);
  if (older > 0 && newer > 0 && older != newer)
    body.fail("max_tokens", "and 'max_completion_tokens' mean the same and differ; give one of them");
  if (older + newer > 0) r.max_tokens = int(std::max(older, newer));
  r.sampling.logprobs = body.boolean("logprobs", false);
  if (body.integer("top_logprobs", 0, 100, 0) > 0)
    body.fail("top_logprobs",
              "must be 0: the log-probability of each token of the output is known, and those of "
              "other tokens are not");
  for (const char* key : {"tools", "functions"})
    body.refuse(key, "cannot be honoured: this server calls no tools; leave it out", json::array());
  for (const char* key : {"tool_choice", "function_call"})
    body.refuse(key, "cannot be honoured: this server calls no tools; leave it out", "none");
  for (const char* key : {"audio", "prediction", "reasoning_effort", "verbosity", "web_search_options",
                          "add_generation_prompt", "chat_template", "chat_template_kwargs"})
    body.refuse(key, "is not supported here; leave it out");
  body.refuse("parallel_tool_calls", "cannot be honoured: this server calls no tools; leave it out", false);
  body.refuse("modalities", "must be [\"text\"]", json::array({"text"}));
}

}  // namespace

ApiRequest read_request(Endpoint endpoint, std::string_view text, const ApiRequest& standard,
                        const RequestLimits& limits) {
  const json document = parsed(text);
  RequestBody body(document);
  ApiRequest r = standard;
  r.endpoint = endpoint;
  read_common(body, r, limits);
  if (endpoint == Endpoint::completions)
    read_completions(body, r, limits);
  else
    read_chat(body, r, limits);
  body.expect_nothing_else();
  return r;
}

}  // namespace foretoken::serve
