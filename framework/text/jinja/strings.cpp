#include "framework/text/jinja/strings.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "framework/text/jinja/builtins.h"
#include "framework/text/jinja/run.h"
#include "framework/text/jinja/unicode.h"
#include "framework/text/utf8.h"

namespace foretoken::jinja {
namespace {

constexpr std::int64_t kWidest = 100'000;  // of a formatted field, in characters

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = char(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

char32_t hex_escape(std::string_view literal, std::size_t at, int digits) {
  char32_t point = 0;
  for (int i = 0; i < digits; ++i) {
    const int digit = at + std::size_t(i) < literal.size() ? hex_value(literal[at + std::size_t(i)]) : -1;
    if (digit < 0) fail("an escape in a string has too few hexadecimal digits");
    point = point << 4 | char32_t(digit);
  }
  if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) fail("an escape in a string is no character");
  return point;
}

// Behind the backslash at literal[at - 1]; gives the place behind the escape.
std::size_t append_escape(std::string& out, std::string_view literal, std::size_t at) {
  static constexpr std::string_view kLetters = "\n\\'\"abfnrtv", kControls = "?\\'\"\a\b\f\n\r\t\v";
  const char c = literal[at];
  if (c == 'N') fail("escapes by the name of a character (\\N{...}) are not known here; write it, or \\uXXXX");
  const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (digits > 0) {
    append_utf8(out, hex_escape(literal, at + 1, digits));
    return at + 1 + std::size_t(digits);
  }
  if (c >= '0' && c <= '7') {
    char32_t point = 0;
    std::size_t end = at;
    for (; end < literal.size() && end < at + 3 && literal[end] >= '0' && literal[end] <= '7'; ++end)
      point = point * 8 + char32_t(literal[end] - '0');
    append_utf8(out, point);
    return end;
  }
  if (const auto letter = kLetters.find(c); letter != kLetters.npos) {
    if (letter > 0) out += kControls[letter];
    return at + 1;
  }
  out += '\\';
  // What jinja2 makes of a backslash before a letter beyond ASCII: it has escaped the letter first.
  if (static_cast<unsigned char>(c) < 0x80) return at;
  const Utf8Step step = step_utf8(literal, at);
  char code[16];
  std::snprintf(code, sizeof code,
                step.point < 0x100     ? "x%02x"
                : step.point < 0x10000 ? "u%04x"
                                       : "U%08x",
                unsigned(step.point));
  out += code;
  return at + std::size_t(step.length);
}

// One conversion: "%-5.2f" or the part of "{:-5.2f}" behind the colon.
struct Spec {
  char32_t fill = ' ';
  char align = '\0', sign = '-', type = '\0';
  bool alternate = false, zero = false, comma = false, underscore = false;
  std::int64_t width = 0;
  std::optional<std::int64_t> precision;
};

std::int64_t number_in(std::u32string_view text, std::size_t& at) {
  std::int64_t number = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    number = number * 10 + std::int64_t(text[at++] - '0');
    if (number > kWidest) fail("a formatted field has at most " + std::to_string(kWidest) + " characters here");
  }
  return number;
}

std::string grouped(std::string digits, char separator, std::size_t every) {
  for (std::size_t at = digits.size(); at > every;) digits.insert(at -= every, 1, separator);
  return digits;
}

// A sign and digits to the width of a conversion.
std::string padded_number(Run& run, const Spec& spec, bool negative, std::string prefix, std::string digits) {
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  sign += prefix;
  const std::int64_t missing = spec.width - std::int64_t(sign.size() + digits.size());
  if (missing > 0 && ((spec.zero && spec.align == '\0') || spec.align == '='))
    return sign + std::string(std::size_t(missing), spec.zero && spec.align == '\0' ? '0' : char(spec.fill)) + digits;
  return aligned(run, sign + digits, spec.width, spec.align == '\0' ? '>' : spec.align, spec.fill);
}

std::string digits_of(std::uint64_t number, unsigned base, bool upper) {
  static constexpr std::string_view kUpper = "0123456789ABCDEF", kLower = "0123456789abcdef";
  std::string digits(1, (upper ? kUpper : kLower)[number % base]);
  for (number /= base; number > 0; number /= base) digits += (upper ? kUpper : kLower)[number % base];
  std::ranges::reverse(digits);
  return digits;
}

std::string whole_text(Run& run, const Spec& spec, std::int64_t number, char type) {
  const std::uint64_t size = number < 0 ? 0 - std::uint64_t(number) : std::uint64_t(number);
  const unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  std::string digits = digits_of(size, base, type == 'X');
  if (spec.comma || spec.underscore) {
    if (spec.zero) fail("a format that fills with zeros and separates digits is not known here");
    digits = grouped(std::move(digits), spec.comma ? ',' : '_', base == 10 ? 3 : 4);
  }
  const std::string prefix = spec.alternate && base != 10 ? std::string("0") + type : "";
  return padded_number(run, spec, number < 0, prefix, digits);
}

std::string real_text(Run& run, const Spec& spec, double number, char type) {
  const int precision = int(spec.precision.value_or(6));
  run.take(precision + 400);
  if (type == '%') number *= 100;
  char pattern[8] = {'%', spec.alternate ? '#' : '.', spec.alternate ? '.' : '*', spec.alternate ? '*' : '\0', '\0'};
  const std::size_t last = spec.alternate ? 4 : 3;
  pattern[last] = type == '%' ? 'f' : type, pattern[last + 1] = '\0';
  if (std::isnan(number)) return padded_number(run, spec, false, "", type < 'a' && type != '%' ? "NAN" : "nan");
  std::string digits(std::size_t(precision) + 400, '\0');
  digits.resize(std::size_t(std::snprintf(digits.data(), digits.size(), pattern, precision, std::fabs(number))));
  if (spec.comma || spec.underscore) {
    if (spec.zero) fail("a format that fills with zeros and separates digits is not known here");
    const std::size_t point = std::min(digits.find_first_not_of("0123456789"), digits.size());
    digits = grouped(digits.substr(0, point), spec.comma ? ',' : '_', 3) + digits.substr(point);
  }
  if (type == '%') digits += '%';
  return padded_number(run, spec, std::signbit(number), "", digits);
}

std::string cut_text(const std::string& text, const std::optional<std::int64_t>& most) {
  if (!most || count_points(text) <= *most) return text;
  return utf8_of(points_of(text).substr(0, std::size_t(*most)));
}

bool is_real_type(char type) {
  return type != '\0' && std::string_view("eEfFgG%").find(type) != std::string_view::npos;
}

// What "%d" and the like make of a value.
std::string converted(Run& run, const Spec& spec, const Value& value) {
  const auto number = [&] {
    if (!value.is_number()) fail(std::string("%") + spec.type + " needs a number, not '" + type_of(value) + "'");
    return value;
  };
  switch (spec.type) {
    case 's':
      return aligned(run, cut_text(str_of(run, value), spec.precision), spec.width, spec.align ? '<' : '>');
    case 'r':
      return aligned(run, cut_text(repr_of(run, value), spec.precision), spec.width, spec.align ? '<' : '>');
    case 'd':
    case 'i':
    case 'u':
      if (number().is(Kind::real)) return whole_text(run, spec, whole_of_real(value.number()), 'd');
      return whole_text(run, spec, value.whole(), 'd');
    case 'x':
    case 'X':
    case 'o':
      if (number().is(Kind::real)) fail(std::string("%") + spec.type + " needs an integer");
      return whole_text(run, spec, value.whole(), spec.type);
    case 'c':
      if (value.is_text() && count_points(value.str()) == 1) return aligned(run, value.str(), spec.width, '>');
      fail("%c is known here for one character alone");
    default:
      break;
  }
  if (!is_real_type(spec.type) || spec.type == '%')
    fail(std::string("the conversion '%") + spec.type + "' is not known here");
  return real_text(run, spec, number().number(), spec.type);
}

Spec brace_spec(const std::u32string& text) {
  Spec spec;
  std::size_t at = 0;
  const auto is_align = [&](std::size_t i) {
    return i < text.size() && (text[i] == '<' || text[i] == '>' || text[i] == '^' || text[i] == '=');
  };
  if (is_align(1)) spec.fill = text[0], at = 1;
  if (is_align(at)) spec.align = char(text[at++]);
  const auto takes = [&](char32_t c) { return at < text.size() && text[at] == c && ++at; };
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) spec.sign = char(text[at++]);
  spec.alternate = takes('#');
  spec.zero = takes('0');
  if (spec.zero && spec.align != '\0' && spec.fill == ' ') spec.fill = '0';
  spec.width = number_in(text, at);
  spec.comma = takes(','), spec.underscore = !spec.comma && takes('_');
  if (takes('.')) spec.precision = number_in(text, at);
  if (at < text.size() && text[at] < 0x80) spec.type = char(text[at++]);
  if (at < text.size() || spec.fill >= 0x80) fail("the format '" + utf8_of(text) + "' is not known here");
  return spec;
}

std::string formatted(Run& run, const Value& value, const std::u32string& text) {
  if (text.empty()) return str_of(run, value);
  const Spec spec = brace_spec(text);
  if (value.is_text() && (spec.type == 's' || spec.type == '\0') && spec.align != '=' && !spec.comma && !spec.zero)
    return aligned(run, cut_text(value.str(), spec.precision), spec.width, spec.align ? spec.align : '<', spec.fill);
  static constexpr std::string_view kWhole = "bdoxX";
  if (value.is(Kind::integer) && !spec.precision && (spec.type == '\0' || kWhole.find(spec.type) != kWhole.npos))
    return whole_text(run, spec, value.whole(), spec.type ? spec.type : 'd');
  if (value.is_number() && is_real_type(spec.type)) return real_text(run, spec, value.number(), spec.type);
  fail("the format '" + utf8_of(text) + "' of a value of type '" + type_of(value) + "' is not known here");
}

}  // namespace

std::string unescaped(std::string_view literal) {
  std::string out;
  for (std::size_t at = 0; at < literal.size();) {
    if (literal[at] != '\\' || at + 1 >= literal.size())
      out += literal[at++];
    else
      at = append_escape(out, literal, at + 1);
  }
  return out;
}

std::string aligned(Run& run, const std::string& text, std::int64_t width, char align, char32_t fill) {
  const std::int64_t missing = width - count_points(text);
  if (missing <= 0) return text;
  run.take(missing);
  const std::int64_t odd = align == 'c' ? missing & width & 1 : 0;
  const std::int64_t left = align == '<' ? 0 : align == '>' ? missing : missing / 2 + odd;
  const std::u32string before(std::size_t(left), fill), after(std::size_t(missing - left), fill);
  return utf8_of(before) + text + utf8_of(after);
}

namespace {

// "%-5.2f of %(name)s" and its values.
class PercentFormat {
 public:
  PercentFormat(Run& run, const std::string& format, const Value& arguments)
      : run_(run), text_(points_of(format)), arguments_(arguments) {}

  std::string text() {
    std::string out;
    while (at_ < text_.size()) {
      if (text_[at_] != '%') {
        append_utf8(out, text_[at_++]);
        continue;
      }
      ++at_;
      run_.step();
      const std::string one = conversion();
      run_.take(std::int64_t(one.size()));
      out += one;
    }
    if (!arguments_.is(Kind::dict) && !arguments_.is(Kind::list) && used_ < count())
      fail("a format has fewer conversions than values");
    return out;
  }

 private:
  std::size_t count() const { return arguments_.is(Kind::tuple) ? arguments_.items().size() : 1; }
  Value next() {
    if (used_ >= count()) fail("a format has more conversions than values");
    const std::size_t at = used_++;
    return arguments_.is(Kind::tuple) ? arguments_.items()[at] : arguments_;
  }
  std::optional<Value> named() {
    if (at_ >= text_.size() || text_[at_] != '(') return std::nullopt;
    const std::size_t end = text_.find(U')', at_);
    if (end == text_.npos || !arguments_.is(Kind::dict))
      fail("a format with names needs a dict, and a ')' behind each name");
    const std::string name = utf8_of(text_.substr(at_ + 1, end - at_ - 1));
    const Value* found = arguments_.as<Map>().find("s" + name);
    if (!found) fail("a format names '" + name + "', which the dict does not have");
    at_ = end + 1;
    return *found;
  }
  void flags(Spec& spec) {
    for (; at_ < text_.size(); ++at_) {
      const char32_t c = text_[at_];
      if (c == '-')
        spec.align = '<';
      else if (c == '0')
        spec.zero = true;
      else if (c == '#')
        spec.alternate = true;
      else if (c == '+' || (c == ' ' && spec.sign == '-'))
        spec.sign = char(c);
      else
        return;
    }
  }
  std::int64_t width() {
    if (at_ >= text_.size() || text_[at_] != '*') return number_in(text_, at_);
    ++at_;
    const Value given = next();
    if (!given.is_whole() || given.whole() < 0 || given.whole() > kWidest) fail("a width of a format is no size");
    return given.whole();
  }
  std::string conversion() {
    Spec spec;
    const std::optional<Value> value = named();
    flags(spec);
    spec.width = width();
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      spec.precision = width();
    }
    if (at_ >= text_.size() || text_[at_] >= 0x80) fail("a format ends within a conversion");
    spec.type = char(text_[at_++]);
    return spec.type == '%' ? "%" : converted(run_, spec, value ? *value : next());
  }

  Run& run_;
  const std::u32string text_;
  const Value& arguments_;
  std::size_t at_ = 0, used_ = 0;
};

}  // namespace

std::string percent_formatted(Run& run, const std::string& format, const Value& arguments) {
  return PercentFormat(run, format, arguments).text();
}

namespace {

// A field of str.format(): the value of "name.attribute[item]".
Value field_value(Run& run, const std::string& path, const Arguments& arguments, std::size_t& automatic) {
  const std::size_t end = std::min(path.find_first_of(".["), path.size());
  const std::string name = path.substr(0, end);
  Value value;
  if (name.find_first_not_of("0123456789") == name.npos) {
    const std::size_t at = name.empty() ? automatic++ : name.size() > 6 ? ~std::size_t(0) : std::stoul(name);
    if (at >= arguments.positional.size()) fail("a format needs more values than it gets");
    value = arguments.positional[at];
  } else {
    const auto it = std::ranges::find(arguments.named, name, &std::pair<std::string, Value>::first);
    if (it == arguments.named.end()) fail("a format names '" + name + "', which is not given");
    value = it->second;
  }
  for (std::size_t at = end; at < path.size();) {
    const bool item = path[at] == '[';
    const std::size_t stop = item ? path.find(']', at) : std::min(path.find_first_of(".[", at + 1), path.size());
    if (stop == path.npos) fail("a format has a '[' without its ']'");
    const std::string key = path.substr(at + 1, stop - at - 1);
    const bool digits = !key.empty() && key.find_first_not_of("0123456789") == key.npos && key.size() < 10;
    value = !item    ? attribute_of(run, value, key)
            : digits ? item_of(run, value, Value::integer(std::stol(key)))
                     : item_of(run, value, run.text(key));
    at = stop + item;
  }
  return value;
}

}  // namespace

std::string brace_formatted(Run& run, const std::string& format, const Arguments& arguments) {
  std::string out;
  std::size_t automatic = 0, numbered = 0;  // fields without a number, and with one
  for (std::size_t at = 0; at < format.size();) {
    const char c = format[at];
    if ((c == '{' || c == '}') && at + 1 < format.size() && format[at + 1] == c) {
      out += c, at += 2;
      continue;
    }
    if (c == '}') fail("a format has a '}' without its '{'");
    if (c != '{') {
      out += c, ++at;
      continue;
    }
    const std::size_t end = format.find('}', at);
    if (end == format.npos) fail("a format has a '{' without its '}'");
    const std::string field = format.substr(at + 1, end - at - 1);
    if (field.find('{') != field.npos) fail("formats inside of formats are not known here");
    const std::size_t colon = std::min(field.find(':'), field.size()), mark = std::min(field.find('!'), colon);
    run.step();
    Value value = field_value(run, field.substr(0, mark), arguments, automatic);
    numbered += field[0] >= '0' && field[0] <= '9';
    if (numbered > 0 && automatic > 0) fail("a format has fields with numbers and fields without");
    const std::string conversion = field.substr(mark, colon - mark);
    if (!conversion.empty() && conversion != "!r" && conversion != "!s")
      fail("the conversion '" + conversion + "' of a format is not known here");
    if (!conversion.empty()) value = run.text(conversion == "!r" ? repr_of(run, value) : str_of(run, value));
    const std::string one = formatted(run, value, points_of(field.substr(std::min(colon + 1, field.size()))));
    run.take(std::int64_t(one.size()));
    out += one, at = end + 1;
  }
  return out;
}

}  // namespace foretoken::jinja
