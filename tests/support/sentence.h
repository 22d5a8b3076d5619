// The messages of Errors, for tests of bad input.
#pragma once
#include <string>

#include <gtest/gtest.h>

#include "kernels/error.h"

namespace foretoken::test {

// The message of the Error that `body` throws; "" if it throws none.
template <class F> std::string sentence_of(F body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Whether the sentence contains all of the words.
template <class... Words>::testing::AssertionResult says(const std::string& sentence, const Words&... words) {
  for (const std::string& word : {std::string(words)...})
    if (sentence.find(word) == std::string::npos)
      return ::testing::AssertionFailure() << "\"" << sentence << "\" lacks \"" << word << "\"";
  return ::testing::AssertionSuccess();
}

}  // namespace foretoken::test
