// Filters of numbers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "framework/text/jinja/builtins.h"
#include "framework/text/jinja/unicode.h"

namespace foretoken::jinja {
namespace {

// Digits without the underscores that may separate them; "" where they do not.
std::string without_underscores(std::string_view text) {
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto letter = [&](std::size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at]));
    };
    if (text[i] != '_')
      digits += text[i];
    else if (i == 0 || !letter(i - 1) || !letter(i + 1))
      return "";
  }
  return digits;
}

// int(text, base) of Python.
std::optional<std::int64_t> whole_in(std::string_view text, std::int64_t base) {
  std::string digits(stripped(text, nullptr, true, true));
  bool minus = false;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) minus = digits[0] == '-', digits.erase(0, 1);
  if (digits.size() > 2 && digits[0] == '0') {
    const char letter = char(digits[1] | 0x20);
    const std::int64_t named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (named != 0 && (base == named || base == 0)) digits.erase(0, digits[2] == '_' ? 3 : 2), base = named;
  }
  if (base == 0) base = 10;
  digits = without_underscores(digits);
  if (digits.empty() || base < 2 || base > 36) return std::nullopt;
  std::int64_t number = 0;
  for (const char c : digits) {
    const char low = char(c | 0x20);
    const int digit = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'z' ? low - 'a' + 10 : 99;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(number, base, &number) || __builtin_add_overflow(number, digit, &number))
      fail("the number " + std::string(digits.substr(0, 40)) + " does not fit into 64 bits");
  }
  return minus ? -number : number;
}

// float(text) of Python.
std::optional<double> real_in(std::string_view text) {
  const std::string digits = without_underscores(stripped(text, nullptr, true, true));
  std::string low = lower(digits);
  if (!low.empty() && (low[0] == '-' || low[0] == '+')) low.erase(0, 1);
  const bool named = low == "inf" || low == "infinity" || low == "nan";
  if (digits.empty() || (!named && digits.find_first_not_of("0123456789+-.eE") != digits.npos)) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(digits.c_str(), &end);
  return *end == '\0' ? std::optional(number) : std::nullopt;
}

Value int_filter(Run&, const Value& value, const Bound& given) {
  const Value otherwise = given.value(0, Value::integer(0));
  if (value.is(Kind::undefined)) fail(value.reason());
  if (value.is_whole()) return Value::integer(value.whole());
  if (value.is_text()) {
    if (const auto whole = whole_in(value.str(), given.whole(1, 10))) return Value::integer(*whole);
    const auto real = real_in(value.str());
    return real && std::isfinite(*real) ? Value::integer(whole_of_real(*real)) : otherwise;
  }
  if (!value.is(Kind::real) || std::isnan(value.number())) return otherwise;
  return Value::integer(whole_of_real(value.number()));
}

Value float_filter(Run&, const Value& value, const Bound& given) {
  const Value otherwise = given.value(0, Value::real(0));
  if (value.is(Kind::undefined)) fail(value.reason());
  if (value.is_number()) return Value::real(value.number());
  if (!value.is_text()) return otherwise;
  const auto real = real_in(value.str());
  return real ? Value::real(*real) : otherwise;
}

Value abs_filter(Run&, const Value& value, const Bound&) {
  if (value.is(Kind::undefined)) fail(value.reason());
  if (value.is(Kind::real)) return Value::real(std::fabs(value.number()));
  if (!value.is_whole()) fail("the filter 'abs' needs a number, not a value of type '" + type_of(value) + "'");
  return value.whole() < 0 ? negative(value) : Value::integer(value.whole());
}

// To `places` decimal places, halves to even, of the exact binary value as Python's round().
double rounded(double number, std::int64_t places) {
  if (!std::isfinite(number) || places > 330) return number;
  if (places < -330) return std::copysign(0.0, number);
  if (places < 0) {
    const long double scale = std::pow(10.0L, static_cast<long double>(-places));
    return double(std::nearbyint(static_cast<long double>(number) / scale) * scale);
  }
  char digits[800];
  std::snprintf(digits, sizeof digits, "%.*f", int(places), number);
  return std::strtod(digits, nullptr);
}

std::int64_t rounded_whole(std::int64_t number, std::int64_t places) {
  if (places >= 0) return number;
  if (places < -18) return 0;
  std::int64_t scale = 1;
  for (; places < 0; ++places) scale *= 10;
  std::int64_t rest = number % scale;
  if (rest < 0) rest += scale;
  const std::int64_t low = (number - rest) / scale;
  const bool up = rest > scale / 2 || (rest == scale / 2 && low % 2 != 0);
  return (low + up) * scale;
}

Value round_filter(Run&, const Value& value, const Bound& given) {
  const std::int64_t places = given.whole_or_none(0, 0);
  const std::string method = given.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor")
    fail("the filter 'round' has the methods common, ceil and floor, not '" + method + "'");
  if (value.is(Kind::undefined)) fail(value.reason());
  if (!value.is_number()) fail("the filter 'round' needs a number, not a value of type '" + type_of(value) + "'");
  if (method == "common" && value.is(Kind::real) && given.at(0) && given.at(0)->is(Kind::none))
    return Value::integer(whole_of_real(rounded(value.number(), 0)));
  if (method == "common")
    return value.is_whole() ? Value::integer(rounded_whole(value.whole(), places))
                            : Value::real(rounded(value.number(), places));
  const double scale = std::pow(10.0, double(places)), scaled = value.number() * scale;
  if (!std::isfinite(scaled)) fail("a number is too large for the filter 'round'");
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

}  // namespace

const std::vector<Builtin>& number_filters() {
  static const std::vector<Builtin> kFilters = {{"abs", "", 0, abs_filter},
                                                {"float", "default", 0, float_filter},
                                                {"int", "default base", 0, int_filter},
                                                {"round", "precision method", 0, round_filter}};
  return kFilters;
}

}  // namespace foretoken::jinja
