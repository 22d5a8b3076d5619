// Methods of strings.
#include <algorithm>

#include "framework/text/jinja/builtins.h"
#include "framework/text/jinja/strings.h"
#include "framework/text/jinja/unicode.h"

namespace foretoken::jinja {
namespace {

using std::string;

template <bool left, bool right> Value strip(Run& run, const Value& value, const Bound& given) {
  if (!given.at(0) || given.at(0)->is(Kind::none)) return run.text(string(stripped(value.str(), nullptr, left, right)));
  const std::u32string chars = points_of(given.text(0, ""));
  run.step(std::int64_t(chars.size() / 16 * (1 + value.str().size() / 64)));
  return run.text(string(stripped(value.str(), &chars, left, right)));
}

void reversed(Items& items) { std::ranges::reverse(items); }

// By white space, at most `most` times (negative: always), from the left or the right.
Value split_words(Run& run, const string& text, std::int64_t most, bool from_right) {
  Items parts;
  std::string_view rest = stripped(text, nullptr, !from_right, from_right);
  while (!rest.empty()) {
    if (most >= 0 && std::int64_t(parts.size()) == most) {
      parts.push_back(run.text(string(rest)));
      break;
    }
    std::size_t begin = 0, end = rest.size();
    if (from_right) {
      for (begin = end; begin > 0;) {
        std::size_t at = begin - 1;
        while (at > 0 && (rest[at] & 0xc0) == 0x80) --at;
        if (is_space(points_of(rest.substr(at, begin - at))[0])) break;
        begin = at;
      }
    } else {
      for (end = 0; end < rest.size(); end += length_of_point(rest, end))
        if (is_space(points_of(rest.substr(end, length_of_point(rest, end)))[0])) break;
    }
    parts.push_back(run.text(string(rest.substr(begin, end - begin))));
    rest = from_right ? stripped(rest.substr(0, begin), nullptr, false, true)
                      : stripped(rest.substr(end), nullptr, true, false);
  }
  if (from_right) reversed(parts);
  return run.list(std::move(parts));
}

Value split_at(Run& run, const string& text, const string& separator, std::int64_t most, bool from_right) {
  if (separator.empty()) fail("a string cannot be split at nothing");
  run.step(std::int64_t(text.size() * separator.size() / 1024));
  Items parts;
  std::size_t begin = 0, end = text.size();
  while (most < 0 || std::int64_t(parts.size()) < most) {
    run.step();
    std::size_t at = string::npos;
    if (!from_right)
      at = text.find(separator, begin);
    else if (end >= separator.size())
      at = text.rfind(separator, end - separator.size());
    if (at == string::npos) break;
    parts.push_back(run.text(from_right ? text.substr(at + separator.size(), end - at - separator.size())
                                        : text.substr(begin, at - begin)));
    (from_right ? end : begin) = from_right ? at : at + separator.size();
  }
  parts.push_back(run.text(text.substr(begin, end - begin)));
  if (from_right) reversed(parts);
  return run.list(std::move(parts));
}

template <bool from_right> Value split(Run& run, const Value& value, const Bound& given) {
  const std::int64_t most = given.whole(1, -1);
  if (!given.at(0) || given.at(0)->is(Kind::none)) return split_words(run, value.str(), most, from_right);
  return split_at(run, value.str(), given.text(0, ""), most, from_right);
}

Value splitlines(Run& run, const Value& value, const Bound& given) {
  Items lines;
  for (string& line : lines_of(value.str(), given.flag(0, false))) lines.push_back(run.text(std::move(line)));
  return run.list(std::move(lines));
}

template <bool from_right> Value partition(Run& run, const Value& value, const Bound& given) {
  const string &text = value.str(), mark = given.text(0, "");
  if (mark.empty()) fail(given.callee() + " needs a separator");
  run.step(std::int64_t(text.size() * mark.size() / 1024));
  const std::size_t at = from_right ? text.rfind(mark) : text.find(mark);
  const Value none = run.text("");
  if (at == string::npos) return run.tuple(from_right ? Items{none, none, value} : Items{value, none, none});
  return run.tuple({run.text(text.substr(0, at)), run.text(mark), run.text(text.substr(at + mark.size()))});
}

// The part of a string that the arguments `start` and `end` name.
struct Window {
  std::string_view text;
  std::int64_t first;  // its place, in code points
  bool inside;         // whether there is such a place
};

Window window_of(Run& run, const Value& value, const Bound& given, std::size_t at) {
  const std::int64_t length = length_of(run, value);
  const auto place = [&](std::int64_t index) { return std::max<std::int64_t>(index < 0 ? index + length : index, 0); };
  const std::int64_t first = place(given.whole_or_none(at, 0)),
                     last = std::min(place(given.whole_or_none(at + 1, length)), length);
  if (first > last) return {"", first, false};
  std::size_t begin = 0;
  for (std::int64_t i = 0; i < first; ++i) begin += length_of_point(value.str(), begin);
  std::size_t end = begin;
  for (std::int64_t i = first; i < last; ++i) end += length_of_point(value.str(), end);
  return {std::string_view(value.str()).substr(begin, end - begin), first, true};
}

template <bool from_right, bool must> Value find(Run& run, const Value& value, const Bound& given) {
  const Window window = window_of(run, value, given, 1);
  const string part = given.text(0, "");
  std::size_t at = string::npos;
  if (window.inside) at = find_text(run, window.text, part, 0);
  if (from_right && at != string::npos) at = window.text.rfind(part);
  if (at != string::npos) return Value::integer(window.first + count_points(window.text.substr(0, at)));
  if (must) fail(given.callee() + " does not find '" + part.substr(0, 60) + "'");
  return Value::integer(-1);
}

Value count(Run& run, const Value& value, const Bound& given) {
  const Window window = window_of(run, value, given, 1);
  const string part = given.text(0, "");
  if (!window.inside) return Value::integer(0);
  if (part.empty()) return Value::integer(count_points(window.text) + 1);
  run.step(std::int64_t(window.text.size() * part.size() / 1024));
  std::int64_t found = 0;
  for (std::size_t at = 0; (at = window.text.find(part, at)) != string::npos; at += part.size()) ++found;
  return Value::integer(found);
}

template <bool at_end> Value touches(Run& run, const Value& value, const Bound& given) {
  const Window window = window_of(run, value, given, 1);
  const Value& what = *given.at(0);
  if (what.is(Kind::undefined)) fail(what.reason());
  const Items parts = what.is(Kind::tuple) ? what.items() : Items{what};
  bool found = false;
  for (const Value& part : parts) {
    if (!part.is_text()) fail(given.callee() + " needs a string or a tuple of strings");
    found |= window.inside && (at_end ? window.text.ends_with(part.str()) : window.text.starts_with(part.str()));
  }
  return Value::boolean(found);
}

Value replace_all(Run& run, const Value& value, const Bound& given) {
  return run.text(replaced(run, value.str(), given.text(0, ""), given.text(1, ""), given.whole(2, -1)));
}

Value join_texts(Run& run, const Value& value, const Bound& given) {
  string text;
  bool first = true;
  for (const Value& item : items_of(run, *given.at(0))) {
    if (!item.is_text()) fail("str.join() needs strings, not a value of type '" + type_of(item) + "'");
    run.take(std::int64_t(item.str().size() + value.str().size()));
    text += (first ? "" : value.str()) + item.str();
    first = false;
  }
  return run.text(std::move(text));
}

template <bool at_end> Value remove(Run& run, const Value& value, const Bound& given) {
  const string &text = value.str(), part = given.text(0, "");
  const bool there = at_end ? text.ends_with(part) : text.starts_with(part);
  if (!there) return value;
  return run.text(at_end ? text.substr(0, text.size() - part.size()) : text.substr(part.size()));
}

template <string (*change)(std::string_view)> Value cased(Run& run, const Value& value, const Bound&) {
  run.step(std::int64_t(value.str().size() / 16));
  return run.text(change(value.str()));
}

template <bool (*holds)(char32_t)> Value all_are(Run& run, const Value& value, const Bound&) {
  run.step(std::int64_t(value.str().size() / 16));
  return Value::boolean(!value.str().empty() && std::ranges::all_of(points_of(value.str()), holds));
}

bool is_alphanumeric(char32_t c) { return is_letter(c) || is_digit(c); }
bool is_ascii(char32_t c) { return c < 0x80; }

// islower(), isupper(): some character has case, and none the other one.
template <bool (*own)(char32_t), bool (*other)(char32_t)> Value has_case(Run& run, const Value& value, const Bound&) {
  run.step(std::int64_t(value.str().size() / 16));
  bool some = false;
  for (const char32_t c : points_of(value.str())) {
    if (other(c) || is_title(c)) return Value::boolean(false);
    some |= own(c);
  }
  return Value::boolean(some);
}

Value is_titled(Run& run, const Value& value, const Bound&) {
  run.step(std::int64_t(value.str().size() / 16));
  bool some = false, inside = false;
  for (const char32_t c : points_of(value.str())) {
    const bool upper = is_upper(c) || is_title(c), lower = is_lower(c);
    if ((upper && inside) || (lower && !inside)) return Value::boolean(false);
    some |= upper || lower, inside = upper || lower;
  }
  return Value::boolean(some);
}

Value zfill(Run& run, const Value& value, const Bound& given) {
  const string& text = value.str();
  const std::size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  const Value digits = run.text(text.substr(sign));
  return run.text(text.substr(0, sign) + aligned(run, digits.str(), given.whole(0, 0) - std::int64_t(sign), '>', U'0'));
}

template <char align> Value filled(Run& run, const Value& value, const Bound& given) {
  const std::u32string fill = points_of(given.text(1, " "));
  if (fill.size() != 1) fail(given.callee() + " fills with one character");
  return run.text(aligned(run, value.str(), given.whole(0, 0), align, fill[0]));
}

Value format_braces(Run& run, const Value& value, const Bound& given) {
  return run.text(brace_formatted(run, value.str(), given.all()));
}

}  // namespace

std::string replaced(Run& run, const string& text, const string& old, const string& by, std::int64_t most) {
  run.step(std::int64_t(text.size() * std::max<std::size_t>(old.size(), 1) / 1024));
  string out;
  std::size_t begin = 0;
  for (std::size_t at = 0; most != 0 && at <= text.size(); --most) {
    const std::size_t found = text.find(old, at);
    if (found == string::npos) break;
    run.take(std::int64_t(by.size()));
    // Nothing is found before each character, and at the end.
    const std::size_t next = old.empty() && found < text.size() ? length_of_point(text, found) : old.size();
    out.append(text, begin, found - begin).append(by);
    begin = found + old.size();
    at = old.empty() ? found + std::max<std::size_t>(next, 1) : begin;
  }
  return begin < text.size() ? out.append(text, begin) : out;
}

const std::vector<Builtin>& text_methods() {
  static const std::vector<Builtin> kMethods = {
      {"strip", "/chars", 0, strip<true, true>},
      {"lstrip", "/chars", 0, strip<true, false>},
      {"rstrip", "/chars", 0, strip<false, true>},
      {"split", "sep maxsplit", 0, split<false>},
      {"rsplit", "sep maxsplit", 0, split<true>},
      {"splitlines", "keepends", 0, splitlines},
      {"partition", "/sep", 1, partition<false>},
      {"rpartition", "/sep", 1, partition<true>},
      {"startswith", "/prefix /start /end", 1, touches<false>},
      {"endswith", "/suffix /start /end", 1, touches<true>},
      {"replace", "/old /new /count", 2, replace_all},
      {"upper", "", 0, cased<upper>},
      {"lower", "", 0, cased<lower>},
      {"title", "", 0, cased<titled>},
      {"capitalize", "", 0, cased<capitalized>},
      {"swapcase", "", 0, cased<swapped>},
      {"find", "/sub /start /end", 1, find<false, false>},
      {"rfind", "/sub /start /end", 1, find<true, false>},
      {"index", "/sub /start /end", 1, find<false, true>},
      {"rindex", "/sub /start /end", 1, find<true, true>},
      {"count", "/sub /start /end", 1, count},
      {"join", "/iterable", 1, join_texts},
      {"format", "*", 0, format_braces},
      {"removeprefix", "/prefix", 1, remove<false>},
      {"removesuffix", "/suffix", 1, remove<true>},
      {"isalnum", "", 0, all_are<is_alphanumeric>},
      {"isalpha", "", 0, all_are<is_letter>},
      {"isdecimal", "", 0, all_are<is_decimal>},
      {"isdigit", "", 0, all_are<is_digit>},
      {"isspace", "", 0, all_are<is_space>},
      {"islower", "", 0, has_case<is_lower, is_upper>},
      {"isupper", "", 0, has_case<is_upper, is_lower>},
      {"istitle", "", 0, is_titled},
      {"zfill", "/width", 1, zfill},
      {"center", "/width /fillchar", 1, filled<'c'>},
      {"ljust", "/width /fillchar", 1, filled<'<'>},
      {"rjust", "/width /fillchar", 1, filled<'>'>},
      {"isascii", "", 0, [](Run&, const Value& value, const Bound&) {
         return Value::boolean(std::ranges::all_of(points_of(value.str()), is_ascii));
       }}};
  return kMethods;
}

}  // namespace foretoken::jinja
