#include "experiments/program/option_values.h"

#include <cstdio>

namespace foretoken {

void refuse_empty_values(CLI::App& app) {
  const CLI::Validator something(
      [](std::string& value) {
        return value.empty() ? std::string("the value is empty; give one, or leave the option out") : "";
      },
      "");
  for (CLI::App* const command : app.get_subcommands(nullptr))
    for (CLI::Option* const option : command->get_options(nullptr))
      if (option->get_items_expected_max() > 0) option->transform(something);  // before any other check
}

CLI::Validator number_within(double least, double most) {
  char range[80];
  std::snprintf(range, sizeof range, "a number from %.10g to %.10g", least, most);
  const auto check = [=, wanted = std::string(range)](std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) return "";
    return "'" + text + "' is not in range; give " + wanted;
  };
  return {check, range};
}

}  // namespace foretoken
