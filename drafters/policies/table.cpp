// The draft length by the number of sequences in the step, as measured before: what serving engines are configured with
// where a length that pays in a small batch loses in a large one. `foretoken tune` makes the table from results.
#include <algorithm>
#include <string>

#include "drafters/drafters.h"
#include "drafters/policies/step_costs.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

struct TableEntry {
  int batch = 0, length = 0;
};

// In the order of batches; each holds from its batch up to the next one's.
std::vector<TableEntry> table_of(const nlohmann::json& o) {
  const auto wrong = [](const std::string& what) {
    return Error("the policy 'table' has " + what +
                 "; 'lengths' lists pairs of a batch, from 1 on and rising, and a "
                 "length from 0 to " +
                 std::to_string(kMaxPath) + ", as [[1, 6], [16, 2], [64, 0]]");
  };
  std::vector<TableEntry> table;
  for (const nlohmann::json& pair : o.at("lengths")) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer() || !pair[1].is_number_integer())
      throw wrong("the entry " + pair.dump());
    if (pair[0] < 1 || pair[0] > 1'000'000 || pair[1] < 0 || pair[1] > kMaxPath)
      throw wrong("the entry " + pair.dump());
    if (!table.empty() && pair[0] <= table.back().batch) throw wrong("batches that do not rise at " + pair.dump());
    table.push_back({.batch = pair[0].get<int>(), .length = pair[1].get<int>()});
  }
  if (table.empty()) throw wrong("no entry");
  return table;
}

class LengthTable : public LengthPolicy {
 public:
  LengthTable(std::vector<TableEntry> table, int width) : table_(std::move(table)), width_(width) {}

  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    if (past.empty()) return {};
    auto found = std::ranges::upper_bound(table_, past.front().batch, {}, &TableEntry::batch);
    if (found != table_.begin()) --found;  // a batch below the first has the first one's length
    return std::vector<Budget>(past.size(), level_budget(found->length, width_));
  }

 private:
  std::vector<TableEntry> table_;
  int width_;
};

}  // namespace

Entry<LengthPolicy> table() {
  return {.summary = "the draft length by the number of sequences in the step",
          .source = "",
          .options = {{"lengths", "list", nlohmann::json::array({{1, 4}, {16, 2}, {64, 0}}),
                       "pairs of a batch and its length, 0 to 64: each holds up to the next one's batch"},
                      {"width", "integer", 1, "nodes for each level of a draft tree", false, 1, 64}},
          .make = [](const nlohmann::json& o,
                     Host&) { return std::make_unique<LengthTable>(table_of(o), o.at("width").get<int>()); },
          .traits =
              [](const nlohmann::json& o, const ModelInfo&) {
                const int most = std::ranges::max(table_of(o), {}, &TableEntry::length).length;
                return PolicyTraits(level_budget(most, o.at("width").get<int>()));
              },
          .examples = {{{"lengths", {{1, 3}, {2, 1}, {4, 0}}}}, {{"lengths", {{1, 2}}}, {"width", 3}}}};
}

}  // namespace foretoken
