// The axes of a table: the fields in which the run documents differ, as columns in a fixed order. This module must not
// know what the fields mean.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/component_names.h"
#include "experiments/report/table.h"

namespace foretoken {

struct Axis {
  std::string pointer;  // into the run document
  std::string title;    // its last part, or "parent/last" if two would be equal
  bool numeric = false;
};

// The first part of a pointer: "policy" of "/policy/length".
std::string group_of(const std::string& pointer);

// The axes of some runs, and every run as a row of cells. Rows are ordered by value for numbers, by first appearance
// for texts. A drafter, verifier or policy is one axis, by its name (ComponentNames).
class Axes {
 public:
  // `named`: the axes of the sweeps, any JSON pointers (of objects too). A field that differs is an axis if `named` has
  // it, or if the axes before it do not distinguish two runs; a component whose name differs always is. A named field
  // of the workload too must distinguish runs: how many prompts a batch has follows from it. Without any axis the
  // drafter is the only one. The order of columns: target, drafter, verifier, sampling, engine, workload,
  // other fields, policy. /measure is ignored.
  Axes(const std::vector<nlohmann::json>& runs, const std::vector<std::string>& named, ComponentNames names);
  Axes(const std::vector<nlohmann::json>& runs, const std::vector<std::string>& named)
      : Axes(runs, named, ComponentNames(runs)) {}
  // Exactly these.
  static Axes of_pointers(const std::vector<nlohmann::json>& runs, const std::vector<std::string>& pointers);

  const std::vector<Axis>& columns() const { return columns_; }
  const ComponentNames& names() const { return names_; }
  std::vector<Column> table_columns() const;
  // A component's name, a model's text, else the value itself; null where the run has none.
  nlohmann::json value(std::size_t axis, const nlohmann::json& run) const;
  Cell cell(std::size_t axis, const nlohmann::json& run) const;
  std::vector<Cell> cells(const nlohmann::json& run) const;
  // "ngram, batch 1, length 4": of some axes, of those that the run has.
  std::string label(const nlohmann::json& run, const std::vector<std::size_t>& axes) const;
  std::string label(const nlohmann::json& run) const { return label(run, all()); }

  // Indices of the runs in the order of their axes.
  std::vector<std::size_t> order(const std::vector<nlohmann::json>& runs) const;
  std::vector<std::size_t> all() const;
  // Axes outside /policy: the values that runs of different draft lengths share.
  std::vector<std::size_t> outside_policy() const;
  std::vector<std::size_t> of_policy() const;
  // Axes of what methods are compared under: no drafter's, policy's, verifier's or plugin's.
  std::vector<std::size_t> conditions() const;
  std::vector<std::size_t> methods() const;

 private:
  Axes(const std::vector<nlohmann::json>& runs, ComponentNames names, const std::vector<std::string>& pointers);
  template <class Wanted> std::vector<std::size_t> those(const Wanted& wanted) const;

  ComponentNames names_;
  std::vector<Axis> columns_;
  std::vector<std::vector<nlohmann::json>> values_;  // per axis, in order of appearance
};

}  // namespace foretoken
