// Questions in the formats of chat models: the texts and ids of Transformers (tests/golden/chat_golden.py), and the
// templates that are not supported.
#include "framework/text/chat_template.h"

#include <algorithm>
#include <span>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "framework/text/json_file.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

const std::filesystem::path kData = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests" / "data" / "tokenizers";

ChatTemplate loaded(const std::string& source) {
  const TemporaryFolder folder;
  folder.write("tokenizer_config.json", json{{"chat_template", source}}.dump());
  return ChatTemplate::load(folder.path());
}

TEST(ChatTemplate, GivesTheTextsAndIdsOfTransformers) {
  const json golden = read_json(kData / "chat.golden.json");
  std::size_t asked = 0;
  for (const json& form : golden["forms"]) {
    const ChatTemplate chat = loaded(form["template"]);
    EXPECT_EQ(chat.name(), form["form"].get<std::string>());
    const auto tokenizer = Tokenizer::load(kData / form["tokenizer"].get<std::string>());
    for (const json& one : form["asked"]) {
      const std::string question = one["question"];
      const auto system = one["system"].is_null() ? std::nullopt : std::optional(one["system"].get<std::string>());
      EXPECT_EQ(chat.text(question, system), one["text"].get<std::string>()) << form["form"];
      EXPECT_EQ(chat.encode(*tokenizer, question, system), one["ids"].get<std::vector<Token>>()) << form["form"];
      ++asked;
    }
  }
  EXPECT_EQ(asked, 70u);
}

// Two turns, as the published templates write them: the ids of Transformers begin with those of the first prompt and
// end with what follows the answer, and between them there is the answer alone.
TEST(ChatTemplate, TheIdsOfTwoTurnsAreThoseOfTransformers) {
  const json golden = read_json(kData / "chat.golden.json");
  std::size_t asked = 0;
  for (const json& one : golden["conversations"]) {
    const std::string form = one["form"], text = one["text"], question = one["question"];
    const ChatTemplate chat = ChatTemplate::named(form);
    const auto tokenizer = Tokenizer::load(kData / one["tokenizer"].get<std::string>());
    const auto ids = one["ids"].get<std::vector<Token>>();
    const std::vector<Token> first = chat.encode(*tokenizer, one["first"].get<std::string>()),
                             next = chat.encode_next(*tokenizer, question);
    ASSERT_LT(first.size() + next.size(), ids.size()) << form;
    EXPECT_TRUE(std::ranges::equal(first, std::span(ids).first(first.size()))) << form << ": " << text;
    EXPECT_TRUE(std::ranges::equal(next, std::span(ids).last(next.size()))) << form << ": " << text;
    const std::span<const Token> middle = std::span(ids).subspan(first.size(), ids.size() - first.size() - next.size());
    const std::string answer = tokenizer->decode_inside(middle, /*special=*/true);
    EXPECT_EQ(answer.substr(answer.find_first_not_of(' ')), one["answer"].get<std::string>()) << form << ": " << text;
    ++asked;
  }
  EXPECT_EQ(asked, 35u);
}

TEST(ChatTemplate, AFormatChosenByNameHasNoDefaultSystemPrompt) {
  EXPECT_EQ(ChatTemplate::named("chatml").text("q"), "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(ChatTemplate::named("llama-2").text(" q ", "s"), "<s>[INST] <<SYS>>\ns\n<</SYS>>\n\nq [/INST]");
  EXPECT_TRUE(says(sentence_of([] { ChatTemplate::named("alpaca"); }), "unknown chat template 'alpaca'",
                   "known: chatml, llama-3"));
  EXPECT_TRUE(says(sentence_of([] { ChatTemplate::named("mistral").text("q", "s"); }),
                   "'mistral' has no place for a system prompt"));
}

// As the published templates write a conversation of three messages, from behind the answer on.
TEST(ChatTemplate, TheNextQuestionFollowsAnAnswer) {
  const auto next = [](const char* name) { return ChatTemplate::named(name).next(" q\n"); };
  EXPECT_EQ(next("chatml"), "<|im_end|>\n<|im_start|>user\n q\n<|im_end|>\n<|im_start|>assistant\n");
  const std::string llama3 =
      "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|><|start_header_id|>assistant<|end_header_id|>"
      "\n\n";
  EXPECT_EQ(next("llama-3"), llama3);
  EXPECT_EQ(next("llama-3.1"), llama3);
  EXPECT_EQ(next("llama-2"), " </s><s>[INST] q [/INST]");
  EXPECT_EQ(next("mistral"), "</s>[INST]  q\n [/INST]");
  EXPECT_EQ(next("mistral-v3"), "</s>[INST]  q\n[/INST]");
  EXPECT_EQ(next("zephyr"), "</s>\n<|user|>\n q\n</s>\n<|assistant|>\n");
  const auto qwen = Tokenizer::load(kData / "qwen2");
  const auto tokens = ChatTemplate::named("chatml").encode_next(*qwen, "q");
  EXPECT_EQ(tokens, qwen->encode(ChatTemplate::named("chatml").next("q"), /*special=*/false));
  EXPECT_EQ(tokens.front(), qwen->encode("<|im_end|>", false).front()) << "a mark is one token";
}

TEST(ChatTemplate, OtherFormatsAreRefused) {
  const std::string gemma = read_json(kData / "chat.golden.json")["unknown"];
  EXPECT_TRUE(says(sentence_of([&] { loaded(gemma); }), "is of no form that is known here", "name the one"));
  EXPECT_TRUE(says(sentence_of([&] { ChatTemplate::load(kData / "gpt2"); }), "gpt2 has no chat template", "name one"));
  const auto gpt2 = Tokenizer::load(kData / "gpt2");
  EXPECT_TRUE(says(sentence_of([&] { ChatTemplate::named("chatml").encode(*gpt2, "q"); }), "no token '<|im_start|>'",
                   "'chatml'"));
}

TEST(ChatTemplate, IsReadFromEveryPlace) {
  const std::string source = read_json(kData / "chat.golden.json")["forms"][1]["template"];
  const TemporaryFolder folder;
  folder.write(
      "tokenizer_config.json",
      json{{"chat_template", {{{"name", "tool_use"}, {"template", "x"}}, {{"name", "default"}, {"template", source}}}}}
          .dump());
  EXPECT_EQ(ChatTemplate::load(folder.path()).text("q").substr(0, 46),
            "<|im_start|>system\nAnswer briefly.<|im_end|>\n<");
  folder.write("chat_template.jinja",
               "{{ bos_token }}{% for m in messages %}{{ '[INST] ' + m['content'] + '[/INST]' }}{% endfor %}");
  EXPECT_EQ(ChatTemplate::load(folder.path()).name(), "mistral-v3");
  folder.write("chat_template.jinja", "");
  EXPECT_TRUE(says(sentence_of([&] { ChatTemplate::load(folder.path()); }), "chat_template.jinja is empty"));
}

}  // namespace
}  // namespace foretoken::test
