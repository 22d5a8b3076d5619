// Filters of texts.
#include <algorithm>

#include "framework/text/jinja/builtins.h"
#include "framework/text/jinja/strings.h"
#include "framework/text/jinja/unicode.h"
#include "framework/text/utf8.h"

namespace foretoken::jinja {
namespace {

// What a filter makes of a safe string is safe too.
Value like(Run& run, const Value& value, std::string text) {
  return run.text(std::move(text), value.is(Kind::markup) ? Kind::markup : Kind::string);
}

template <std::string (*change)(std::string_view)> Value changed(Run& run, const Value& value, const Bound&) {
  return like(run, value, change(str_of(run, value)));
}

Value trim(Run& run, const Value& value, const Bound& given) {
  const std::string text = str_of(run, value);
  const bool all = !given.at(0) || given.at(0)->is(Kind::none);
  const std::u32string chars = all ? U"" : points_of(given.text(0, ""));
  run.step(std::int64_t(chars.size() / 16 * (1 + text.size() / 64)));
  return like(run, value, std::string(stripped(text, all ? nullptr : &chars, true, true)));
}

Value replace(Run& run, const Value& value, const Bound& given) {
  return run.text(replaced(run, str_of(run, value), str_of(run, *given.at(0)), str_of(run, *given.at(1)),
                           given.whole_or_none(2, -1)));
}

Value center(Run& run, const Value& value, const Bound& given) {
  return like(run, value, aligned(run, str_of(run, value), given.whole(0, 80), 'c'));
}

Value text_itself(Run& run, const Value& value, const Bound&) {
  return value.is_text() ? value : run.text(str_of(run, value));
}

Value safe(Run& run, const Value& value, const Bound&) { return run.text(str_of(run, value), Kind::markup); }

Value escape(Run& run, const Value& value, const Bound&) {
  if (value.is(Kind::markup)) return value;
  std::string out;
  for (const char c : str_of(run, value))
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '\'')
      out += "&#39;";
    else if (c == '"')
      out += "&#34;";
    else
      out += c;
  return run.text(std::move(out), Kind::markup);
}

Value indent(Run& run, const Value& value, const Bound& given) {
  if (value.is(Kind::undefined)) fail(value.reason());
  if (!value.is(Kind::string)) fail("the filter 'indent' needs a string, not a value of type '" + type_of(value) + "'");
  std::string margin;
  if (given.at(0) && given.at(0)->is(Kind::string)) {
    margin = given.text(0, "");
  } else {
    const std::int64_t width = std::max<std::int64_t>(given.whole(0, 4), 0);
    run.take(width);
    margin.assign(std::size_t(width), ' ');
  }
  const bool first = given.flag(1, false), blank = given.flag(2, false);
  const std::vector<std::string> lines = lines_of(value.str() + "\n", false);
  std::string out = first ? margin : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    run.take(std::int64_t(lines[i].size() + margin.size()));
    if (i > 0) out += "\n" + (blank || !lines[i].empty() ? margin : "");
    out += lines[i];
  }
  return run.text(std::move(out));
}

Value truncate(Run& run, const Value& value, const Bound& given) {
  const std::int64_t length = given.whole(0, 255), leeway = given.whole_or_none(3, 5);
  const std::u32string end = points_of(given.text(2, "..."));
  if (length < std::int64_t(end.size()) || leeway < 0) fail("the filter 'truncate' gets a length below its end's");
  if (length_of(run, value) <= length + leeway) return value;
  if (!value.is(Kind::string)) fail("the filter 'truncate' needs a string");
  std::u32string kept = points_of(value.str()).substr(0, std::size_t(length) - end.size());
  if (!given.flag(1, false)) kept = kept.substr(0, std::min(kept.rfind(U' '), kept.size()));
  return run.text(utf8_of(kept + end));
}

Value wordcount(Run& run, const Value& value, const Bound&) {
  std::int64_t words = 0;
  bool inside = false;
  for (const char32_t c : points_of(str_of(run, value))) {
    words += is_word(c) && !inside;
    inside = is_word(c);
  }
  return Value::integer(words);
}

std::string quoted(std::string_view text, bool query) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const unsigned char c : text)
    if ((c < 0x80 && std::isalnum(c)) || c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !query))
      out += char(c);
    else if (c == ' ' && query)
      out += '+';
    else
      out += '%', out += kDigits[c >> 4], out += kDigits[c & 15];
  return out;
}

Value urlencode(Run& run, const Value& value, const Bound&) {
  if (value.is_text() || !iterable(value)) return run.text(quoted(str_of(run, value), false));
  std::string out;
  const Value pairs = value.is(Kind::dict) ? called(run, *method_of(run, value, "items"), {}) : value;
  for (const Value& pair : items_of(run, pairs)) {
    const Items two = items_of(run, pair);
    if (two.size() != 2) fail("the filter 'urlencode' needs a text, a dict or pairs");
    out += (out.empty() ? "" : "&") + quoted(str_of(run, two[0]), true) + "=" + quoted(str_of(run, two[1]), true);
  }
  return run.text(std::move(out));
}

// Words begin behind these, and keep what is not a letter as it is.
Value title(Run& run, const Value& value, const Bound&) {
  std::u32string part;
  std::string out;
  const auto flush = [&] {
    if (!part.empty()) out += upper(utf8_of(part.substr(0, 1))) + lower(utf8_of(part.substr(1)));
    part.clear();
  };
  bool between = false;
  for (const char32_t c : points_of(str_of(run, value))) {
    const bool separates = c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
    if (separates != between) flush();
    between = separates;
    part += c;
  }
  flush();
  return like(run, value, std::move(out));
}

Value format(Run& run, const Value& value, const Bound& given) {
  if (value.is(Kind::markup)) fail("the filter 'format' of a safe string is not known here");
  const Arguments& all = given.all();
  if (!all.positional.empty() && !all.named.empty()) fail("the filter 'format' takes values or names, not both");
  Value arguments = run.tuple(all.positional);
  if (!all.named.empty()) {
    auto map = std::make_shared<Map>();
    for (const auto& [name, one] : all.named) map->set("s" + name, run.text(name), one);
    arguments = Value::of(Kind::dict, std::move(map));
  }
  return run.text(percent_formatted(run, str_of(run, value), arguments));
}

Value tojson(Run& run, const Value& value, const Bound& given) { return run.text(json_of(run, value, given)); }

}  // namespace

const std::vector<Builtin>& text_filters() {
  static const std::vector<Builtin> kFilters = {{"capitalize", "", 0, changed<capitalized>},
                                                {"center", "width", 0, center},
                                                {"e", "", 0, escape},
                                                {"escape", "", 0, escape},
                                                {"format", "*", 0, format},
                                                {"indent", "width first blank", 0, indent},
                                                {"lower", "", 0, changed<lower>},
                                                {"replace", "old new count", 2, replace},
                                                {"safe", "", 0, safe},
                                                {"string", "", 0, text_itself},
                                                {"title", "", 0, title},
                                                {"tojson", "ensure_ascii indent separators sort_keys", 0, tojson},
                                                {"trim", "chars", 0, trim},
                                                {"truncate", "length killwords end leeway", 0, truncate},
                                                {"upper", "", 0, changed<upper>},
                                                {"urlencode", "", 0, urlencode},
                                                {"wordcount", "", 0, wordcount}};
  return kFilters;
}

}  // namespace foretoken::jinja
