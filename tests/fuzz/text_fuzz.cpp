// Any bytes as a text, for correct tokenizers: decoding loses nothing.
#include "framework/text/tokenizer.h"
#include "framework/text/utf8.h"
#include "tests/fuzz/fuzz.h"

using namespace foretoken;

namespace {

std::shared_ptr<const Tokenizer> open(const char* name) {
  return Tokenizer::load(std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests" / "data" / "tokenizers" / name);
}

void expect_kept(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<Token> tokens = tokenizer.encode(text, /*special=*/false);
  fuzz::expect(tokenizer.decode(tokens, /*special=*/true) == replace_broken_utf8(text), "decoding gives the text back");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto gpt2 = open("gpt2"), llama3 = open("llama3"), qwen2 = open("qwen2"), llama2 = open("llama2"),
                    gemma = open("gemma");
  return fuzz::feed(data, size, [](std::string_view text) {
    expect_kept(*gpt2, text);
    expect_kept(*llama3, text);
    // The mark of a space becomes a space, and there is one after an added token.
    if (text.find("\u2581") == text.npos && text.find('<') == text.npos)
      expect_kept(*llama2, text), expect_kept(*gemma, text);
    const std::vector<Token> tokens = qwen2->encode(text);  // normalizes texts
    fuzz::expect(replace_broken_utf8(qwen2->decode(tokens, true)) == qwen2->decode(tokens, true),
                 "a text is valid UTF-8");
  });
}
