// How a question stands in a conversation, as a model was trained to read it: the few forms that most models use, by
// name. Their templates are programs (Jinja), which are not run: a template is known by the marks that it writes, or
// refused. This room must not know models or workloads.
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
  // The one that a directory's chat_template.jinja or tokenizer_config.json holds, with the system prompt that it puts
  // where none is given. None, or one of another form (Gemma's), is an Error.
  static ChatTemplate load(const std::filesystem::path& directory);

  const std::string& name() const { return name_; }
  // The text up to where the answer begins. `system`: none takes the template's own, "" is none at all. Where the form
  // has no place for one: an Error.
  std::string text(std::string_view question, const std::optional<std::string>& system = {}) const;
  // The tokens of that text, bos among them. A tokenizer that lacks one of the marks is an Error that names it.
  std::vector<Token> encode(const Tokenizer& tokenizer, std::string_view question,
                            const std::optional<std::string>& system = {}) const;

 private:
  std::string name_;
  std::string system_;  // its own; "": none
};

}  // namespace foretoken
