// Text that a terminal shows and does not obey. This module must not know where the text comes from.
#pragma once
#include <string>
#include <string_view>

namespace foretoken {

// A value as people may see it: what a terminal would obey (control characters, marks that reverse the direction of
// text) and bytes that are no UTF-8 become \u001b and \xff, as JSON and C write them. Characters of `kept` stay.
std::string printable(std::string_view text, std::string_view kept = "");

}  // namespace foretoken
