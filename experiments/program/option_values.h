// Checks of option values beyond those of CLI11. This module must not know what an option means.
#pragma once
#include <CLI/CLI.hpp>

namespace foretoken {

// Makes every option of every subcommand refuse an empty value, which CLI11 reads as 0.
void refuse_empty_values(CLI::App& app);

// A number from `least` to `most`, and not NaN.
CLI::Validator number_within(double least, double most);

}  // namespace foretoken
