// Names that are near to what was meant, and text that a terminal may be given.
#include <gtest/gtest.h>

#include "framework/text/known_names.h"
#include "framework/text/printable.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

TEST(KnownNames, TheNearestIsSuggested) {
  const std::vector<std::string> known = {"length", "nodes", "depth", "temperature"};
  EXPECT_EQ(nearest("lenght", known), "length") << "two letters";
  EXPECT_EQ(nearest("node", known), "nodes") << "one is missing";
  EXPECT_EQ(nearest("nnodes", known), "nodes") << "one too many";
  EXPECT_EQ(nearest("nodez", known), "nodes") << "another letter";
  EXPECT_EQ(nearest("depth", known), "depth");
  EXPECT_EQ(nearest("dpt", known), "depth") << "two of a short word";
  EXPECT_EQ(nearest("dp", known), "") << "three are too many for it";
  EXPECT_EQ(nearest("tmpratur", known), "") << "and for eight letters";
  EXPECT_EQ(nearest("tempratur", known), "temperature");
  EXPECT_EQ(nearest("tmperatre", known), "temperature") << "a third of nine letters";
  EXPECT_EQ(nearest("ab", {"cb", "ad"}), "cb") << "the first of equals";
  EXPECT_EQ(nearest("abc", {"xbz", "abd"}), "abd") << "the nearer one";
  EXPECT_EQ(nearest("", {"ab"}), "ab");
  EXPECT_EQ(nearest("ab", {""}), "");
}

TEST(KnownNames, AreListedWhereOneIsUnknown) {
  EXPECT_EQ(listed({}), "");
  EXPECT_EQ(listed({"a", "b"}), "a, b");
  EXPECT_EQ(suggestion("abd", {"abc"}), " (did you mean 'abc'?)");
  EXPECT_EQ(suggestion("xyz", {"abc"}), "");
  EXPECT_EQ(sentence_of([] { unknown_name("thing", "abd", {"abc", "q"}); }),
            "unknown thing 'abd' (did you mean 'abc'?); known: abc, q");
  EXPECT_EQ(sentence_of([] { expect_option("thing 't'", "abc", {"abc"}); }), "");
  EXPECT_EQ(sentence_of([] { expect_option("thing 't'", "xyz", {"abc", "q"}); }),
            "thing 't' has no option 'xyz'; its options: abc, q");
}

TEST(Printable, WhatATerminalObeysIsEscaped) {
  EXPECT_EQ(printable("plain \xc3\xa9 ~"), "plain \xc3\xa9 ~");
  EXPECT_EQ(printable(std::string_view("\0\x1f\x7f", 3)), "\\u0000\\u001f\\u007f");
  EXPECT_EQ(printable("\xc2\x80\xc2\x9f\xc2\xa0"), "\\u0080\\u009f\xc2\xa0");
  EXPECT_EQ(printable("\xe2\x80\xa7\xe2\x80\xa8\xe2\x80\xae\xe2\x80\xaf"), "\xe2\x80\xa7\\u2028\\u202e\xe2\x80\xaf");
  EXPECT_EQ(printable("\xe2\x81\xa5\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa"), "\xe2\x81\xa5\\u2066\\u2069\xe2\x81\xaa");
  EXPECT_EQ(printable("a\nb\tc", "\n"), "a\nb\\u0009c");
  EXPECT_EQ(printable("a\xff z\xe2\x82"), "a\\xff z\\xe2\\x82");
}

}  // namespace
}  // namespace foretoken::test
