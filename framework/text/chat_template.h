// Wraps a question in the conversation format that a model was trained on: the few formats that most models use, by
// name. A checkpoint's template is a program (Jinja), which is not run: it is recognized by the special tokens that it
// writes, or refused. This module must not know models or workloads.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/text/tokenizer.h"

namespace foretoken {

class ChatTemplate {
 public:
  // "chatml" (Qwen), "llama-3", "llama-3.1" (its header names a date: 26 Jul 2024, the template's own), "llama-2",
  // "mistral", "mistral-v3", "zephyr" (TinyLlama).
  static const std::vector<std::string>& names();
  // An unknown name is an Error that lists the known ones.
  static ChatTemplate named(const std::string& name);
  // The template in a directory's chat_template.jinja or tokenizer_config.json, with its default system prompt. No
  // template, or one of an unknown format (Gemma's), is an Error.
  static ChatTemplate load(const std::filesystem::path& directory);
  // The template of this source, "" where there is none; `where` names its place in messages.
  static ChatTemplate of(std::string_view source, const std::string& where);

  const std::string& name() const { return name_; }
  // The prompt, up to where the answer begins. `system`: nullopt is the template's own system prompt, "" is none. A
  // format without system prompts and a `system` that is not empty: an Error.
  std::string text(std::string_view question, const std::optional<std::string>& system = {}) const;
  // What follows an answer, of which no end was written, up to where the answer to the next question begins.
  std::string next(std::string_view question) const;
  // The tokens of the prompt, including bos. A tokenizer that lacks one of the special tokens is an Error that names
  // it.
  std::vector<Token> encode(const Tokenizer& tokenizer, std::string_view question,
                            const std::optional<std::string>& system = {}) const;
  // The tokens of next() behind the tokens of an answer. Errors as of encode(); a tokenizer that joins the last letter
  // of an answer with what follows is one too.
  std::vector<Token> encode_next(const Tokenizer& tokenizer, std::string_view question) const;

 private:
  void expect_marks(const Tokenizer& tokenizer) const;

  std::string name_;
  std::string system_;  // the default one; "": none
};

}  // namespace foretoken
