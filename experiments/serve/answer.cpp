#include "experiments/serve/answer.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include "experiments/serve/api_error.h"

namespace foretoken::serve {

using nlohmann::json;

Answer::Answer(ApiRequest request, std::vector<SubmittedOutput> submitted, Context context)
    : request_(std::move(request)), context_(std::move(context)), created_(std::time(nullptr)) {
  id_ = (chat() ? "chatcmpl-" : "cmpl-") + context_.id;
  const char* object = chat() ? "chat.completion.chunk" : "text_completion";
  head_ = R"(data: {"id":")" + id_ + R"(","object":")" + object + R"(","created":)" + std::to_string(created_) +
          R"(,"model":)" + text_of(context_.model) + R"(,"choices":[)";
  tail_ = std::string("]") + (request_.include_usage ? R"(,"usage":null)" : "") + "}\n\n";
  choices_.reserve(submitted.size());
  for (SubmittedOutput& one : submitted)
    choices_.push_back({.output = Output(std::move(one), context_.tokenizer, request_.stops)});
}

// What the loop's thread calls must not outlive this.
Answer::~Answer() {
  for (Choice& c : choices_) c.output.listen({});
}

void Answer::listen(const std::function<void()>& heard) {
  for (Choice& c : choices_) c.output.listen(heard);
}

std::string Answer::read(bool joined) {
  std::string events;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Choice& c = choices_[i];
    for (const Output::Piece& piece : c.output.read(joined || !request_.stream)) {
      if (c.refused) continue;
      time(c, piece);
      if (context_.judged_bytes > 0)
        c.waiting.add(piece);
      else
        take(c, i, piece, events);
    }
  }
  return events + closing();
}

void Answer::take(Choice& c, std::size_t index, const Output::Piece& piece, std::string& events) const {
  if (request_.stream) return write(c, index, piece, events);
  c.text += piece.text;
  c.tokens.insert(c.tokens.end(), piece.tokens.begin(), piece.tokens.end());
  c.logprobs.insert(c.logprobs.end(), piece.logprobs.begin(), piece.logprobs.end());
}

// The end of a stream, once.
std::string Answer::closing() {
  if (!request_.stream || closed_ || !ended() || !failure().empty()) return "";
  closed_ = true;
  return (request_.include_usage ? head_ + R"(],"usage":)" + text_of(usage()) + "}\n\n" : "") + "data: [DONE]\n\n";
}

std::vector<std::pair<std::size_t, std::string>> Answer::to_judge() {
  std::vector<std::pair<std::size_t, std::string>> all;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Choice& c = choices_[i];
    const bool enough = c.waiting.ended || (request_.stream && c.waiting.text.size() >= context_.judged_bytes);
    if (c.refused || c.is_judged || !enough) continue;
    c.is_judged = true;
    c.judging = std::exchange(c.waiting, {});
    c.judged += c.judging.text;
    all.emplace_back(i, c.judged);
  }
  return all;
}

std::string Answer::judged(std::size_t index, bool allowed) {
  Choice& c = choices_[index];
  std::string events;
  c.is_judged = false;
  c.over = c.judging.ended || !allowed;
  c.refused = !allowed;
  if (allowed) {
    take(c, index, c.judging, events);
  } else {
    c.output.cancel();
    if (request_.stream) write(c, index, Output::Piece{.ended = true}, events);
    c.text.clear();
    c.tokens.clear();
    c.logprobs.clear();
  }
  return events + closing();
}

void Answer::time(Choice& c, const Output::Piece& piece) {
  if (piece.tokens.empty()) return;
  const Clock::time_point now = Clock::now();
  const auto since = [&](Clock::time_point t) { return std::chrono::duration<double>(now - t).count(); };
  if (first_seconds_ < 0) context_.metrics.first_token(first_seconds_ = since(context_.arrived));
  if (c.read) context_.metrics.between_tokens(since(*c.read), int(piece.tokens.size()));
  c.read = now;
}

bool Answer::ended(const Choice& c) const { return context_.judged_bytes > 0 ? c.over : c.output.ended(); }

bool Answer::ended() const {
  return !failure().empty() || std::ranges::all_of(choices_, [this](const Choice& c) { return ended(c); });
}

const char* Answer::finish_of(const Choice& c) const { return c.refused ? "content_filter" : c.output.finish_reason(); }

std::string Answer::failure() const {
  for (const Choice& c : choices_)
    if (!c.refused && !c.output.failure().empty()) return c.output.failure();
  return {};
}

void Answer::open(Choice& c, std::size_t index, std::string& events) const {
  if (c.opened) return;
  c.opened = true;
  c.offset = characters_in(c.output.echo());
  if (chat())
    events += role_event(index);
  else if (!c.output.echo().empty())
    events += event(index, c.output.echo(), "null", nullptr);
}

void Answer::write(Choice& c, std::size_t index, const Output::Piece& piece, std::string& events) const {
  if (!c.refused && !c.output.failure().empty()) return;
  if (!piece.tokens.empty() || piece.ended) open(c, index, events);
  const bool weighed = request_.sampling.logprobs && !piece.tokens.empty();
  const bool last = piece.ended && !chat();  // completions say in the last text why it ends, conversations behind it
  if (!piece.text.empty() || weighed || last)
    events += event(index, piece.text, weighed ? text_of(logprobs_of(piece.tokens, piece.logprobs, c.offset)) : "null",
                    last ? finish_of(c) : nullptr);
  if (piece.ended && chat())
    events += head_ + R"({"index":)" + std::to_string(index) + R"(,"delta":{},"logprobs":null,"finish_reason":")" +
              finish_of(c) + "\"}" + tail_;
}

std::string Answer::role_event(std::size_t index) const {
  return head_ + R"({"index":)" + std::to_string(index) +
         R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})" + tail_;
}

// Text has whole characters, so it needs no check.
std::string Answer::event(std::size_t index, const std::string& text, const std::string& logprobs,
                          const char* finish) const {
  const std::string quoted = text_of(text), reason = finish ? "\"" + std::string(finish) + "\"" : "null";
  return head_ + R"({"index":)" + std::to_string(index) +
         (chat() ? R"(,"delta":{"content":)" + quoted + "}" : R"(,"text":)" + quoted) + R"(,"logprobs":)" + logprobs +
         R"(,"finish_reason":)" + reason + "}" + tail_;
}

json Answer::logprobs_of(const std::vector<Token>& tokens, const std::vector<float>& values,
                         std::size_t& offset) const {
  json content = json::array(), texts = json::array(), numbers = json::array(), offsets = json::array();
  for (std::size_t i = 0; i < std::min(tokens.size(), values.size()); ++i) {
    const std::string bytes = context_.tokenizer->decode_inside(std::span(&tokens[i], 1), true);
    const std::vector<std::uint8_t> numbered(bytes.begin(), bytes.end());
    const json number = std::isfinite(values[i]) ? json(values[i]) : json(-9999.0);
    content.push_back({{"token", bytes}, {"logprob", number}, {"bytes", numbered}, {"top_logprobs", json::array()}});
    texts.push_back(bytes);
    numbers.push_back(number);
    offsets.push_back(offset);
    offset += characters_in(bytes);
  }
  if (chat()) return {{"content", content}, {"refusal", nullptr}};
  return {{"tokens", texts}, {"token_logprobs", numbers}, {"top_logprobs", nullptr}, {"text_offset", offsets}};
}

json Answer::choice_document(const Choice& c, std::size_t index) const {
  std::size_t offset = characters_in(c.output.echo());
  json one{{"index", index}, {"logprobs", nullptr}, {"finish_reason", finish_of(c)}};
  if (request_.sampling.logprobs) one["logprobs"] = logprobs_of(c.tokens, c.logprobs, offset);
  if (chat())
    one["message"] = {{"role", "assistant"}, {"content", c.text}, {"refusal", nullptr}};
  else
    one["text"] = c.output.echo() + c.text;
  return one;
}

std::string Answer::document() const {
  json choices = json::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) choices.push_back(choice_document(choices_[i], i));
  return text_of({{"id", id_},
                  {"object", chat() ? "chat.completion" : "text_completion"},
                  {"created", created_},
                  {"model", context_.model},
                  {"choices", choices},
                  {"usage", usage()}});
}

int Answer::prompt_tokens() const {
  int tokens = 0;  // a prompt of several outputs counts once
  for (std::size_t i = 0; i < choices_.size(); i += std::size_t(request_.n))
    tokens += choices_[i].output.prompt_tokens();
  return tokens;
}

double Answer::granted_tokens() const {
  double tokens = prompt_tokens();
  for (const Choice& c : choices_) tokens += c.output.most_tokens();
  return tokens;
}

double Answer::used_tokens() {
  for (Choice& c : choices_) c.output.read(true);  // what nobody will get
  return double(prompt_tokens()) + double(counts().tokens);
}

RoundCounts Answer::counts() const {
  RoundCounts all;
  for (const Choice& c : choices_) all += c.output.counts();
  return all;
}

json Answer::usage() const {
  const RoundCounts all = counts();
  json usage{{"prompt_tokens", prompt_tokens()},
             {"completion_tokens", all.tokens},
             {"total_tokens", prompt_tokens() + all.tokens}};
  if (!request_.report_speculation) return usage;
  json positions = json::array();
  for (std::size_t i = 0; i < all.tested_at.size(); ++i)
    positions.push_back({{"tested", all.tested_at[i]}, {"accepted", all.accepted_at[i]}});
  usage["speculation"] = {{"rounds", all.rounds},
                          {"drafted_tokens", all.drafted},
                          {"tested_tokens", all.tested},
                          {"accepted_tokens", all.accepted},
                          {"tokens_per_round", all.rounds ? double(all.tokens) / double(all.rounds) : 0.0},
                          {"positions", positions}};
  return usage;
}

std::string Answer::finish() const {
  std::string finish = choices_.empty() ? "" : finish_of(choices_.front());
  for (const Choice& c : choices_)
    if (finish != finish_of(c)) return "mixed";
  return finish;
}

}  // namespace foretoken::serve
