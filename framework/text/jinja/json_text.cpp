// json.dumps() as the filter `tojson` of Transformers calls it.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "framework/text/jinja/builtins.h"
#include "framework/text/jinja/unicode.h"
#include "framework/text/utf8.h"

namespace foretoken::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Run& run, const Bound& how) : run_(run) {
    ascii_ = how.flag(0, false);
    if (const Value* indent = how.at(1); indent && !indent->is(Kind::none)) {
      indented_ = true;
      if (indent->is(Kind::string))
        indent_ = indent->str();
      else
        indent_ = std::string(std::size_t(std::clamp<std::int64_t>(how.whole(1, 0), 0, 1000)), ' ');
      comma_ = ",";
    }
    if (const Value* separators = how.at(2); separators && !separators->is(Kind::none)) {
      const Items two = items_of(run, *separators);
      if (two.size() != 2 || !two[0].is_text() || !two[1].is_text()) fail("tojson needs two texts as 'separators'");
      comma_ = two[0].str(), colon_ = two[1].str();
    }
    sorted_ = how.flag(3, false);
  }

  std::string text(const Value& value) {
    write(value, 0);
    return std::move(out_);
  }

 private:
  void put(const std::string& text) {
    run_.take(std::int64_t(text.size()));
    out_ += text;
  }
  void line(int level) {
    if (!indented_) return;
    put("\n");
    for (int i = 0; i < level; ++i) put(indent_);
  }
  void write(const Value& value, int level);
  void write_text(const std::string& text);
  void write_map(const Map& map, int level);

  Run& run_;
  bool ascii_ = false, indented_ = false, sorted_ = false;
  std::string indent_, comma_ = ", ", colon_ = ": ", out_;
};

void append_unit(std::string& out, unsigned unit) {
  char code[8];
  std::snprintf(code, sizeof code, "\\u%04x", unit & 0xffff);
  out += code;
}

void JsonWriter::write_text(const std::string& text) {
  static constexpr std::string_view kControls = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
  std::string out = "\"";
  for (const char32_t c : points_of(text)) {
    const auto control = c < 0x80 ? kControls.find(char(c)) : kControls.npos;
    if (control != kControls.npos) {
      out += '\\', out += kLetters[control];
    } else if (c < 0x20 || (ascii_ && c > 0x7e && c < 0x10000)) {
      if (c == 0x7f)
        out += char(c);
      else
        append_unit(out, unsigned(c));
    } else if (ascii_ && c >= 0x10000) {
      append_unit(out, 0xd800 + unsigned((c - 0x10000) >> 10));
      append_unit(out, 0xdc00 + unsigned((c - 0x10000) & 0x3ff));
    } else {
      append_utf8(out, c);
    }
  }
  put(out + "\"");
}

std::string scalar(const Value& value) {
  if (value.is(Kind::none)) return "null";
  if (value.is(Kind::boolean)) return value.whole() ? "true" : "false";
  if (value.is(Kind::integer)) return std::to_string(value.whole());
  if (std::isnan(value.number())) return "NaN";
  if (std::isinf(value.number())) return value.number() < 0 ? "-Infinity" : "Infinity";
  return repr_of_real(value.number());
}

void JsonWriter::write_map(const Map& map, int level) {
  std::vector<std::size_t> order(map.entries.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (sorted_)
    std::ranges::stable_sort(
        order, [&](std::size_t a, std::size_t b) { return less(run_, map.entries[a].first, map.entries[b].first); });
  put("{");
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& [name, value] = map.entries[order[i]];
    if (i > 0) put(comma_);
    line(level + 1);
    if (name.is_text())
      write_text(name.str());
    else if (name.is_number() || name.is(Kind::none))
      write_text(scalar(name));
    else
      fail("a name in JSON cannot be of type '" + type_of(name) + "'");
    put(colon_);
    write(value, level + 1);
  }
  if (!order.empty()) line(level);
  put("}");
}

void JsonWriter::write(const Value& value, int level) {
  const Run::Deeper deeper(run_);
  run_.step();
  if (value.is(Kind::undefined)) fail(value.reason() + ", so it has no JSON");
  if (value.is_text()) return write_text(value.str());
  if (value.is_number() || value.is(Kind::none)) return put(scalar(value));
  if (value.is(Kind::dict)) return write_map(value.as<Map>(), level);
  if (!value.is_items()) fail("a value of type '" + type_of(value) + "' has no JSON");
  put("[");
  for (std::size_t i = 0; i < value.items().size(); ++i) {
    if (i > 0) put(comma_);
    line(level + 1);
    write(value.items()[i], level + 1);
  }
  if (!value.items().empty()) line(level);
  put("]");
}

}  // namespace

std::string json_of(Run& run, const Value& value, const Bound& how) { return JsonWriter(run, how).text(value); }

}  // namespace foretoken::jinja
