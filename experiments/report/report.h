// Stored results as tables, for people and for programs: what `foretoken show` and `foretoken compare` print.
// Knows result lines (schema 1), not how they were measured nor where they lie.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace foretoken {

struct ShowOptions {
  std::string format = "terminal";  // terminal, markdown, csv, json
  // main, theory, positions, categories, phases, best; empty: all of them (csv, which holds one table: main with every
  // figure)
  std::vector<std::string> tables;
  int width = 118;  // columns of the terminal; 0, where there is none: nothing is cut
};

// Tables of result lines, one row per run; of several lines with one key the last counts. JSON is an object with
// "cells" (one per line, with every figure) and "best". An unknown format or table, or no lines at all, is an Error.
std::string show(const std::vector<nlohmann::json>& lines, const ShowOptions& options);

struct CompareOptions {
  std::string format = "terminal";  // terminal, markdown, csv, json
  std::string name_a = "A", name_b = "B";
  std::vector<std::string> ignore;  // JSON pointers into the run that need not agree, beside /measure
  int width = 118;
};

// Per run that both sides have: how tokens/s, speedup, tau and alpha differ, and whether their intervals overlap; then
// the runs that one side alone has. Two runs are the same where their documents agree but for what is ignored.
std::string compare(const std::vector<nlohmann::json>& a, const std::vector<nlohmann::json>& b,
                    const CompareOptions& options);

}  // namespace foretoken
