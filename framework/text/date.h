// A day, and its formats. This module must not know what the day is for.
#pragma once
#include <string>
#include <string_view>

namespace foretoken {

struct Date {
  int year = 2024, month = 7, day = 26;

  // "YYYY-MM-DD"; what is no day of the calendar is an Error that begins with `what`.
  static Date parse(std::string_view text, const std::string& what);
  // C's strftime of the day at 00:00:00 in English; a code that is not known is an Error.
  std::string format(std::string_view codes) const;
};

}  // namespace foretoken
