// Any bytes as a chat template: it is refused, or a conversation is rendered within bounds, to the same text twice.
#include "framework/text/jinja/template.h"
#include "framework/text/utf8.h"
#include "tests/fuzz/fuzz.h"

using namespace foretoken;

namespace {

const nlohmann::ordered_json& variables() {
  static const auto kVariables = nlohmann::ordered_json::parse(R"({
    "messages": [
      {"role": "system", "content": " Be brief. "},
      {"role": "user", "content": "caf\u00e9 \ud83d\ude00"},
      {"role": "assistant", "content": "<think>\nhm\n</think>\n\na",
       "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null, true]}}}]},
      {"role": "user", "content": "q"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true, "i": 7, "n": null})");
  return kVariables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::feed(data, size, [](std::string_view source) {
    const jinja::Template made(source, "the template");
    const jinja::Context context{.steps = 200'000, .bytes = 32 << 20, .output = 1 << 20};
    const std::string text = made.render(variables(), context);
    fuzz::expect(std::int64_t(text.size()) <= context.output, "the output is bounded");
    fuzz::expect(replace_broken_utf8(text) == text, "a text is valid UTF-8");
    fuzz::expect(made.render(variables(), context) == text, "a template has one text");
  });
}
