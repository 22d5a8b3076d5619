// The only exception type of the project. Its message states in one sentence what went wrong, where, and what to do
// about it. Thrown for what a user or a machine can cause; programming errors are asserts. This module depends on
// nothing else.
#pragma once
#include <stdexcept>
#include <string>

namespace foretoken {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& sentence) : std::runtime_error(sentence) {}
};

}  // namespace foretoken
