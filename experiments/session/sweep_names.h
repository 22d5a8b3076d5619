// Names that a sweep's document gives what it uses (models, files of prompts), and their places in it. This module must
// not know what they stand for.
#pragma once
#include <set>
#include <string>

#include <nlohmann/json.hpp>

namespace foretoken {

// `value` with each text "@NAME" in it, however deep, replaced by what `names` has under that name; as it is where
// there are none. A name that they lack is an Error that lists them. Adds the names that it met to `used`.
nlohmann::json with_names(const nlohmann::json& value, const nlohmann::json& names, const std::string& where,
                          std::set<std::string>* used = nullptr);

}  // namespace foretoken
