// Any text as a tokenizer.json, and after its first byte 0 a text to encode.
#include "framework/text/tokenizer.h"
#include "framework/text/utf8.h"
#include "tests/fuzz/fuzz.h"

using namespace foretoken;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::feed(data, size, [](std::string_view bytes) {
    const std::size_t end = std::min(bytes.find('\0'), bytes.size());
    const fuzz::MemoryFile file(bytes.substr(0, end));
    const auto tokenizer = Tokenizer::load(file.path());
    const std::string_view text = end < bytes.size() ? bytes.substr(end + 1) : "Hello,  world 12\n<s>";
    const std::vector<Token> tokens = tokenizer->encode(text);
    TextStream stream(tokenizer);
    std::string streamed;
    for (const Token t : tokens) {
      fuzz::expect(t >= 0 && t < tokenizer->vocab(), "ids are below the size of the vocabulary");
      streamed += stream.push({&t, 1});
    }
    streamed += stream.finish();
    fuzz::expect(streamed == replace_broken_utf8(tokenizer->decode_inside(tokens)),
                 "a stream says what the whole says");
  });
}
