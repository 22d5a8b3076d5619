#include "drafters/published_trees.h"

#include <map>
#include <sstream>

#include "framework/text/known_names.h"

namespace foretoken {
namespace {

// Node: number of its children. A node is the path of ranks, all below 10, from the root to it; those that are left out
// have none. Of Medusa's repository (medusa_choices), 63 nodes below the root each; Hydra has the first too.
const std::map<std::string, std::string>& all_trees() {
  static const std::map<std::string, std::string> kTrees{
      {"mc_sim_7b_63",
       "root:10 0:10 1:7 2:3 3:2 4:1 5:1 6:1 7:1 8:1 9:1 00:10 01:3 02:2 03:1 04:1 05:1 06:1 07:1 10:2 20:1 000:2"},
      {"vicuna_7b_stage2",
       "root:10 0:10 1:5 2:2 3:2 4:1 5:1 6:1 7:1 00:9 01:4 02:2 03:1 04:1 05:1 10:3 11:1 20:1 000:4 001:1 002:1 "
       "010:1"},
      {"vicuna_7b_stage1_ablation",
       "root:10 0:10 1:4 2:2 3:2 4:1 5:1 6:1 00:10 01:4 02:2 03:1 04:1 05:1 10:3 11:1 20:1 30:1 000:4 001:1 002:1 "
       "010:1"},
      {"vicuna_7b_stage1",
       "root:10 0:10 1:7 2:4 3:3 4:2 5:2 6:1 7:1 8:1 9:1 00:9 01:3 02:2 03:1 04:1 05:1 10:2 20:1 000:1"},
      {"vicuna_13b_stage2",
       "root:10 0:10 1:4 2:2 3:1 4:1 5:1 00:10 01:4 02:2 03:1 04:1 05:1 10:3 11:1 20:1 30:1 000:4 001:2 002:1 010:1 "
       "100:1"},
      {"vicuna_13b_stage1",
       "root:10 0:10 1:7 2:4 3:2 4:2 5:1 6:1 7:1 8:1 00:10 01:4 02:2 03:1 04:1 05:1 10:2 11:1 20:1 000:1"},
      {"vicuna_33b_stage2",
       "root:10 0:10 1:5 2:3 3:2 4:1 5:1 6:1 7:1 00:10 01:4 02:2 03:1 04:1 05:1 10:3 11:1 20:1 000:3 001:1 010:1"},
      {"vicuna_33b_stage1", "root:10 0:10 1:8 2:5 3:3 4:2 5:2 6:1 7:1 8:1 9:1 00:9 01:3 02:2 03:1 04:1 10:2 20:1"},
      {"zephyr_stage2",
       "root:10 0:10 1:6 2:4 3:2 4:2 5:1 6:1 7:1 00:10 01:4 02:2 03:1 04:1 05:1 10:2 11:1 20:1 000:2 001:1"},
      // EAGLE-1's, which its repository calls mc_sim_7b_63 too.
      {"eagle_25", "root:4 0:3 1:2 2:2 3:1 00:3 01:2 02:2 10:1 000:3 0000:2"},
      // Token Recycling's, which its repository calls version 2.2.2.
      {"recycling_80",
       "root:8 0:8 1:4 2:3 3:2 4:1 5:1 6:1 7:1 00:8 01:3 02:2 03:1 04:1 05:1 06:1 07:1 10:2 11:1 20:1 30:1 40:1 50:1 "
       "000:5 001:2 002:1 003:1 004:1 010:1 020:1 100:1 200:1 300:1 0000:3 0001:1 0002:1 0010:1 0100:1 1000:1 00000:2 "
       "00010:1"}};
  return kTrees;
}

}  // namespace

std::vector<std::string> published_trees() {
  std::vector<std::string> names;
  for (const auto& [name, nodes] : all_trees()) names.push_back(name);
  return names;
}

nlohmann::json published_tree(const std::string& name) {
  const auto tree = all_trees().find(name);
  if (tree == all_trees().end()) unknown_name("shape of a draft tree", name, published_trees());
  nlohmann::json paths = nlohmann::json::array();
  std::istringstream nodes(tree->second);
  for (std::string node; nodes >> node;) {
    const std::size_t colon = node.find(':');
    nlohmann::json above = nlohmann::json::array();
    for (const char rank : node.substr(0, node.starts_with("root") ? 0 : colon)) above.push_back(rank - '0');
    for (int child = 0; child < std::stoi(node.substr(colon + 1)); ++child) {
      paths.push_back(above);
      paths.back().push_back(child);
    }
  }
  return paths;
}

}  // namespace foretoken
