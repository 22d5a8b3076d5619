// Hand-made result lines as results, and what the code under test makes of them.
#pragma once
#include <string>
#include <vector>

#include "experiments/report/experiment.h"
#include "experiments/report/page.h"
#include "experiments/report/report.h"
#include "experiments/report/summary.h"
#include "tests/experiments/report/result_lines.h"

namespace foretoken {

inline Result made(const nlohmann::json& line) { return result_of(test::whole(line), "a made line"); }
inline std::vector<Result> made(const std::vector<nlohmann::json>& lines) {
  std::vector<Result> results;
  for (const nlohmann::json& line : lines) results.push_back(made(line));
  return results;
}

inline Experiment read_experiment(const nlohmann::json& repeats, int places = 1) {
  return read_experiment(
      made(nlohmann::json{
               {"schema", kResultSchema}, {"key", ""}, {"run", nlohmann::json::object()}, {"repeats", repeats}})
          .repeats,
      places);
}
inline Summary summarize(const nlohmann::json& line) { return summarize(made(line)); }
inline std::vector<Summary> summarize(const std::vector<nlohmann::json>& lines) { return summarize(made(lines)); }
inline std::string damage_of(const nlohmann::json& line) { return damage_of(made(line)); }
inline View view_of(const std::vector<nlohmann::json>& lines) { return View(made(lines)); }
inline std::string show(const std::vector<nlohmann::json>& lines, const ShowOptions& options) {
  return show(made(lines), options);
}
inline std::string compare(const std::vector<nlohmann::json>& a, const std::vector<nlohmann::json>& b,
                           const CompareOptions& options) {
  return compare(made(a), made(b), options);
}
using Lines = std::initializer_list<nlohmann::json>;
inline std::string show(Lines lines, const ShowOptions& options) { return show(std::vector(lines), options); }
inline std::string compare(Lines a, Lines b, const CompareOptions& options) {
  return compare(std::vector(a), std::vector(b), options);
}
inline std::string page(Lines lines, const PageFiles& files) { return page(made(std::vector(lines)), files); }
inline std::string tree_shape(Lines lines, const TreeShapeOptions& options) {
  return tree_shape(made(std::vector(lines)), options);
}
inline std::string page(const std::vector<nlohmann::json>& lines, const PageFiles& files) {
  return page(made(lines), files);
}
inline std::string tree_shape(const std::vector<nlohmann::json>& lines, const TreeShapeOptions& options) {
  return tree_shape(made(lines), options);
}

}  // namespace foretoken
