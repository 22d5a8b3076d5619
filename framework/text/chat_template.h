// Wraps questions in the conversation format that a model was trained on: the Jinja template of its checkpoint,
// rendered as Transformers' apply_chat_template does, or a format by name. This module must not know models or
// workloads.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/text/date.h"
#include "framework/text/tokenizer.h"

namespace foretoken {

namespace jinja {
class Template;
}

class ChatTemplate {
 public:
  // "chatml" (Qwen), "llama-3", "llama-3.1" (its header names a date), "llama-2", "mistral", "mistral-v3", "zephyr"
  // (TinyLlama), "vicuna", which alone has a system text of its own.
  static const std::vector<std::string>& names();
  // An unknown name is an Error that lists the known ones.
  static ChatTemplate named(const std::string& name);
  // The template in a directory's chat_template.jinja, tokenizer_config.json or chat_template.json, with the special
  // tokens of tokenizer_config.json and special_tokens_map.json. No template, or one that cannot be rendered here, is
  // an Error.
  static ChatTemplate load(const std::filesystem::path& directory);
  // The texts of a directory's special tokens by name ("bos_token"), of the same files.
  static nlohmann::ordered_json marks_in(const std::filesystem::path& directory);
  // The template of this source, "" where there is none. `marks` are the texts of special tokens by name
  // ("bos_token"), which it gets as variables; `where` names its place in messages.
  static ChatTemplate of(std::string_view source, nlohmann::ordered_json marks, const std::string& where);

  // The format's name, or the place of the template.
  const std::string& name() const { return name_; }
  // The day that the template takes for today; 26 Jul 2024 unless it is set.
  void set_date(const Date& date) { date_ = date; }

  // The prompt, up to where the answer begins. `system`: nullopt passes no system message, so that the template's own
  // default appears, if it has one; "" is no system prompt: whichever prompt is shorter, without a system message or
  // with an empty one. A template that has no place for a `system` that is not empty: an Error.
  std::string text(std::string_view question, const std::optional<std::string>& system = {}) const;
  // What follows the answer to the last question but one, of which no end was written, up to where the answer to the
  // last one begins. The whole conversation is rendered. White space around answers aside, its beginning must be the
  // prompt of the turn before, for that is what the model has read: a template that writes earlier turns otherwise once
  // there are later ones (it drops "<think>", or moves the system prompt) is an Error. Answers stay as the model wrote
  // them, also where the template would trim them or leave out their thoughts.
  std::string next(std::span<const std::string> questions, const std::optional<std::string>& system = {}) const;
  // The tokens of the prompt, including bos where the template writes it. A tokenizer that lacks one of the special
  // tokens of a format by name is an Error that names it.
  std::vector<Token> encode(const Tokenizer& tokenizer, std::string_view question,
                            const std::optional<std::string>& system = {}) const;
  // The tokens of a conversation up to where its next answer begins, as apply_chat_template with add_generation_prompt
  // renders it: `messages` is a list of {"role": ..., "content": TEXT}. What the template refuses of it is an Error, as
  // is a tokenizer as of encode().
  std::vector<Token> encode_messages(const Tokenizer& tokenizer, const nlohmann::ordered_json& messages) const;
  // The tokens of next() behind the tokens of an answer. Errors as of encode(); a tokenizer that joins the last letter
  // of an answer with what follows is one too.
  std::vector<Token> encode_next(const Tokenizer& tokenizer, std::span<const std::string> questions,
                                 const std::optional<std::string>& system = {}) const;

 private:
  // Answers stand between the questions.
  std::string conversation(std::span<const std::string> questions, const std::optional<std::string>& system,
                           const std::string& answer) const;
  std::string rendered(std::span<const std::string> questions, const std::optional<std::string>& system,
                       const std::string& answer) const;
  std::string rendered(const nlohmann::ordered_json& messages) const;
  void expect_marks(const Tokenizer& tokenizer) const;

  std::string name_;
  std::shared_ptr<const jinja::Template> template_;
  nlohmann::ordered_json marks_;       // texts of special tokens
  std::vector<std::string> expected_;  // special tokens that the tokenizer must have
  Date date_;
};

}  // namespace foretoken
