// The axes of a table: the fields in which the run documents differ, as columns in a fixed order. This module must not
// know what the fields mean.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/table.h"

namespace foretoken {

// A run's value at a pointer, null if absent; a model as one string: "experiments/models/target inflated to
// llama-3.1-8b".
nlohmann::json told(const nlohmann::json& run, const std::string& pointer);

struct Axis {
  std::string pointer;  // into the run document
  std::string title;    // its last part, or "parent/last" if two would be equal
  bool numeric = false;
};

// The axes of some runs, and every run as a row of cells. Rows are ordered by value for numbers, by first appearance
// for strings.
class Axes {
 public:
  // `named`: the axes of the sweeps, any JSON pointers (of objects too). A field that differs is an axis if `named` has
  // it, if it is a name, or if the axes before it do not distinguish two runs. Without any axis the drafter's name is
  // the only one. The order of columns: target, drafter, verifier, sampling, engine, workload, other fields, policy.
  // /measure is ignored.
  Axes(const std::vector<nlohmann::json>& runs, const std::vector<std::string>& named);

  const std::vector<Axis>& columns() const { return columns_; }
  std::vector<Column> table_columns() const;
  std::vector<Cell> cells(const nlohmann::json& run) const;
  Cell cell(std::size_t axis, const nlohmann::json& run) const;
  // "drafter ngram, length 4"
  std::string label(const nlohmann::json& run) const;

  // Indices of the runs in the order of their axes.
  std::vector<std::size_t> order(const std::vector<nlohmann::json>& runs) const;
  // Axes outside /policy: the values that runs of different draft lengths share.
  std::vector<std::size_t> outside_policy() const;
  std::vector<std::size_t> of_policy() const;
  bool equal(const nlohmann::json& a, const nlohmann::json& b, const std::vector<std::size_t>& axes) const;

 private:
  std::vector<Axis> columns_;
  std::vector<std::vector<nlohmann::json>> values_;  // per axis, in order of appearance
};

}  // namespace foretoken
