// GPT-2's alphabet for bytes: every byte is written as one printable character, so that vocabularies of bytes can stand
// in JSON. Printable Latin-1 bytes are themselves, the other 68 are U+0100 and up in order. Knows nothing else.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace foretoken {

char32_t letter_of_byte(unsigned char byte);
// The bytes that valid UTF-8 `word` stands for; none if one of its characters is not in the alphabet.
std::optional<std::string> bytes_of_letters(std::string_view word);

}  // namespace foretoken
