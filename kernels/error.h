// The one exception of the project: what went wrong, where, and what to do about it, in one sentence.
// Thrown for whatever a user or a machine can cause; programming mistakes are asserts. This module must not know
// anything else.
#pragma once
#include <stdexcept>
#include <string>

namespace foretoken {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& sentence) : std::runtime_error(sentence) {}
};

}  // namespace foretoken
