#include "framework/text/chat_template.h"

#include <algorithm>

#include "framework/text/chat_forms.h"
#include "framework/text/jinja/template.h"
#include "framework/text/json_file.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

// The Jinja source; "": there is none.
std::string source_in(const fs::path& directory) {
  if (const fs::path own = directory / "chat_template.jinja"; has_file(own)) return read_file(own);
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const fs::path file = directory / name;
    if (!has_file(file)) continue;
    const nlohmann::json config = read_json(file);
    const Fields fields(config, file.string());
    const nlohmann::json* source = fields.find("chat_template");
    if (source && source->is_array())  // several templates, by name
      for (const auto& one : *source)
        if (const Fields named(one, file.string(), "chat_template"); named.string("name") == "default")
          return named.string("template");
    if (source) return fields.string("chat_template");
  }
  return "";
}

// Adds the text of a special token, which is the value or its "content"; the first of a name stays.
void add_mark(const std::string& name, const nlohmann::json& value, nlohmann::ordered_json& marks) {
  const nlohmann::json& text = value.is_object() && value.contains("content") ? value["content"] : value;
  if (text.is_string() && !marks.contains(name)) marks[name] = text.get<std::string>();
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n\v\f"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\r\n\v\f") + 1 - begin);
}

// A word that stands in none of the texts.
std::string unused_word(std::span<const std::string> texts, const std::string& more) {
  for (int i = 0;; ++i) {
    const std::string word = "Answer" + std::to_string(i) + "x";
    const auto has = [&](const std::string& text) { return text.find(word) != text.npos; };
    if (!has(more) && std::ranges::none_of(texts, has)) return word;
  }
}

}  // namespace

const std::vector<std::string>& ChatTemplate::names() {
  static const std::vector<std::string> kNames = names_of(chat_forms());
  return kNames;
}

ChatTemplate ChatTemplate::named(const std::string& name) {
  const auto form = std::ranges::find(chat_forms(), name, &ChatForm::name);
  if (form == chat_forms().end()) throw Error("unknown chat template '" + name + "'; known: " + listed(names()));
  ChatTemplate chat;
  chat.name_ = name;
  chat.template_ = std::make_shared<jinja::Template>(form->source, "the chat template '" + name + "'");
  chat.expected_ = form->marks;
  return chat;
}

// Transformers reads special_tokens_map.json for checkpoints alone whose
// tokenizer_config.json has no "added_tokens_decoder", and prefers it there.
nlohmann::ordered_json ChatTemplate::marks_in(const fs::path& directory) {
  nlohmann::ordered_json marks = nlohmann::ordered_json::object();
  const auto contents = [&](const char* name) {
    const fs::path file = directory / name;
    nlohmann::json found = has_file(file) ? read_json(file) : nlohmann::json();
    return found.is_object() ? found : nlohmann::json::object();
  };
  const nlohmann::json config = contents("tokenizer_config.json"), map = contents("special_tokens_map.json");
  if (!config.contains("added_tokens_decoder"))
    for (const auto& [key, value] : map.items())
      if (key.ends_with("_token")) add_mark(key, value, marks);
  for (const auto& [key, value] : config.items())
    if (key.ends_with("_token")) add_mark(key, value, marks);
  if (const auto extra = config.find("extra_special_tokens"); extra != config.end() && extra->is_object())
    for (const auto& [key, value] : extra->items()) add_mark(key, value, marks);
  return marks;
}

ChatTemplate ChatTemplate::load(const fs::path& directory) {
  return of(source_in(directory), marks_in(directory), directory.string());
}

ChatTemplate ChatTemplate::of(std::string_view source, nlohmann::ordered_json marks, const std::string& where) {
  if (source.empty())
    throw Error(where + " has no chat template (chat_template.jinja, \"chat_template\" in tokenizer_config.json or " +
                "chat_template.json, or tokenizer.chat_template in a GGUF file); name one, or give prompts to the " +
                "model as they are");
  ChatTemplate chat;
  chat.name_ = where;
  chat.template_ = std::make_shared<jinja::Template>(source, "the chat template of " + where);
  chat.marks_ = std::move(marks);
  return chat;
}

std::string ChatTemplate::rendered(std::span<const std::string> questions, const std::optional<std::string>& system,
                                   const std::string& answer) const {
  using nlohmann::ordered_json;
  const auto message = [](const char* role, const std::string& content) {
    return ordered_json{{"role", role}, {"content", content}};
  };
  ordered_json messages = ordered_json::array();
  if (system) messages.push_back(message("system", *system));
  for (std::size_t i = 0; i < questions.size(); ++i) {
    if (i > 0) messages.push_back(message("assistant", answer));
    messages.push_back(message("user", questions[i]));
  }
  return rendered(messages);
}

std::string ChatTemplate::rendered(const nlohmann::ordered_json& messages) const {
  using nlohmann::ordered_json;
  ordered_json variables = marks_.is_null() ? ordered_json::object() : marks_;
  variables["messages"] = messages;
  variables["tools"] = nullptr, variables["documents"] = nullptr;
  variables["add_generation_prompt"] = true;
  return template_->render(variables, {.date = date_});
}

std::string ChatTemplate::conversation(std::span<const std::string> questions, const std::optional<std::string>& system,
                                       const std::string& answer) const {
  if (!system) return rendered(questions, system, answer);
  std::string reason, text;
  try {
    text = rendered(questions, system, answer);
  } catch (const Error& e) {
    reason = e.what();
  }
  if (!reason.empty() || system->empty()) {
    const std::string without = rendered(questions, {}, answer);  // or it is not the system prompt's fault
    if (system->empty()) return !reason.empty() || without.size() <= text.size() ? without : text;
  }
  // Words that stand nowhere else show whether a template uses them: those of the user may be its own default, or stand
  // in a question too.
  const auto ignored = [&] {
    return rendered(questions, unused_word(questions, answer), answer) == rendered(questions, {}, answer);
  };
  if (!reason.empty() || ignored())
    throw Error("the chat template '" + name_ + "' has no place for a system prompt" +
                (reason.empty() ? "" : " (" + reason + ")") + "; leave it out, or write it into the prompts");
  return text;
}

std::string ChatTemplate::text(std::string_view question, const std::optional<std::string>& system) const {
  const std::string own(question);
  return conversation({&own, 1}, system, "");
}

std::string ChatTemplate::next(std::span<const std::string> questions, const std::optional<std::string>& system) const {
  const std::string answer = unused_word(questions, system.value_or(""));
  const std::string before = conversation(questions.first(questions.size() - 1), system, answer),
                    whole = conversation(questions, system, answer);
  const std::size_t at = whole.rfind(answer);
  const bool goes_on = at != whole.npos && at >= before.size() && whole.starts_with(before) &&
                       trimmed(std::string_view(whole).substr(before.size(), at - before.size())).empty();
  if (!goes_on)
    throw Error("the chat template '" + name_ +
                "' writes the beginning of a conversation otherwise once there is another turn, which a model that " +
                "has read it cannot take back; serve single turns ('/workload/turns': 1)");
  return whole.substr(at + answer.size());
}

void ChatTemplate::expect_marks(const Tokenizer& tokenizer) const {
  for (const std::string& mark : expected_)
    if (tokenizer.encode(mark, /*special=*/false).size() != 1)
      throw Error("the tokenizer has no token '" + mark + "', so the chat template '" + name_ +
                  "' is not its model's; name another, or give the prompts as they are");
}

std::vector<Token> ChatTemplate::encode(const Tokenizer& tokenizer, std::string_view question,
                                        const std::optional<std::string>& system) const {
  expect_marks(tokenizer);
  return tokenizer.encode(text(question, system), /*special=*/false);
}

std::vector<Token> ChatTemplate::encode_messages(const Tokenizer& tokenizer,
                                                 const nlohmann::ordered_json& messages) const {
  expect_marks(tokenizer);
  return tokenizer.encode(rendered(messages), /*special=*/false);
}

std::vector<Token> ChatTemplate::encode_next(const Tokenizer& tokenizer, std::span<const std::string> questions,
                                             const std::optional<std::string>& system) const {
  expect_marks(tokenizer);
  // Behind a letter, whose tokens are taken off: SentencePiece puts a space before the first word of a text, and this
  // text goes on from the answer.
  const std::string answer = "a";
  const std::vector<Token> before = tokenizer.encode(answer, /*special=*/false);
  std::vector<Token> all = tokenizer.encode(answer + next(questions, system), /*special=*/false);
  if (!std::ranges::equal(before, std::span(all).first(std::min(before.size(), all.size()))))
    throw Error("the tokenizer joins the end of an answer with what the chat template '" + name_ +
                "' writes behind it, so conversations of several turns have no fixed tokens; serve single turns");
  all.erase(all.begin(), all.begin() + std::ptrdiff_t(before.size()));
  return all;
}

}  // namespace foretoken
