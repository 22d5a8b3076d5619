#include <algorithm>
#include <cmath>

#include "framework/text/jinja/builtins.h"
#include "framework/text/jinja/strings.h"

namespace foretoken::jinja {
namespace {

[[noreturn]] void refuse_operands(const std::string& sign, const Value& a, const Value& b) {
  for (const Value* v : {&a, &b})
    if (v->is(Kind::undefined)) fail(v->reason());
  fail("'" + sign + "' cannot be applied to values of type '" + type_of(a) + "' and '" + type_of(b) + "'");
}

[[noreturn]] void refuse_size() { fail("a number does not fit into 64 bits"); }

std::int64_t floored(std::int64_t a, std::int64_t b) {
  if (b == -1 && a == INT64_MIN) refuse_size();
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// Python's remainder of floats: it has the sign of the divisor.
double real_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double real_floored(double a, double b) {
  const double rest = real_modulo(a, b), whole = (a - rest) / b, near = std::floor(whole);
  return whole == 0 ? std::copysign(0.0, a / b) : whole - near > 0.5 ? near + 1 : near;
}

Value whole_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("zero has no power below zero");
    return Value::real(std::pow(double(base), double(exponent)));
  }
  std::int64_t power = 1;
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(power, base, &power)) refuse_size();
  return Value::integer(power);
}

Value whole_operated(char sign, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if ((sign == '/' || sign == 'f' || sign == '%') && b == 0) fail("division by zero");
  switch (sign) {
    case '+':
      if (__builtin_add_overflow(a, b, &result)) refuse_size();
      return Value::integer(result);
    case '-':
      if (__builtin_sub_overflow(a, b, &result)) refuse_size();
      return Value::integer(result);
    case '*':
      if (__builtin_mul_overflow(a, b, &result)) refuse_size();
      return Value::integer(result);
    case '/':
      return Value::real(double(static_cast<long double>(a) / static_cast<long double>(b)));
    case 'f':
      return Value::integer(floored(a, b));
    case '%':
      return Value::integer(b == -1 ? 0 : a - floored(a, b) * b);
    default:
      return whole_power(a, b);
  }
}

Value real_operated(char sign, double a, double b) {
  if ((sign == '/' || sign == 'f' || sign == '%') && b == 0) fail("division by zero");
  switch (sign) {
    case '+':
      return Value::real(a + b);
    case '-':
      return Value::real(a - b);
    case '*':
      return Value::real(a * b);
    case '/':
      return Value::real(a / b);
    case 'f':
      return Value::real(real_floored(a, b));
    case '%':
      return Value::real(real_modulo(a, b));
    default:
      break;
  }
  if (a == 0 && b < 0) fail("zero has no power below zero");
  if (a < 0 && b != std::floor(b)) fail("a power of a negative number is no real number");
  const double power = std::pow(a, b);
  if (std::isinf(power) && !std::isinf(a) && !std::isinf(b)) fail("a power is too large");
  return Value::real(power);
}

Value repeated(Run& run, const Value& value, std::int64_t times) {
  times = std::max<std::int64_t>(times, 0);
  const std::int64_t size =
      value.is(Kind::string) ? std::int64_t(value.str().size()) : std::int64_t(value.items().size() * sizeof(Value));
  if (size > 0 && times > INT64_MAX / 2 / size) run.take(INT64_MAX / 2);
  run.take(size * times);
  if (value.is(Kind::string)) {
    std::string text;
    for (std::int64_t i = 0; i < times && size > 0; ++i) text += value.str();
    return run.text(std::move(text));
  }
  Items items;
  for (std::int64_t i = 0; i < times && size > 0; ++i)
    items.insert(items.end(), value.items().begin(), value.items().end());
  return run.sequence(value.kind(), std::move(items));
}

int order_of_numbers(const Value& a, const Value& b, bool* ordered) {
  if (a.is_whole() && b.is_whole()) return a.whole() < b.whole() ? -1 : a.whole() > b.whole();
  const long double x = a.is_whole() ? static_cast<long double>(a.whole()) : a.number(),
                    y = b.is_whole() ? static_cast<long double>(b.whole()) : b.number();
  *ordered = !(x != x) && !(y != y);
  return x < y ? -1 : x > y;
}

// Below, at or above zero, as a stands to b; `ordered` becomes false for NaN.
int order_of(Run& run, const std::string& sign, const Value& a, const Value& b, bool* ordered) {
  const Run::Deeper deeper(run);
  run.step();
  if (a.is_number() && b.is_number()) return order_of_numbers(a, b, ordered);
  if (a.is_text() && b.is_text()) {
    run.step(std::int64_t(std::min(a.str().size(), b.str().size()) / 256));
    return a.str().compare(b.str());
  }
  if (!a.is_items() || a.kind() != b.kind()) refuse_operands(sign, a, b);
  const Items &x = a.items(), &y = b.items();
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    if (!x[i].same(y[i]) && !equal(run, x[i], y[i])) return order_of(run, sign, x[i], y[i], ordered);
  return x.size() < y.size() ? -1 : x.size() > y.size();
}

bool contains(Run& run, const Value& container, const Value& item) {
  if (container.is_text()) {
    if (!item.is_text()) refuse_operands("in", item, container);
    return find_text(run, container.str(), item.str(), 0) != std::string::npos;
  }
  if (container.is(Kind::dict)) return container.as<Map>().find(key_of(run, item)) != nullptr;
  if (!iterable(container)) refuse_operands("in", item, container);
  Iterator iterator(run, container);
  for (Value one; iterator.next(one);)
    if (one.same(item) || equal(run, one, item)) return true;
  return false;
}

}  // namespace

std::size_t find_text(Run& run, std::string_view text, std::string_view part, std::size_t at) {
  if (at <= text.size() && part.size() <= text.size() - at)
    run.step(1 + std::int64_t(double(text.size() - at - part.size()) * double(part.size() + 1) / 1024));
  return text.find(part, at);
}

std::int64_t whole_of_real(double number) {
  if (!(std::fabs(number) < 9.2e18)) refuse_size();
  return std::int64_t(number);
}

Value negative(const Value& value) {
  if (value.is(Kind::undefined)) fail(value.reason());
  if (value.is(Kind::real)) return Value::real(-value.number());
  if (!value.is_whole()) fail("'-' cannot be applied to a value of type '" + type_of(value) + "'");
  return whole_operated('-', 0, value.whole());
}

Value operated(Run& run, const std::string& sign, const Value& a, const Value& b) {
  const char kind = sign == "//" ? 'f' : sign == "**" ? '^' : sign[0];
  if (a.is_whole() && b.is_whole()) return whole_operated(kind, a.whole(), b.whole());
  if (a.is_number() && b.is_number()) return real_operated(kind, a.number(), b.number());
  if (kind == '+' && a.is(Kind::string) && b.is(Kind::string)) {
    run.take(std::int64_t(a.str().size() + b.str().size()));
    return run.text(a.str() + b.str());
  }
  if (kind == '+' && a.is_items() && a.kind() == b.kind()) {
    run.take(std::int64_t((a.items().size() + b.items().size()) * sizeof(Value)));
    Items items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return run.sequence(a.kind(), std::move(items));
  }
  if (kind == '*' && b.is_whole() && (a.is(Kind::string) || a.is_items())) return repeated(run, a, b.whole());
  if (kind == '*' && a.is_whole() && (b.is(Kind::string) || b.is_items())) return repeated(run, b, a.whole());
  if (kind == '%' && a.is(Kind::string)) return run.text(percent_formatted(run, a.str(), b));
  refuse_operands(sign, a, b);
}

bool less(Run& run, const Value& a, const Value& b) {
  bool ordered = true;
  return order_of(run, "<", a, b, &ordered) < 0 && ordered;
}

bool compared(Run& run, const std::string& sign, const Value& a, const Value& b) {
  if (sign == "==" || sign == "!=") return equal(run, a, b) == (sign == "==");
  if (sign == "in" || sign == "not in") return contains(run, b, a) == (sign == "in");
  bool ordered = true;
  const int order = order_of(run, sign, a, b, &ordered);
  if (!ordered) return false;
  if (sign == "<") return order < 0;
  if (sign == "<=") return order <= 0;
  return sign == ">" ? order > 0 : order >= 0;
}

}  // namespace foretoken::jinja
