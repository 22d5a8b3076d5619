#include "experiments/report/date.h"

#include <chrono>

namespace foretoken {
namespace {

// The number in `text`, or -1 where it is not digits alone.
int number(std::string_view text) {
  int value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return -1;
    value = 10 * value + (c - '0');
  }
  return value;
}

bool is_day(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  const int year = number(text.substr(0, 4)), month = number(text.substr(5, 2)), day = number(text.substr(8, 2));
  return year >= 0 && month >= 0 && day >= 0 &&
         std::chrono::year_month_day(std::chrono::year(year), std::chrono::month(unsigned(month)),
                                     std::chrono::day(unsigned(day)))
             .ok();
}

// "T08:00:00Z"; a second may be a leap second.
bool is_time(std::string_view text) {
  if (text.size() != 10 || text[0] != 'T' || text[3] != ':' || text[6] != ':' || text[9] != 'Z') return false;
  const int hour = number(text.substr(1, 2)), minute = number(text.substr(4, 2)), second = number(text.substr(7, 2));
  return hour >= 0 && hour < 24 && minute >= 0 && minute < 60 && second >= 0 && second <= 60;
}

}  // namespace

bool is_date(std::string_view text) {
  return is_day(text.substr(0, 10)) && (text.size() == 10 || is_time(text.substr(10)));
}

}  // namespace foretoken
