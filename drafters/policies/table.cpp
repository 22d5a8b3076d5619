// The draft length by the number of sequences in the step, as measured before: what serving engines are configured with
// where a length that pays in a small batch loses in a large one. `foretoken tune` makes the table from results.
#include <algorithm>
#include <string>

#include "drafters/drafters.h"
#include "drafters/policies/step_costs.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

struct TableEntry {
  int batch = 0, length = 0;
};

constexpr const char* kForm = "pairs of a batch, from 1 on and rising, and a length, as [[1, 6], [16, 2], [64, 0]]";

// Where nothing is given.
const nlohmann::json kLengths = nlohmann::json::array({{1, 4}, {16, 2}, {64, 0}});

// What `foretoken tune` wrote.
nlohmann::json lengths_in(const nlohmann::json& given) {
  const bool inside = given.is_object();
  const std::string file = inside ? "the option 'file' of the policy 'table'" : given.get<std::string>();
  const nlohmann::json document = inside ? given : read_json(file);
  if (!document.is_object() || !document.contains("lengths"))
    throw Error(file +
                " has no \"lengths\", so `foretoken tune` did not write it; name a file that it wrote, or give " +
                "the policy 'table' its 'lengths'");
  return document["lengths"];
}

// In the order of batches; each holds from its batch up to the next one's.
std::vector<TableEntry> table_of(const nlohmann::json& o) {
  const auto wrong = [](const std::string& what) {
    return Error("the policy 'table' has " + what + "; 'lengths' lists " + kForm + ", of which no length is above " +
                 std::to_string(kMaxPath));
  };
  const nlohmann::json file = o.value("file", nlohmann::json()), given = o.value("lengths", nlohmann::json());
  if (!file.is_null() && !given.is_null())
    throw Error("the policy 'table' has 'lengths' and a 'file' of them; leave one of them out");
  const nlohmann::json lengths = !file.is_null() ? lengths_in(file) : given.is_null() ? kLengths : given;
  std::vector<TableEntry> table;
  if (!lengths.is_array() || lengths.empty()) throw wrong("no entry");
  for (const nlohmann::json& pair : lengths) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer() || !pair[1].is_number_integer())
      throw wrong("the entry " + shown(pair));
    if (pair[0] < 1 || pair[0] > 1'000'000 || pair[1] < 0 || pair[1] > kMaxPath)
      throw wrong("the entry " + shown(pair));
    if (!table.empty() && pair[0] <= table.back().batch) throw wrong("batches that do not rise at " + shown(pair));
    table.push_back({.batch = pair[0].get<int>(), .length = pair[1].get<int>()});
  }
  return table;
}

// The greatest length. A file is found beside the run's document, so before that is known it may be absent.
int most_of(const nlohmann::json& o, const ModelInfo& target) {
  const nlohmann::json file = o.value("file", nlohmann::json());
  if (file.is_string() && target.kv.layers.empty() && !has_file(file.get<std::string>())) return kMaxPath;
  return std::ranges::max(table_of(o), {}, &TableEntry::length).length;
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
  return {
      .summary = "the draft length by the number of sequences in the step",
      .source = "",
      .options = {{.name = "lengths",
                   .type = "list",
                   .standard = nullptr,
                   .meaning = "pairs of a batch and its length, 0 to 64: each holds up to the next one's batch; null, "
                              "without a file: [[1, 4], [16, 2], [64, 0]]",
                   .optional = true},
                  {"file", "path or object", nullptr,
                   "instead: what foretoken tune wrote; one of another target or drafter is an error", true},
                  {"width", "integer", 1, "nodes for each level of a draft tree", false, 1, 64}},
      .make = [](const nlohmann::json& o,
                 Host&) { return std::make_unique<LengthTable>(table_of(o), o.at("width").get<int>()); },
      .traits =
          [](const nlohmann::json& o, const ModelInfo& target) {
            return PolicyTraits(level_budget(most_of(o, target), o.at("width").get<int>()));
          },
      .examples = {{{"lengths", {{1, 3}, {2, 1}, {4, 0}}}},
                   {{"lengths", {{1, 2}}}, {"width", 3}},
                   {{"file", {{"lengths", {{1, 2}, {3, 1}}}}}}}};
}

}  // namespace foretoken
