// Which runs are looked at: conditions on their documents, and several files as one. This module must not know figures.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/result.h"

namespace foretoken {

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

// Results of several files: of the same run the newest counts (MergedResults).
std::vector<Result> joined(std::vector<std::vector<Result>> files);

}  // namespace foretoken
