// What `foretoken check` found, for a terminal and for an appendix. Knows what a report holds, not how it came about.
#pragma once
#include <string>

#include <nlohmann/json.hpp>

#include "experiments/conformance/check.h"

namespace foretoken {

// A table of the laws (of every combination too with `details`), what each law says, and a sentence for each that is broken.
std::string check_text(const conformance::CheckReport& report, bool details, int width);
// "program", "machine", "laws" with statements and findings, "broken" with sentences, "holds".
nlohmann::ordered_json check_json(const conformance::CheckReport& report, const std::string& command);

}  // namespace foretoken
