#include "experiments/report/published_cells.h"

#include <algorithm>
#include <set>

#include "experiments/report/axes.h"
#include "experiments/report/report.h"
#include "experiments/session/sweep_names.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

// Whether it has every key that is given, as a complete run has those that a document writes. A model that is given as
// an object stands in a complete run as its directory, its other parts beside it.
bool has_all(const json& found, const json& given) {
  if (!given.is_object()) return found == given;
  if (found.is_string()) return given.value("directory", json()) == found;
  return found.is_object() && std::ranges::all_of(given.items(), [&](const auto& entry) {
           return found.contains(entry.key()) && has_all(found[entry.key()], entry.value());
         });
}

bool has_value(const json& run, const std::string& pointer, const json& value) {
  if (value.is_object()) return has_all(run.value(json::json_pointer(pointer), json()), value);
  return Condition{pointer, value.is_string() ? value.get<std::string>() : value.dump()}.met(run);
}

bool meets_where(const json& run, const json& where, const json& names, const std::string& document) {
  return std::ranges::all_of(where.items(), [&](const auto& entry) {
    return has_value(run, entry.key(), with_names(entry.value(), names, document));
  });
}

// The one run of the document that a cell is of.
const json& run_of(const PublishedCell& cell, const PublishedTable& table, const PublishedDocument& document) {
  const json* found = nullptr;
  for (const json& run : document.runs) {
    if (!meets_where(run, cell.where, document.names.front(), document.name)) continue;
    if (found)
      throw Error(document.name + ": several of its runs meet 'where' of the cell '" + cell.row + "' of '" +
                  table.table + "'; add what tells them apart");
    found = &run;
  }
  if (found) return *found;
  throw Error(document.name + ": none of its runs meets 'where' of the cell '" + cell.row + "' of '" + table.table +
              "'; correct it, or add the run");
}

// Whether another model ran: other weights, or the same ones in another shape.
bool names_model(const std::string& pointer) {
  if (!within(pointer, "/target") && !within(pointer, "/drafter")) return false;
  for (const char* key : {"/model", "/head", "/inflate", "/datastore"})
    if ((pointer + "/").find(std::string(key) + "/") != pointer.npos) return true;
  return false;
}

std::string text_of_leaf(const json& leaves, const std::string& pointer) {
  const json value = leaves.value(pointer, json());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Of the machine, which is told in words, and how often a run was measured.
constexpr const char* kNotTold[] = {"/measure", "/plugins", "/engine/device", "/engine/threads"};

// The values, at any depth, that the document's names have as stand-ins alone.
std::set<std::string> stand_in_values(const PublishedDocument& document) {
  std::set<std::string> found;
  if (document.names.size() < 2) return found;
  const json stand_ins = document.names[1].flatten(), own = document.names.front().flatten();
  for (const auto& [pointer, value] : stand_ins.items()) found.insert(text_of_leaf(stand_ins, pointer));
  for (const auto& [pointer, value] : own.items()) found.erase(text_of_leaf(own, pointer));
  return found;
}

void tell_differences(const json& wanted, const std::set<std::string>& stand_ins, Beside& beside) {
  const json ours = beside.result->run.flatten(), theirs = wanted.flatten();
  std::set<std::string> pointers;
  for (const json* leaves : {&ours, &theirs})
    for (const auto& [pointer, unused] : leaves->items()) pointers.insert(pointer);
  for (const std::string& pointer : pointers) {
    if (std::ranges::any_of(kNotTold, [&p = pointer](const char* parent) { return within(p, parent); })) continue;
    const std::string here = text_of_leaf(ours, pointer), paper = text_of_leaf(theirs, pointer);
    if (here == paper) continue;
    if (names_model(pointer)) {
      const bool stands_in = stand_ins.contains(here) || pointer.find("/inflate") != pointer.npos;
      (stands_in ? beside.stand_ins : beside.other_path) = true;
    }
    beside.differs.push_back(pointer + " " + here + " for " + paper);
  }
}

}  // namespace

std::optional<std::string> models_said(const PublishedTable& table, const Published& published) {
  return table.settings && table.settings->models ? table.settings->models : published.settings.models;
}

std::vector<TableBeside> beside_results(const std::vector<const Result*>& results,
                                        const std::vector<Summary>& summaries, const PublishedDocument& document) {
  std::vector<TableBeside> found;
  const std::set<std::string> stand_ins = stand_in_values(document);
  bool any = false;
  for (const PublishedTable& table : document.published.tables) {
    TableBeside& own = found.emplace_back(TableBeside{.table = &table, .rows = {}});
    for (const PublishedCell& cell : table.cells) {
      const json& wanted = run_of(cell, table, document);
      const std::size_t before = own.rows.size();
      for (std::size_t i = 0; i < results.size(); ++i) {
        const Result* const result = results[i];
        const bool belongs = std::ranges::any_of(document.names, [&](const json& names) {
          return meets_where(result->run, cell.where, names, document.name);
        });
        if (!belongs) continue;
        Beside& beside = own.rows.emplace_back(Beside{.cell = &cell, .result = result});
        beside.figure = measured_figure(table, cell, *result, summaries[i]);
        beside.others = models_said(table, document.published).has_value();
        tell_differences(wanted, stand_ins, beside);
        any = true;
      }
      if (own.rows.size() == before) own.rows.push_back({.cell = &cell});
    }
  }
  if (!any && !results.empty())
    throw Error("none of the " + std::to_string(results.size()) + " results is of a run that " + document.name +
                " has figures of; measure it with `foretoken run " + document.name +
                "`, and give the --set of that run here too where it changed a name");
  return found;
}

}  // namespace foretoken
