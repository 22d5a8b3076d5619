// Dates as results have them. This module must not know results.
#pragma once
#include <string_view>

namespace foretoken {

// Whether it is a day of the calendar, "2026-11-21", alone or with a time of UTC, "2026-11-21T08:00:00Z": such texts
// sort as time does.
bool is_date(std::string_view text);

}  // namespace foretoken
