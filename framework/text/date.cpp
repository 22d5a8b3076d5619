#include "framework/text/date.h"

#include <array>
#include <chrono>
#include <cstdio>

#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr std::array kMonths = {"January", "February", "March",     "April",   "May",      "June",
                                "July",    "August",   "September", "October", "November", "December"};
constexpr std::array kDays = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

std::string padded(int number, int width, bool bare) {
  std::string digits = std::to_string(number);
  return bare || int(digits.size()) >= width ? digits : std::string(width - digits.size(), '0') + digits;
}

struct Day {
  std::chrono::year_month_day date;

  int of_week() const { return int(std::chrono::weekday(std::chrono::sys_days(date)).c_encoding()); }
  int of_year() const {
    const std::chrono::year_month_day first(date.year(), std::chrono::January, std::chrono::day(1));
    return int((std::chrono::sys_days(date) - std::chrono::sys_days(first)).count()) + 1;
  }
};

std::string formatted(const Day& day, char code, bool bare) {
  const int year = int(day.date.year()), month = int(unsigned(day.date.month())),
            number = int(unsigned(day.date.day()));
  switch (code) {
    case 'a':
      return std::string(kDays[day.of_week()]).substr(0, 3);
    case 'A':
      return kDays[day.of_week()];
    case 'b':
    case 'h':
      return std::string(kMonths[month - 1]).substr(0, 3);
    case 'B':
      return kMonths[month - 1];
    case 'd':
      return padded(number, 2, bare);
    case 'e':
      return bare || number > 9 ? std::to_string(number) : " " + std::to_string(number);
    case 'm':
      return padded(month, 2, bare);
    case 'y':
      return padded(year % 100, 2, bare);
    case 'Y':
      return std::to_string(year);
    case 'j':
      return padded(day.of_year(), 3, bare);
    case 'u':
      return std::to_string(day.of_week() == 0 ? 7 : day.of_week());
    case 'w':
      return std::to_string(day.of_week());
    case 'H':
    case 'M':
    case 'S':
      return padded(0, 2, bare);
    case 'I':
      return "12";
    case 'p':
      return "AM";
    case 'f':
      return "000000";
    case 'F':
      return formatted(day, 'Y', false) + "-" + formatted(day, 'm', false) + "-" + formatted(day, 'd', false);
    case 'D':
      return formatted(day, 'm', false) + "/" + formatted(day, 'd', false) + "/" + formatted(day, 'y', false);
    case 'T':
      return "00:00:00";
    case 'R':
      return "00:00";
    case '%':
      return "%";
    case 'n':
      return "\n";
    case 't':
      return "\t";
    default:
      return "";
  }
}

}  // namespace

Date Date::parse(std::string_view text, const std::string& what) {
  const std::string own(text);
  int year = 0, month = 0, day = 0, end = -1;
  const bool shaped = own.size() == 10 && own.find_first_not_of("0123456789-") == own.npos &&
                      std::sscanf(own.c_str(), "%4d-%2d-%2d%n", &year, &month, &day, &end) == 3 && end == 10;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(unsigned(month)),
                                         std::chrono::day(unsigned(day))};
  if (!shaped || year < 1000 || !date.ok())
    throw Error(what + " is '" + own + "', but must be a day of the calendar, as 2024-07-26");
  return {year, month, day};
}

std::string Date::format(std::string_view codes) const {
  const Day today{std::chrono::year(year) / month / day};
  std::string text;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (codes[i] != '%') {
      text += codes[i];
      continue;
    }
    const bool bare = i + 1 < codes.size() && codes[i + 1] == '-';
    const std::size_t at = i + (bare ? 2 : 1);
    const std::string written = at < codes.size() ? formatted(today, codes[at], bare) : "";
    if (written.empty())
      throw Error("the date format '" + std::string(codes) + "' has a code that is not known here, '" +
                  std::string(codes.substr(i, at + 1 - i)) + "'; known: %a %A %b %B %d %e %m %y %Y %j %H %I %M %S %p");
    text += written;
    i = at;
  }
  return text;
}

}  // namespace foretoken
