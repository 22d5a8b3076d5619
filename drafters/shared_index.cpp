#include "drafters/shared_index.h"

#include "framework/model/model.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {

bool shares_index(const nlohmann::json& options, const std::string& drafter) {
  const std::string index = options.at("index").get<std::string>();
  if (index != "request" && index != "shared")
    unknown_name("index of the drafter '" + drafter + "',", index, {"request", "shared"});
  return index == "shared";
}

std::string key_of_index(const std::string& what, const ModelInfo& target) {
  return what + " of '" + target.name + "', vocabulary " + std::to_string(target.vocabulary);
}

void expect_shared_to_keep(const nlohmann::json& options, const std::string& drafter) {
  if (options.at("keep").get<bool>() && !shares_index(options, drafter))
    throw Error("the drafter '" + drafter +
                "' keeps what all requests share, which its \"index\": \"request\" does not have; leave out 'keep', or "
                "choose \"index\": \"shared\"");
}

}  // namespace foretoken
