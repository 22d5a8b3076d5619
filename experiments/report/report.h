// Stored results as tables, for people and for programs: the output of `foretoken show` and `foretoken compare`. This
// module must not know how result lines were measured or where they are stored.
#pragma once
#include <string>
#include <vector>

#include "experiments/report/result.h"

namespace foretoken {

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

}  // namespace foretoken
