// Words of pre-tokenizers and texts of chat templates, as their documents state them.
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "framework/text/chat_template.h"
#include "framework/text/pre_tokenizer.h"

namespace foretoken::oracle {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

Words split(const json& spec, const std::string& text) {
  return PreTokenizer::load(spec, "test").split(text, TextPlace::beginning);
}
json by(const std::string& behavior, const std::string& regex, bool invert = false) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", behavior}, {"invert", invert}};
}

// The example of the documents of the library "tokenizers", with the pattern "-".
TEST(Words, of_every_behavior_where_two_matches_are_adjacent) {
  const std::string text = "the-final--countdown";
  EXPECT_EQ(split(by("Removed", "-"), text), (Words{"the", "final", "countdown"}));
  EXPECT_EQ(split(by("Isolated", "-"), text), (Words{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split(by("MergedWithPrevious", "-"), text), (Words{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split(by("MergedWithNext", "-"), text), (Words{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split(by("Contiguous", "-"), text), (Words{"the", "-", "final", "--", "countdown"}));
}

TEST(Words, at_both_ends) {
  EXPECT_EQ(split(by("Isolated", "-"), "--a--"), (Words{"-", "-", "a", "-", "-"}));
  EXPECT_EQ(split(by("Removed", "-"), "--a--"), (Words{"a"}));
  EXPECT_EQ(split(by("MergedWithPrevious", "-"), "--a--"), (Words{"-", "-", "a-", "-"}));
  EXPECT_EQ(split(by("MergedWithNext", "-"), "--a--"), (Words{"-", "-a", "-", "-"}));
  EXPECT_EQ(split(by("Contiguous", "-"), "--a--"), (Words{"--", "a", "--"}));
  EXPECT_EQ(split(by("Isolated", "-"), ""), Words());
}

TEST(Words, of_digits_and_of_three_digits) {
  EXPECT_EQ(split({{"type", "Digits"}, {"individual_digits", true}}, "a12 3"), (Words{"a", "1", "2", " ", "3"}));
  EXPECT_EQ(split({{"type", "Digits"}, {"individual_digits", false}}, "a12 3"), (Words{"a", "12", " ", "3"}));
  EXPECT_EQ(split(by("Isolated", "\\d{1,3}"), "1234567a12"), (Words{"123", "456", "7", "a", "12"}));
  EXPECT_EQ(split({{"type", "Sequence"}, {"pretokenizers", {by("Isolated", "\\d"), by("Isolated", "[ab]")}}}, "ab12x"),
            (Words{"a", "b", "1", "2", "x"}));
}

// Of `invert`, the pieces between matches are the matches; adjacent matches are then two pieces between.
TEST(Words, of_an_inverted_pattern) {
  EXPECT_EQ(split(by("Removed", "[ab]", true), "-ab--c"), (Words{"a", "b"}));
  EXPECT_EQ(split(by("Isolated", "[ab]", true), "-ab--c"), (Words{"-", "a", "b", "--c"}));
}

// Of one-byte matches by a second account: the pieces, then who joins whom.
Words split_slowly(const std::string& behavior, const std::string& text) {
  Words pieces;
  for (const char c : text)
    if (c == '-' || pieces.empty() || pieces.back() == "-")
      pieces.emplace_back(1, c);
    else
      pieces.back() += c;
  Words words;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const bool match = pieces[i] == "-", after = i > 0 && pieces[i - 1] == "-";
    if (behavior == "Removed" && match) continue;
    if ((behavior == "MergedWithPrevious" && match && !after && i > 0) ||
        (behavior == "MergedWithNext" && !match && after) || (behavior == "Contiguous" && match && after))
      words.back() += pieces[i];
    else
      words.push_back(pieces[i]);
  }
  return words;
}

TEST(Words, of_random_texts) {
  std::mt19937 random(2);
  for (const std::string behavior : {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"})
    for (int i = 0; i < 100; ++i) {
      std::string text;
      for (unsigned n = random() % 12; n > 0; --n) text += "-ab"[random() % 3];
      ASSERT_EQ(split(by(behavior, "-"), text), split_slowly(behavior, text)) << behavior << " of " << text;
    }
}

// Templates that write `content | trim` remove the white space around system prompts and questions, others keep it.
TEST(Chat, system_prompts_are_trimmed_where_the_template_trims) {
  const auto text = [](const std::string& name) {
    return ChatTemplate::named(name).text(" \n q \t", " \n be  brief\n ");
  };
  const std::string header = "<|start_header_id|>", end = "<|end_header_id|>\n\n", turn = "<|eot_id|>",
                    dates = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
  EXPECT_EQ(text("llama-2"), "<s>[INST] <<SYS>>\nbe  brief\n<</SYS>>\n\nq [/INST]");
  EXPECT_EQ(text("llama-3"), "<|begin_of_text|>" + header + "system" + end + "be  brief" + turn + header + "user" +
                                 end + "q" + turn + header + "assistant" + end);
  EXPECT_EQ(text("llama-3.1"), "<|begin_of_text|>" + header + "system" + end + dates + "be  brief" + turn + header +
                                   "user" + end + "q" + turn + header + "assistant" + end);
  EXPECT_EQ(text("chatml"),
            "<|im_start|>system\n \n be  brief\n <|im_end|>\n<|im_start|>user\n \n q \t<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(text("zephyr"), "<|system|>\n \n be  brief\n </s>\n<|user|>\n \n q \t</s>\n<|assistant|>\n");
}

}  // namespace
}  // namespace foretoken::oracle
