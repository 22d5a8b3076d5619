// Files of lengths and of costs say with which target and drafter they were measured. This module compares that with a
// run; it must not know what else such a file holds.
#pragma once
#include <string>

#include <nlohmann/json.hpp>

namespace foretoken {

// The members "target" and "drafter" of such a file: those of a complete run.
nlohmann::json pair_of(const nlohmann::json& run);

// An Error where `document`, read from `file`, names another target or drafter than the run. What it does not name may
// be anything, as all of what is no object, and of paths the last parts are compared, since they are written from
// different folders.
void expect_pair(const nlohmann::json& document, const nlohmann::json& run, const std::string& file);

}  // namespace foretoken
