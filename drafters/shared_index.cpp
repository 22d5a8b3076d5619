#include "drafters/shared_index.h"

#include "framework/text/known_names.h"

namespace foretoken {

bool shares_index(const nlohmann::json& options, const std::string& drafter) {
  const std::string index = options.at("index").get<std::string>();
  if (index != "request" && index != "shared")
    unknown_name("index of the drafter '" + drafter + "',", index, {"request", "shared"});
  return index == "shared";
}

}  // namespace foretoken
