// The report of `foretoken check`, for a terminal and as JSON. This module must not know how laws are tested.
#pragma once
#include <string>

#include <nlohmann/json.hpp>

#include "experiments/conformance/check.h"

namespace foretoken {

// What was checked, so that it can be repeated.
struct Question {
  std::string command;
  std::vector<PluginFile> plugins{};
  std::vector<std::string> laws{};  // those that were named; empty: all. The text leaves the others out
};

// What was checked, where and when; a table of the laws (with `details` also of every combination); the statement of
// each law that concerns them; and a sentence for each that is broken or was not shown.
std::string check_text(const conformance::CheckReport& report, const Question& question, bool details, int width);
// "program", "machine", "command", "plugins", "laws" with statements and findings, "broken" with sentences, "holds".
nlohmann::ordered_json check_json(const conformance::CheckReport& report, const Question& question);

}  // namespace foretoken
