// What the values of options must be, beyond what CLI11 asks for. Knows CLI11, not what an option is for.
#pragma once
#include <CLI/CLI.hpp>

namespace foretoken {

// An empty value, which CLI11 takes for 0, is refused by every option of every subcommand.
void refuse_empty_values(CLI::App& app);

// A number from `least` to `most`; not a NaN, which no comparison refuses.
CLI::Validator number_within(double least, double most);

}  // namespace foretoken
