// Templates as Python's jinja2 renders them under the settings of Transformers (tests/golden/jinja_golden.py), what is
// refused, and the bounds of a rendering.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "framework/text/jinja/template.h"
#include "framework/text/json_file.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::ordered_json;

const std::filesystem::path kJinjaChats = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests" / "data" / "chat";

std::string jinja_text(const std::string& source, const ordered_json& variables = ordered_json::object(),
                       const jinja::Context& context = {}) {
  return jinja::Template(source, "chat.jinja").render(variables, context);
}

std::string jinja_refusal(const std::string& source, const jinja::Context& context = {}) {
  return sentence_of([&] { jinja_text(source, ordered_json::object(), context); });
}

// Where Python raises, so do we.
void expect_same(const std::string& source, const ordered_json& variables, const ordered_json& expected) {
  if (expected.contains("error"))
    EXPECT_THROW(jinja_text(source, variables), Error) << source << "\nraises " << expected["error"];
  else
    EXPECT_EQ(jinja_text(source, variables), expected["text"].get<std::string>()) << source;
}

TEST(Jinja, RendersEveryConstructAsPythonDoes) {
  const ordered_json golden = ordered_json::parse(read_file(kJinjaChats / "jinja.golden.json"));
  for (const ordered_json& one : golden["expressions"]) expect_same(one["template"], golden["values"], one);
  EXPECT_GT(golden["expressions"].size(), 600u);
}

TEST(Jinja, RendersChatTemplatesAsPythonDoes) {
  const ordered_json golden = ordered_json::parse(read_file(kJinjaChats / "jinja.golden.json"));
  for (const ordered_json& one : golden["chats"]) {
    SCOPED_TRACE(one["template"].get<std::string>() + ", " + one["conversation"].get<std::string>());
    expect_same(read_file(kJinjaChats / one["template"].get<std::string>()), one["variables"], one);
  }
  EXPECT_GT(golden["chats"].size(), 100u);
}

TEST(Jinja, WhatIsNotKnownIsRefusedByNameAndLine) {
  for (const char* tag :
       {"include 'x'", "import 'x' as y", "from 'x' import y", "extends 'x'", "block x", "do x", "autoescape true"})
    EXPECT_TRUE(
        says(jinja_refusal("a\n{% " + std::string(tag) + " %}"), "chat.jinja, line 2: the tag '", "is not known here"))
        << tag;
  EXPECT_TRUE(
      says(jinja_refusal("\n\n{{ 'a' | wordwrap }}"), "line 3: unknown filter 'wordwrap'", "known: abs, batch"));
  EXPECT_TRUE(says(jinja_refusal("{{ 'a' is palindrome }}"), "line 1: unknown test 'palindrome'", "known: "));
  EXPECT_TRUE(
      says(jinja_refusal("{{ 'a'.encode() }}"), "the attribute 'encode' of a value of type 'str' is not known here"));
  EXPECT_TRUE(says(jinja_refusal("{{ {}.fromkeys }}"), "the attribute 'fromkeys'"));
  EXPECT_TRUE(says(jinja_refusal("{{ cycler(1) }}"), "the function 'cycler' is not known here"));
  EXPECT_TRUE(says(jinja_refusal("{{ '\\N{BULLET}' }}"), "line 1", "by the name of a character"));
  EXPECT_TRUE(says(jinja_refusal("{{ 2 ** 63 }}"), "does not fit into 64 bits"));
  EXPECT_TRUE(says(jinja_refusal("{{ range }}"), "has no text that is the same everywhere"));
  EXPECT_TRUE(says(jinja_refusal("{{ [1]|map('string') }}"), "make it a list"));
  EXPECT_TRUE(
      says(jinja_refusal("{{ ('a'|safe) + '<' }}"), "'+' cannot be applied to values of type 'Markup' and 'str'"));
  EXPECT_TRUE(says(jinja_refusal("{{ strftime_now('%Q') }}"), "a code that is not known here, '%Q'"));
  EXPECT_EQ(jinja_text("{% if false %}{{ 1 | wordwrap }}{% endif %}a"), "a") << "what is not reached is not needed";
}

TEST(Jinja, AnErrorNamesTheLineWhereItHappens) {
  EXPECT_TRUE(says(jinja_refusal("a\n{{ x.y }}"), "chat.jinja, line 2: 'x' is undefined"));
  EXPECT_TRUE(
      says(jinja_refusal("{% macro m(a) %}\n\n{{ a.b.c }}{% endmacro %}\n{{ m({}) }}"), "line 3: a value of type"));
  EXPECT_TRUE(
      says(jinja_refusal("\n{{ raise_exception('no system') }}"), "line 2: the template refuses this: no system"));
  EXPECT_TRUE(says(jinja_refusal("a\n{% if x %}\nb"), "line 3: the template ends, but 'endif' must come"));
  EXPECT_TRUE(says(jinja_refusal("\n{{ 1 + }}"), "line 2: expected an expression, not '}}'"));
}

TEST(Jinja, TheDateIsTheRuns) {
  const jinja::Context context{.date = Date::parse("2025-02-03", "the date")};
  EXPECT_EQ(jinja_text("{{ strftime_now('%d %b %Y, %A, %j, %-d/%-m') }}", ordered_json::object(), context),
            "03 Feb 2025, Monday, 034, 3/2");
  EXPECT_EQ(jinja_text("{{ strftime_now('%d %b %Y') }}"), "26 Jul 2024");
  for (const char* wrong : {"2025-02-29", "2025-13-01", "25-01-01", "2025-1-01", "2025-01-01x", "", "0000-01-01"})
    EXPECT_TRUE(says(sentence_of([&] { Date::parse(wrong, "'/workload/date'"); }), "'/workload/date' is '",
                     "a day of the calendar"))
        << wrong;
}

// Whoever wrote the template, a rendering ends soon and in little memory.
TEST(Jinja, AHostileTemplateEndsWithAnError) {
  const auto nested = [](const std::string& open, const std::string& inner, const std::string& close, int n) {
    std::string source;
    for (int i = 0; i < n; ++i) source += open;
    source += inner;
    for (int i = 0; i < n; ++i) source += close;
    return source;
  };
  const jinja::Context small{.steps = 300'000, .bytes = 64 << 20, .output = 1 << 20};
  for (const std::string& source : std::vector<std::string>{
           "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
           "{{ range(99999999) | list }}",
           "{{ 'a' * 99999999999 }}",
           "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
           "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
           "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}",
           "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
           "{{ '%99999999d' % 1 }}",
           "{{ '{:99999999}'.format(1) }}",
           "{{ 'a'.center(9999999999) }}",
           "{{ ('a' * 300000).find('a' * 100000 + 'b') }}",
           "{{ ('a' * 99999).replace('', 'b' * 99999) }}",
           "{{ [1] | batch(99999999999, 0) | list }}",
           "{{ [[1]] | tojson(indent=' ' * 99999999) }}",
           "{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}",
           "{{ " + nested("(", "1", ")", 5000) + " }}",
           "{{ " + nested("[", "", "]", 5000) + " }}",
           "{{ " + nested("-", "1", "", 5000) + " }}",
           "{{ " + nested("not ", "1", "", 5000) + " }}",
           "{{ 1" + nested("+1", "", "", 5000) + " }}",
           "{{ x" + nested(".x", "", "", 5000) + " }}",
           nested("{% if 1 %}", "", "{% endif %}", 5000),
           "{% if 1 %}" + nested("{% elif 1 %}", "", "", 5000) + "{% endif %}",
           std::string((1 << 20) + 1, 'a')})
    EXPECT_GT(jinja_refusal(source, small).size(), 10u) << source.substr(0, 80);
}

TEST(Jinja, CirclesOfMacrosAndNamespacesAreTakenApart) {
  EXPECT_EQ(jinja_text("{% set ns = namespace() %}{% macro m() %}{{ ns.m is defined }}{% endmacro %}{% set ns.m = m %}"
                       "{% set ns.ns = ns %}{{ m() }}"),
            "True");
}

}  // namespace
}  // namespace foretoken::test
