// Python's str() and repr().
#include <charconv>
#include <cmath>

#include "framework/text/jinja/run.h"
#include "framework/text/jinja/unicode.h"
#include "framework/text/jinja/value.h"
#include "framework/text/utf8.h"

namespace foretoken::jinja {
namespace {

std::string hex_digits(char32_t point, int width) {
  static const char* const kDigits = "0123456789abcdef";
  std::string digits;
  for (int i = width - 1; i >= 0; --i) digits += kDigits[point >> (4 * i) & 15];
  return digits;
}

void append_escaped(std::string& out, char32_t c, char quote) {
  if (c == char32_t(quote) || c == '\\')
    out += '\\', out += char(c);
  else if (c == '\n')
    out += "\\n";
  else if (c == '\r')
    out += "\\r";
  else if (c == '\t')
    out += "\\t";
  else if (is_printable(c))
    append_utf8(out, c);
  else if (c < 0x100)
    out += "\\x" + hex_digits(c, 2);
  else if (c < 0x10000)
    out += "\\u" + hex_digits(c, 4);
  else
    out += "\\U" + hex_digits(c, 8);
}

std::string repr_of_text(const std::string& text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char32_t c : points_of(text)) append_escaped(out, c, quote);
  return out + quote;
}

std::string listed_reprs(Run& run, const Items& items) {
  std::string out;
  for (const Value& item : items) {
    const std::string one = repr_of(run, item);
    run.take(std::int64_t(one.size()) + 2);
    out += (out.empty() ? "" : ", ") + one;
  }
  return out;
}

std::string repr_of_map(Run& run, const Map& map) {
  std::string out = "{";
  for (const auto& [name, value] : map.entries) {
    if (out.size() > 1) out += ", ";
    const std::string one = repr_of(run, name) + ": " + repr_of(run, value);
    run.take(std::int64_t(one.size()) + 2);
    out += one;
  }
  return out + "}";
}

std::string repr_of_range(const Range& range) {
  const std::string step = range.step == 1 ? "" : ", " + std::to_string(range.step);
  return "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop) + step + ")";
}

}  // namespace

std::string repr_of_real(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  const std::string shortest(buffer, end);
  const int exponent = std::stoi(shortest.substr(shortest.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return shortest;
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed).ptr;
  const std::string plain(buffer, fixed);
  return plain.find('.') == plain.npos ? plain + ".0" : plain;
}

std::string repr_of(Run& run, const Value& value) {
  const Run::Deeper deeper(run);
  run.step();
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.whole() ? "True" : "False";
    case Kind::integer:
      return std::to_string(value.whole());
    case Kind::real:
      return repr_of_real(value.number());
    case Kind::string:
      run.take(4 * std::int64_t(value.str().size()));
      return repr_of_text(value.str());
    case Kind::markup:
      return "Markup(" + repr_of_text(value.str()) + ")";
    case Kind::list:
      return "[" + listed_reprs(run, value.items()) + "]";
    case Kind::tuple:
      return "(" + listed_reprs(run, value.items()) + (value.items().size() == 1 ? ",)" : ")");
    case Kind::dict:
      return repr_of_map(run, value.as<Map>());
    case Kind::view:
      return type_of(value) + "([" + listed_reprs(run, items_of(run, value)) + "])";
    case Kind::range:
      return repr_of_range(value.as<Range>());
    case Kind::space:
      return "<Namespace " + repr_of_map(run, value.as<Space>().attributes) + ">";
    default:
      break;
  }
  fail("a value of type '" + type_of(value) + "' has no text that is the same everywhere; make it a list, or call it");
}

std::string str_of(Run& run, const Value& value) {
  if (value.is_text()) return value.str();
  if (value.is(Kind::undefined)) return "";
  return repr_of(run, value);
}

}  // namespace foretoken::jinja
