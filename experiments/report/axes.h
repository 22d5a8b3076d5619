// What tells the rows of a table apart: the fields of the run documents that differ, as columns in a fixed order.
// Knows runs as JSON documents, not what their fields do.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/table.h"

namespace foretoken {

// What a run says at a pointer, null where nothing; a model as one text: "experiments/models/target inflated to
// llama-3.1-8b".
nlohmann::json told(const nlohmann::json& run, const std::string& pointer);

struct Axis {
  std::string pointer;  // into the run document
  std::string title;    // its last part, or "parent/last" where two would be equal
  bool numeric = false;
};

// The axes of some runs, and every run as a row of cells. Rows are ordered numbers by size, texts by first appearance.
class Axes {
 public:
  // `named`: the axes of the sweeps, any JSON pointers (of objects too). A field that differs is an axis where it is
  // named so or is a name, or where the axes before it leave two runs alike. Without any the drafter's name stands
  // alone. The order of columns: target, drafter, verifier, sampling, engine, workload, whatever else, policy. /measure
  // never counts.
  Axes(const std::vector<nlohmann::json>& runs, const std::vector<std::string>& named);

  const std::vector<Axis>& columns() const { return columns_; }
  std::vector<Column> table_columns() const;
  std::vector<Cell> cells(const nlohmann::json& run) const;
  Cell cell(std::size_t axis, const nlohmann::json& run) const;
  // "drafter ngram, length 4"
  std::string label(const nlohmann::json& run) const;

  // Places of the runs in the order of their axes.
  std::vector<std::size_t> order(const std::vector<nlohmann::json>& runs) const;
  // Axes outside /policy: what remains equal when only the draft length changes.
  std::vector<std::size_t> outside_policy() const;
  std::vector<std::size_t> of_policy() const;
  bool equal(const nlohmann::json& a, const nlohmann::json& b, const std::vector<std::size_t>& axes) const;

 private:
  std::vector<Axis> columns_;
  std::vector<std::vector<nlohmann::json>> values_;  // per axis, in order of appearance
};

}  // namespace foretoken
