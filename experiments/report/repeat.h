// The commands that repeat what a report shows. This module must not know figures.
#pragma once
#include <nlohmann/json.hpp>

#include "experiments/report/page.h"

namespace foretoken {

// The document of a sweep with exactly these runs; null where they are not all combinations of their axes, or of
// several programs or prompts. One run without axes is its own document.
nlohmann::json sweep_document(const std::vector<Summary>& runs);

// {"document": the sweep's or null, "lines": [{"text": a command, "meaning": what it does}]}, in the order in which
// they are given.
nlohmann::json repeating_commands(const View& view, const PageFiles& files);

}  // namespace foretoken
