// Shapes of draft trees that were published with weights, by their names. This module must not know who grows them.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace foretoken {

std::vector<std::string> published_trees();  // the names
// One path of ranks for each node below the root, as TreeShape::read takes them. An unknown name is an Error that lists
// the known ones.
nlohmann::json published_tree(const std::string& name);

}  // namespace foretoken
