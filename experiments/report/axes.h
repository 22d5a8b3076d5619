// The axes of a table: the fields in which the run documents differ, as columns in a fixed order. This module must not
// know what the fields mean.
#pragma once
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/table.h"

namespace foretoken {

// A run's value at a pointer, null if absent; a model as one string: "experiments/models/target inflated to
// llama-3.1-8b".
nlohmann::json told(const nlohmann::json& run, const std::string& pointer);

// The last part of a path or pointer.
std::string last_part(const std::string& path);
// A value as text; a path is told by its last part where none of `others` ends alike.
std::string value_text(const nlohmann::json& value, const std::vector<nlohmann::json>& others);

// "draft_tree (shape 4 2 1, cut)": a component's name and all options in which those of the same name differ, in some
// runs; the drafters that it is made of always: "first_hit (ngram, draft_model)". Two that differ never have one name.
// A draft's length and nodes are told apart from the policy.
class ComponentNames {
 public:
  // Options at the pointers `apart` are told elsewhere, as in a table's title, and are in no name.
  explicit ComponentNames(const std::vector<nlohmann::json>& runs, const std::vector<std::string>& apart = {});

  // Whether a pointer is that of a component: "/drafter", "/verifier", "/policy".
  static bool names(const std::string& pointer);
  // Whether it lies in one, and is told by its name.
  static bool covers(const std::string& pointer);
  // Null where the run has none.
  nlohmann::json name(const nlohmann::json& run, const std::string& pointer) const;

 private:
  struct Option {
    std::vector<nlohmann::json> values;  // distinct ones
    int count = 0;                       // components that have it
  };
  void note(const nlohmann::json& component, const std::string& place, const std::string& pointer);
  std::string text(const nlohmann::json& component, const std::string& place, const std::string& pointer) const;
  template <class F> void each_option(const nlohmann::json& component, const std::string& pointer, const F& f) const;
  bool differs(const std::string& place, const std::string& key) const;

  std::vector<std::string> apart_;
  std::map<std::string, int> count_;  // of components, by their place: "/drafter:first_hit/drafters:ngram"
  std::map<std::string, std::map<std::string, Option>> options_;  // by place and key
};

struct Axis {
  std::string pointer;  // into the run document
  std::string title;    // its last part, or "parent/last" if two would be equal
  bool numeric = false;
};

// Whether a pointer is another one or lies in it.
bool within(const std::string& pointer, const std::string& parent);
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
