#include "tests/support/in_turn.h"

#include <cstdlib>
#include <functional>
#include <string_view>

#include "foretoken_version.h"

namespace foretoken::test {

bool every_scenario() { return std::getenv("FORETOKEN_EVERY_SCENARIO") != nullptr; }

std::size_t turn() {
  const char* given = std::getenv("FORETOKEN_TURN");
  return given ? std::strtoul(given, nullptr, 10) : std::hash<std::string_view>()(kCommit) % 1000003;
}

}  // namespace foretoken::test
