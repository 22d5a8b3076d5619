// GPT-2's alphabet for bytes: every byte is written as one printable character, so that JSON can hold vocabularies of
// bytes. Printable Latin-1 bytes are themselves, the other 68 are U+0100 and up in order. This module must not know
// tokens.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace foretoken {

char32_t letter_of_byte(unsigned char byte);
// The bytes that `word` (valid UTF-8) encodes; none if one of its characters is not in the alphabet.
std::optional<std::string> bytes_of_letters(std::string_view word);

}  // namespace foretoken
