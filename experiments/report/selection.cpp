#include <algorithm>
#include <set>

#include "experiments/report/axes.h"
#include "experiments/report/report.h"
#include "experiments/report/results.h"
#include "experiments/report/terminal.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

constexpr std::size_t kListed = 12;  // values in a message

void add_pointers(const json& value, const std::string& pointer, std::set<std::string>& found) {
  if (!pointer.empty()) found.insert(pointer);
  if (!value.is_structured()) return;
  for (const auto& [key, inner] : value.items())
    add_pointers(inner, pointer + "/" + replaced(key, {{'~', "~0"}, {'/', "~1"}}), found);
}

// "1, 4, 16", as a condition takes them; of many the first.
std::string values_of(const std::vector<json>& runs, const std::string& pointer) {
  std::vector<std::string> texts;
  for (const json& run : runs) {
    const json value = told(run, pointer);
    const json name = value.is_object() && value.contains("name") ? value["name"] : value;
    const std::string text = name.is_string() ? name.get<std::string>() : name.dump();
    if (std::ranges::find(texts, text) == texts.end()) texts.push_back(text);
  }
  std::string found;
  for (std::size_t i = 0; i < std::min(texts.size(), kListed); ++i) found += (i ? ", " : "") + texts[i];
  return found + (texts.size() > kListed ? " and " + std::to_string(texts.size() - kListed) + " more" : "");
}

}  // namespace

Condition Condition::read(const std::string& given) {
  const std::size_t equals = given.find('=');
  if (!given.starts_with('/') || equals == std::string::npos)
    throw Error("--where takes /POINTER=VALUE, as /drafter/name=ngram, not '" + given + "'");
  Condition found{given.substr(0, equals), given.substr(equals + 1)};
  try {
    json::json_pointer{found.pointer};
  } catch (const json::exception&) {
    throw Error("'" + found.pointer + "' is not a JSON pointer: write it as /engine/batch");
  }
  return found;
}

bool Condition::met(const json& run) const {
  const json::json_pointer at(pointer);
  if (!run.contains(at)) return text == "null";
  const json &value = run[at], read = json::parse(text, nullptr, false);
  if (value == json(text) || (!read.is_discarded() && value == read) || told(run, pointer) == json(text)) return true;
  return value.is_object() && value.contains("name") && value["name"] == json(text);
}

void expect_known(const std::vector<json>& runs, const std::string& pointer, const std::string& purpose) {
  if (!pointer.starts_with('/')) throw Error("'" + pointer + "' is not a JSON pointer: write it as /engine/device");
  std::set<std::string> known;
  for (const json& run : runs) add_pointers(run, "", known);
  if (known.contains(pointer)) return;
  std::string beside;  // what the same object has
  const std::string parent = pointer.substr(0, pointer.rfind('/')) + "/";
  for (const std::string& other : known)
    if (other.starts_with(parent) && other.find('/', parent.size()) == std::string::npos)
      beside += (beside.empty() ? "" : ", ") + other;
  throw Error("no run has the field '" + pointer + "', " + purpose + suggestion(pointer, {known.begin(), known.end()}) +
              "; there are " + (beside.empty() ? "the fields of \"run\" in a result line" : beside));
}

void select(const std::vector<std::string>& where, const std::vector<std::vector<Result>*>& sides) {
  for (const std::string& given : where) {
    const Condition condition = Condition::read(given);
    std::vector<json> runs;
    for (const auto* results : sides)
      for (const Result& result : *results) runs.push_back(result.run);
    if (runs.empty()) return;
    expect_known(runs, condition.pointer, "named by --where");
    std::size_t left = 0;
    for (auto* results : sides) {
      std::erase_if(*results, [&](const Result& result) { return !condition.met(result.run); });
      left += results->size();
    }
    if (left == 0)
      throw Error("no run meets --where " + given + (where.size() > 1 ? " and the conditions before it" : "") + ": " +
                  condition.pointer + " is " + values_of(runs, condition.pointer));
  }
}

void expect_alike(const json& first, const json& run) {
  const json changes = json::diff(first, run);
  if (changes.empty()) return;
  const std::string at = changes.front().at("path");
  const json value = first.value(json::json_pointer(at), json());
  throw Error("the results mix runs that differ in " + at + "; choose with --where, as in --where " + at + "=" +
              (value.is_string() ? value.get<std::string>() : value.dump()));
}

std::vector<Result> joined(std::vector<std::vector<Result>> files) {
  if (files.size() == 1) return std::move(files[0]);
  MergedResults merged;
  for (auto& results : files)
    for (Result& result : results) merged.add(std::move(result));
  return merged.lines();
}

}  // namespace foretoken
