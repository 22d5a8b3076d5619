#include "framework/text/chat_template.h"

#include <algorithm>
#include <span>

#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

// What is written around the system prompt and the question. Where `system_before` is empty, the format has no system
// prompt.
struct Form {
  std::string name;
  std::string begin;                        // of the whole prompt
  std::string system_before, system_after;  // around a system prompt, where there is one
  std::string before, after;                // around the question
  std::string answered;                     // between an answer and the next question
  std::vector<std::string> marks;           // special tokens, one token each
  bool trims = false;                       // white space around the question is removed
};

const std::vector<Form>& forms() {
  static const std::string kDates = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
  static const std::string kHeader = "<|start_header_id|>", kEnd = "<|end_header_id|>\n\n", kTurn = "<|eot_id|>";
  static const std::vector<std::string> kLlama3 = {"<|begin_of_text|>", kHeader, "<|end_header_id|>", kTurn};
  static const std::vector<Form> kForms = {
      {"chatml",
       "",
       "<|im_start|>system\n",
       "<|im_end|>\n",
       "<|im_start|>user\n",
       "<|im_end|>\n<|im_start|>assistant\n",
       "<|im_end|>\n",
       {"<|im_start|>", "<|im_end|>"}},
      {"llama-3", "<|begin_of_text|>", kHeader + "system" + kEnd, kTurn, kHeader + "user" + kEnd,
       kTurn + kHeader + "assistant" + kEnd, kTurn, kLlama3, true},
      {"llama-3.1", "<|begin_of_text|>", kHeader + "system" + kEnd + kDates, kTurn, kHeader + "user" + kEnd,
       kTurn + kHeader + "assistant" + kEnd, kTurn, kLlama3, true},
      {"llama-2",
       "<s>[INST] ",
       "<<SYS>>\n",
       "\n<</SYS>>\n\n",
       "",
       " [/INST]",
       " </s><s>[INST] ",
       {"<s>", "</s>"},
       true},
      {"mistral", "<s>[INST] ", "", "", "", " [/INST]", "</s>[INST] ", {"<s>", "</s>"}},
      {"mistral-v3", "<s>[INST] ", "", "", "", "[/INST]", "</s>[INST] ", {"<s>", "</s>", "[INST]", "[/INST]"}},
      {"zephyr", "", "<|system|>\n", "</s>\n", "<|user|>\n", "</s>\n<|assistant|>\n", "</s>\n", {"</s>"}},
  };
  return kForms;
}

const Form* find(const std::string& name) {
  const auto it = std::ranges::find(forms(), name, &Form::name);
  return it == forms().end() ? nullptr : &*it;
}

// The Jinja source; "": there is none.
std::string source_in(const fs::path& directory) {
  if (const fs::path own = directory / "chat_template.jinja"; has_file(own)) return read_file(own);
  const fs::path file = directory / "tokenizer_config.json";
  if (!has_file(file)) return "";
  const nlohmann::json config = read_json(file);
  const Fields fields(config, file.string());
  const nlohmann::json* source = fields.find("chat_template");
  if (source && source->is_array())  // several templates, by name
    for (const auto& one : *source)
      if (const Fields named(one, file.string(), "chat_template"); named.string("name") == "default")
        return named.string("template");
  return source ? fields.string("chat_template") : "";
}

std::string form_of(std::string_view source) {
  const auto has = [&](const char* mark) { return source.find(mark) != source.npos; };
  if (has("<|im_start|>")) return "chatml";
  if (has("<|start_header_id|>")) return has("Cutting Knowledge Date") ? "llama-3.1" : "llama-3";
  if (has("[INST]") && has("<<SYS>>")) return "llama-2";
  if (has("[INST]") && !has("[SYSTEM_PROMPT]")) return has("' [/INST]") || has("\" [/INST]") ? "mistral" : "mistral-v3";
  if (has("<|user|>") && has("<|assistant|>") && has("eos_token")) return "zephyr";
  return "";
}

// What a ChatML template writes where there is no system message: '<|im_start|>system\nWORDS<|im_end|>' in its source.
std::string own_system(std::string_view source) {
  const std::string_view opening = "<|im_start|>system\\n", closing = "<|im_end|>";
  for (std::size_t at = source.find(opening); at != source.npos; at = source.find(opening, at + 1)) {
    const std::string_view rest = source.substr(at + opening.size());
    const std::string_view words = rest.substr(0, rest.find(closing));
    if (words.size() < rest.size() && !words.empty() && words.find_first_of("'\"{}\\") == words.npos)
      return std::string(words);
  }
  return "";
}

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n\v\f");
  if (begin == text.npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n\v\f") + 1 - begin));
}

// A question, up to where its answer begins.
std::string asked(const Form& form, std::string_view question) {
  return form.before + (form.trims ? trimmed(question) : std::string(question)) + form.after;
}

}  // namespace

const std::vector<std::string>& ChatTemplate::names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> all;
    for (const Form& form : forms()) all.push_back(form.name);
    return all;
  }();
  return kNames;
}

ChatTemplate ChatTemplate::named(const std::string& name) {
  ChatTemplate chat;
  chat.name_ = name;
  if (find(name)) return chat;
  std::string known;
  for (const std::string& n : names()) known += (known.empty() ? "" : ", ") + n;
  throw Error("unknown chat template '" + name + "'; known: " + known);
}

ChatTemplate ChatTemplate::load(const fs::path& directory) { return of(source_in(directory), directory.string()); }

ChatTemplate ChatTemplate::of(std::string_view source, const std::string& where) {
  if (source.empty())
    throw Error(where + " has no chat template (chat_template.jinja, \"chat_template\" in tokenizer_config.json, or " +
                "tokenizer.chat_template in a GGUF file); name one, or give prompts to the model as they are");
  const std::string form = form_of(source);
  if (form.empty())
    throw Error("the chat template of " + where +
                " is of no form that is known here; name the one that it equals, or write the " +
                "marks into the prompts themselves");
  ChatTemplate chat = named(form);
  if (form == "chatml") chat.system_ = own_system(source);
  return chat;
}

std::string ChatTemplate::text(std::string_view question, const std::optional<std::string>& system) const {
  const Form& form = *find(name_);
  const std::string words = system.value_or(system_);
  std::string text = form.begin;
  const bool dated = name_ == "llama-3.1";  // it writes its dates without a system prompt too
  if (!words.empty() || dated) {
    if (form.system_before.empty())
      throw Error("the chat template '" + name_ +
                  "' has no place for a system prompt; leave it out, or write it into the prompts");
    text += form.system_before + (form.trims ? trimmed(words) : words) + form.system_after;
  }
  return text + asked(form, question);
}

std::string ChatTemplate::next(std::string_view question) const {
  const Form& form = *find(name_);
  return form.answered + asked(form, question);
}

void ChatTemplate::expect_marks(const Tokenizer& tokenizer) const {
  for (const std::string& mark : find(name_)->marks)
    if (tokenizer.encode(mark, /*special=*/false).size() != 1)
      throw Error("the tokenizer has no token '" + mark + "', so the chat template '" + name_ +
                  "' is not its model's; name another, or give the prompts as they are");
}

std::vector<Token> ChatTemplate::encode(const Tokenizer& tokenizer, std::string_view question,
                                        const std::optional<std::string>& system) const {
  expect_marks(tokenizer);
  return tokenizer.encode(text(question, system), /*special=*/false);
}

std::vector<Token> ChatTemplate::encode_next(const Tokenizer& tokenizer, std::string_view question) const {
  expect_marks(tokenizer);
  // Behind a letter, whose tokens are taken off: SentencePiece puts a space before the first word of a text, and this
  // text goes on from the answer.
  const std::string answer = "a";
  const std::vector<Token> before = tokenizer.encode(answer, /*special=*/false);
  std::vector<Token> all = tokenizer.encode(answer + next(question), /*special=*/false);
  if (!std::ranges::equal(before, std::span(all).first(std::min(before.size(), all.size()))))
    throw Error("the tokenizer joins the end of an answer with what the chat template '" + name_ +
                "' writes behind it, so conversations of several turns have no fixed tokens; serve single turns");
  all.erase(all.begin(), all.begin() + std::ptrdiff_t(before.size()));
  return all;
}

}  // namespace foretoken
