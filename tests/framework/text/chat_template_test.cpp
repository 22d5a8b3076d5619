// Questions in the formats of chat models: the texts and ids of Transformers (tests/golden/chat_golden.py), templates
// of every kind, turns, dates, and what is refused.
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

const std::filesystem::path kData = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests" / "data" / "tokenizers",
                            kChats = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests" / "data" / "chat";

using Questions = std::vector<std::string>;

// With the special tokens of the golden file's tokenizers.
ChatTemplate loaded(const std::string& source, const std::string& tokenizer = "") {
  const bool llama3 = tokenizer == "llama3", qwen2 = tokenizer == "qwen2";
  json config{{"chat_template", source}, {"add_bos_token", true}};
  config["bos_token"] = qwen2 ? json() : json(llama3 ? "<|begin_of_text|>" : "<s>");
  config["eos_token"] = {{"content", qwen2 ? "<|im_end|>" : llama3 ? "<|eot_id|>" : "</s>"}, {"lstrip", false}};
  const TemporaryFolder folder;
  folder.write("tokenizer_config.json", config.dump());
  return ChatTemplate::load(folder.path());
}

TEST(ChatTemplate, GivesTheTextsAndIdsOfTransformers) {
  const json golden = read_json(kData / "chat.golden.json");
  std::size_t asked = 0;
  for (const json& form : golden["forms"]) {
    const std::string source = form["template"], file = form["tokenizer"];
    const ChatTemplate chat = loaded(source, file), named = ChatTemplate::named(form["form"]);
    const bool has_default = source.find("Answer briefly") != source.npos;
    const auto tokenizer = Tokenizer::load(kData / file);
    for (const json& one : form["asked"]) {
      const std::string question = one["question"];
      const auto system = one["system"].is_null() ? std::nullopt : std::optional(one["system"].get<std::string>());
      EXPECT_EQ(chat.text(question, system), one["text"].get<std::string>()) << form["form"];
      EXPECT_EQ(chat.encode(*tokenizer, question, system), one["ids"].get<std::vector<Token>>()) << form["form"];
      if (!has_default || system) {
        EXPECT_EQ(named.text(question, system), one["text"].get<std::string>()) << form["form"];
      }
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
                             next = chat.encode_next(*tokenizer, Questions{one["first"], question});
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
  EXPECT_EQ(ChatTemplate::named("vicuna").text("q", "s"), "<s>s USER: q ASSISTANT:");
  EXPECT_TRUE(says(sentence_of([] { ChatTemplate::named("alpaca"); }), "unknown chat template 'alpaca'",
                   "known: chatml, llama-3"));
  EXPECT_TRUE(says(sentence_of([] { ChatTemplate::named("mistral").text("q", "s"); }),
                   "'mistral' has no place for a system prompt"));
}

// FastChat's conversation template vicuna_v1.1, whose system text is part of the form.
TEST(ChatTemplate, VicunaHasASystemTextOfItsOwn) {
  EXPECT_EQ(ChatTemplate::named("vicuna").text("q"),
            "<s>A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
            "detailed, and polite answers to the user's questions. USER: q ASSISTANT:");
  EXPECT_EQ(ChatTemplate::named("vicuna").text("q", ""), "<s>USER: q ASSISTANT:");
}

// As the published templates write a conversation of three messages, from behind the answer on.
TEST(ChatTemplate, TheNextQuestionFollowsAnAnswer) {
  const auto next = [](const char* name) { return ChatTemplate::named(name).next(Questions{"first", " q\n"}); };
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
  EXPECT_EQ(next("vicuna"), "</s>USER:  q\n ASSISTANT:");
  const auto qwen = Tokenizer::load(kData / "qwen2");
  const auto tokens = ChatTemplate::named("chatml").encode_next(*qwen, Questions{"first", "q"});
  EXPECT_EQ(tokens, qwen->encode(ChatTemplate::named("chatml").next(Questions{"first", "q"}), /*special=*/false));
  EXPECT_EQ(tokens.front(), qwen->encode("<|im_end|>", false).front()) << "a mark is one token";
}

// Forms that were once taken for others, or refused.
TEST(ChatTemplate, EveryTemplateIsRendered) {
  const auto text = [](const char* file, const std::optional<std::string>& system = {}) {
    return loaded(read_file(kChats / file)).text("q", system);
  };
  EXPECT_EQ(text("think.jinja"), "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(text("bos_chatml.jinja"), "<s><|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(text("inst_narrow.jinja"), "<s>[INST]q[/INST]");
  EXPECT_EQ(text("inst_wide.jinja"), "<s>[INST]  q  [/INST]");
  EXPECT_EQ(text("inst_wide.jinja", "s"), "<s>[INST]  s\n\nq  [/INST]");
  EXPECT_EQ(text("im_sep.jinja"), "<|im_start|>user<|im_sep|>q<|im_end|><|im_start|>assistant<|im_sep|>");
  EXPECT_EQ(text("default_quotes.jinja"),
            "<|im_start|>system\nYou're a helper. Write C:\\temp and \"quotes\".\nBe brief.<|im_end|>\n"
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(text("default_lines.jinja"),
            "<|system|>\nYou are a lantern.\nIt's dark; don't \\ panic.\n\n<|user|>\nq<|end|>\n<|assistant|>\n");
  EXPECT_EQ(text("tools_branch.jinja"), "<turn:user>q</turn>\n<turn:assistant>");
  EXPECT_EQ(text("start_of_turn.jinja"), "<s><start_of_turn>user\nq<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_TRUE(text("header_dated.jinja").find("Today Date: 26 Jul 2024\n\n<|eot_id|>") != std::string::npos);
  const std::string gemma = read_json(kData / "chat.golden.json")["unknown"];
  EXPECT_EQ(loaded(gemma).text(" q"), "<s><start_of_turn>user\nq<end_of_turn>\n");
}

TEST(ChatTemplate, TheDateIsSet) {
  ChatTemplate chat = loaded(read_file(kChats / "header_dated.jinja"));
  chat.set_date(Date::parse("2025-02-03", "the date"));
  EXPECT_TRUE(chat.text("q").find("Today Date: 03 Feb 2025\n") != std::string::npos);
  ChatTemplate named = ChatTemplate::named("llama-3.1");
  named.set_date(Date::parse("2025-02-03", "the date"));
  EXPECT_TRUE(named.text("q").find("Today Date: 03 Feb 2025\n") != std::string::npos);
}

TEST(ChatTemplate, AnEmptySystemPromptIsNone) {
  const ChatTemplate chat = loaded(read_file(kChats / "default_quotes.jinja"));
  EXPECT_EQ(chat.text("q", ""),
            "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(ChatTemplate::named("chatml").text("q", ""), ChatTemplate::named("chatml").text("q"));
  EXPECT_EQ(ChatTemplate::named("mistral").text("q", ""), "<s>[INST] q [/INST]");
}

TEST(ChatTemplate, WithoutAPlaceForASystemPromptItIsRefused) {
  const auto refused = [](const std::string& source) {
    return sentence_of([&] { loaded(source).text("q", "be brief"); });
  };
  EXPECT_TRUE(says(refused(read_file(kChats / "start_of_turn.jinja")), "has no place for a system prompt",
                   "System role not supported"));
  EXPECT_TRUE(says(refused("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"),
                   "has no place for a system prompt; leave it out"));
  EXPECT_TRUE(says(refused("{{ raise_exception('never') }}"), "line 1: the template refuses this: never"));
}

// Whatever words it has: they stand in the question too, are the template's own, or are written in capitals.
TEST(ChatTemplate, APlaceForASystemPromptIsNotToldByItsWords) {
  const char* const none = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}";
  EXPECT_TRUE(says(sentence_of([&] { loaded(none).text("be brief, q", "be brief"); }), "has no place"));
  EXPECT_TRUE(says(sentence_of([&] { loaded(none).text("q", " "); }), "has no place"));
  EXPECT_EQ(loaded("{% for m in messages %}{{ m.content | upper }};{% endfor %}").text("q", "be brief"), "BE BRIEF;Q;");
  const char* const own =
      "{% if messages[0].role != 'system' %}be brief;{% endif %}{% for m in messages %}{{ m.content }};{% endfor %}";
  EXPECT_EQ(loaded(own).text("q", "be brief"), "be brief;q;");
}

TEST(ChatTemplate, TurnsMustGoOnFromWhatTheModelRead) {
  const Questions three{"one", "two", "three"};
  EXPECT_EQ(loaded(read_file(kChats / "im_sep.jinja")).next(three),
            "<|im_end|><|im_start|>user<|im_sep|>three<|im_end|><|im_start|>assistant<|im_sep|>");
  EXPECT_EQ(loaded(read_file(kChats / "inst_narrow.jinja")).next(three), "</s> [INST]three[/INST]");
  const auto refused = [&](const char* file, const std::optional<std::string>& system = {}) {
    return sentence_of([&] { loaded(read_file(kChats / file)).next(three, system); });
  };
  EXPECT_TRUE(says(refused("think.jinja"), "otherwise once there is another turn", "'/workload/turns': 1"));
  EXPECT_TRUE(says(refused("inst_wide.jinja", "be brief"), "otherwise once there is another turn"));
  EXPECT_TRUE(says(sentence_of([&] { loaded("{{ messages[-1].content }}").next(three); }), "otherwise"));
}

TEST(ChatTemplate, WhatCannotBeRenderedIsRefused) {
  EXPECT_TRUE(says(sentence_of([] { loaded("a\n{% include 'x' %}"); }), "line 2: the tag 'include' is not known here"));
  EXPECT_TRUE(says(sentence_of([&] { ChatTemplate::load(kData / "gpt2"); }), "gpt2 has no chat template", "name one"));
  const auto gpt2 = Tokenizer::load(kData / "gpt2");
  EXPECT_TRUE(says(sentence_of([&] { ChatTemplate::named("chatml").encode(*gpt2, "q"); }), "no token '<|im_start|>'",
                   "'chatml'"));
}

TEST(ChatTemplate, IsReadFromEveryPlace) {
  const TemporaryFolder folder;
  const auto text = [&] { return ChatTemplate::load(folder.path()).text("q"); };
  const auto marked = [](const char* place) {
    return std::string("{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|") + place;
  };
  folder.write("special_tokens_map.json",
               R"({"bos_token": "<a>", "eos_token": {"content": "<b>"}, "pad_token": "<p>"})");
  folder.write("tokenizer_config.json",
               json{{"bos_token", "<c>"},
                    {"pad_token", nullptr},
                    {"chat_template",
                     {{{"name", "tool_use"}, {"template", "x"}}, {{"name", "default"}, {"template", marked("1")}}}}}
                   .dump());
  EXPECT_EQ(text(), "<a>|<b>|<p>|1");
  folder.write("chat_template.json", json{{"chat_template", marked("2")}}.dump());
  EXPECT_EQ(text(), "<a>|<b>|<p>|1") << "that file is a processor's";
  // What is newer keeps all in one file.
  folder.write("tokenizer_config.json", json{{"bos_token", "<c>"},
                                             {"added_tokens_decoder", json::object()},
                                             {"extra_special_tokens", {{"pad_token", "<v>"}}}}
                                            .dump());
  EXPECT_EQ(text(), "<c>||<v>|2");
  folder.write("chat_template.jinja", marked("3"));
  EXPECT_EQ(text(), "<c>||<v>|3");
  folder.write("chat_template.jinja", "");
  EXPECT_TRUE(says(sentence_of([&] { ChatTemplate::load(folder.path()); }), "chat_template.jinja is empty"));
}

}  // namespace
}  // namespace foretoken::test
