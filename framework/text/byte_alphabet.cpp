#include "framework/text/byte_alphabet.h"

#include <array>

#include "framework/text/utf8.h"

namespace foretoken {
namespace {

struct Alphabet {
  std::array<char32_t, 256> letters{};
  std::array<int, 0x180> bytes{};  // of a letter; -1: none

  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      letters[b] = printable ? char32_t(b) : next++;
      bytes[letters[b]] = b;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet a;
  return a;
}

}  // namespace

char32_t letter_of_byte(unsigned char byte) { return alphabet().letters[byte]; }

std::optional<std::string> bytes_of_letters(std::string_view word) {
  std::string bytes;
  for (std::size_t at = 0; at < word.size();) {
    const Utf8Step step = step_utf8(word, at);
    if (step.kind != Utf8Step::Kind::whole || step.point >= alphabet().bytes.size() || alphabet().bytes[step.point] < 0)
      return std::nullopt;
    bytes.push_back(char(alphabet().bytes[step.point]));
    at += step.length;
  }
  return bytes;
}

}  // namespace foretoken
