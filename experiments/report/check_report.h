// What `foretoken check` found, for a terminal and for an appendix. Knows what a report holds, not how it came about.
#pragma once
#include <string>

#include <nlohmann/json.hpp>

#include "experiments/conformance/check.h"

namespace foretoken {

// What was asked, so that somebody else can ask it again.
struct Question {
  std::string command;
  std::vector<PluginFile> plugins{};
};

// What was asked where and when, a table of the laws (of every combination too with `details`), what each law says, and
// a sentence for each that is broken or was not shown.
std::string check_text(const conformance::CheckReport& report, const Question& question, bool details, int width);
// "program", "machine", "command", "plugins", "laws" with statements and findings, "broken" with sentences, "holds".
nlohmann::ordered_json check_json(const conformance::CheckReport& report, const Question& question);

}  // namespace foretoken
