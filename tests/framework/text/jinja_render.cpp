// Renders templates for tests/framework/jinja_test.py: each line of the input is {"template", "variables"}, and each of
// the output {"text"} or {"error"}.
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "framework/text/jinja/template.h"
#include "kernels/error.h"

int main() {
  using nlohmann::ordered_json;
  for (std::string line; std::getline(std::cin, line);) {
    const ordered_json given = ordered_json::parse(line);
    ordered_json answer;
    try {
      const foretoken::jinja::Template made(given.at("template").get<std::string>(), "t");
      answer["text"] = made.render(given.at("variables"));
    } catch (const foretoken::Error& e) {
      answer["error"] = e.what();
    }
    std::cout << answer.dump() << "\n" << std::flush;
  }
}
