// Stored results as tables, for people and for programs: the output of `foretoken show`, `foretoken compare` and
// `foretoken tree-shape`, and which runs these look at. This module must not know how result lines were measured or
// where they are stored.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/result.h"

namespace foretoken {

class CostModel;

struct ShowOptions {
  std::string format = "terminal";  // terminal, markdown, latex, csv, json
  // main, theory, positions, categories, load, latency, phases, memory, best; empty: all of them (csv, which holds one
  // table: main with every figure)
  std::vector<std::string> tables = {};
  int width = 118;  // columns of the terminal; 0: no terminal, nothing is cut
  // JSON pointers into the run: tables for each of their values, which their titles name
  std::vector<std::string> by = {};
  // A pointer whose values are the columns of one table, of these figures (by their names in CSV); that table comes
  // before those that `tables` names, and JSON has it as "across"
  std::string across = {};
  std::vector<std::string> figures = {"tau", "speedup"};
};

// An unknown name of a table is an Error.
void expect_tables(const std::vector<std::string>& names);

struct View;
struct Table;

// The named tables of a view, or all of them, as `show` prints them: those without rows are left out.
std::vector<Table> shown_tables(const View& view, const std::vector<std::string>& names);

// Tables of result lines, one row per run; of several lines with one key the last counts. JSON is an object with
// "cells", one per line: "run", "label", "names" (of its components and methods), "axes" (values by pointer),
// "figures", and "values", all of them flat, under their names in CSV; and "best". With `by` it has "sections" of
// these. An unknown format, table or pointer, or no lines at all, is an Error.
std::string show(const std::vector<Result>& lines, const ShowOptions& options);

struct CompareOptions {
  std::string format = "terminal";  // terminal, markdown, csv, json
  std::string name_a = "A", name_b = "B";
  std::vector<std::string> ignore;  // JSON pointers into the run whose values may differ, besides /measure
  int width = 118;
};

// For each run of both sides: the ratios of tokens/s, speedup, tau and alpha, prompt by prompt, with intervals that
// hold for all runs together; then the runs of only one side. Two runs match if their documents agree except for
// ignored fields.
std::string compare(const std::vector<Result>& a, const std::vector<Result>& b, const CompareOptions& options);

// "/engine/batch=4": a run meets it if it has this value there. The value is read as JSON, else as a text; a component
// is also met by its name, and a model by its path.
struct Condition {
  std::string pointer;
  std::string text;
  // Anything else than a pointer, "=" and a value is an Error.
  static Condition read(const std::string& given);
  bool met(const nlohmann::json& run) const;
};

// Every pointer must be of some run: an Error says which there are.
void expect_known(const std::vector<nlohmann::json>& runs, const std::string& pointer, const std::string& purpose);

// Removes the results whose runs do not meet all conditions ("/pointer=value"). A pointer that no run has, and
// conditions that leave none of some results, are an Error that says which values there are. `sides` are judged
// together.
void select(const std::vector<std::string>& where, const std::vector<std::vector<Result>*>& sides);

// An Error, with the condition that would choose, where two runs differ: each without what may.
void expect_alike(const nlohmann::json& first, const nlohmann::json& run);

// Results of several files: of the same run the newest counts (MergedResults).
std::vector<Result> joined(std::vector<std::vector<Result>> files);

// What steps take on some machine.
struct TreeCosts {
  std::shared_ptr<const CostModel> model;
  nlohmann::json document;    // of the file of costs: its target and drafter are the results', of whatever shape
  std::string file, machine;  // for tables
  int batch = 1;              // for which a tree is chosen
};

struct TreeShapeOptions {
  int nodes = 0;                     // the most nodes of a tree, the root included; 0: as many as `costs` know
  std::vector<std::string> where{};  // POINTER=VALUE: only runs that have this value there
  std::string format = "terminal";   // terminal, markdown, csv, json
  int width = 118;
  std::optional<TreeCosts> costs = {};  // none: what the steps of the results took
};

// Tables and a part of a run document with the tree that is predicted to emit the most tokens per second; without step
// times the one that emits the most tokens per round. With costs no draft is a choice, too. Results without runs of
// trees of a fixed shape, runs that differ in more than shape and policy, too few rounds, lines of before these counts,
// and costs of another target or drafter are an Error.
std::string tree_shape(const std::vector<Result>& results, const TreeShapeOptions& options);

}  // namespace foretoken
