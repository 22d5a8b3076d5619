#include "experiments/report/results.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include <xxhash.h>

#include "experiments/report/date.h"
#include "experiments/report/summary.h"
#include "experiments/report/terminal.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

constexpr const char* kRemove = "; the line was edited or is damaged: remove it, and its run is measured again";

bool is_count(const json& value) {
  return value.is_number_integer() && value >= 0 && value < std::numeric_limits<int>::max();
}

bool is_failure(const json& value) {
  return value.is_object() && value.contains("prompt") && is_count(value["prompt"]) && value.contains("side") &&
         value["side"].is_string() && value.contains("failure") && value["failure"].is_string();
}

void check_types(const json& line, const std::string& where) {
  for (const char* text : {"commit", "error", "promise"})
    if (line.contains(text) && !line[text].is_string())
      throw Error(where + ": '" + text + "' is " + shown(line[text]) + ", but must be a string" + kRemove);
  for (const char* group : {"axes", "machine", "agreement", "sources"})
    if (line.contains(group) && !line[group].is_object())
      throw Error(where + ": '" + group + "' is " + shown(line[group]) + ", but must be an object" + kRemove);
  const auto expect = [&](const char* pointer, const auto& fits, const char* what) {
    const json::json_pointer at(pointer);
    if (line.contains(at) && !fits(line[at]))
      throw Error(where + ": '" + (pointer + 1) + "' is " + shown(line[at]) + ", but must be " + what + kRemove);
  };
  expect("/agreement/compared", [](const json& v) { return v.is_boolean(); }, "true or false");
  for (const char* count : {"/agreement/compared_texts", "/agreement/differing_texts"})
    expect(count, is_count, "a number of texts");
  const auto date = [](const json& v) { return v.is_string() && is_date(v.get<std::string>()); };
  constexpr const char* kDate = "a date, as 2026-11-21T08:00:00Z";
  expect("/date", date, kDate);
  if (line.contains("repeats") && line["repeats"].is_array())
    for (std::size_t i = 0; i < line["repeats"].size(); ++i)
      expect(("/repeats/" + std::to_string(i) + "/began").c_str(), date, kDate);
  expect("/machine/device", [](const json& v) { return v.is_string(); }, "a string");
  expect(
      "/failures", [](const json& v) { return v.is_array() && !v.empty() && std::ranges::all_of(v, is_failure); },
      "a list of at least one object with 'prompt', 'side' and 'failure'");
}

void check_result(const json& line, const std::string& where) {
  if (!line.is_object())
    throw Error(where + ": a result must be a JSON object, not " + shown(line) + "; name a results file, or a new one");
  if (!line.contains("schema") || line["schema"] != kResultSchema)
    throw Error(where + ": not a result line of schema " + std::to_string(kResultSchema) +
                "; name a results file of this version");
  if (!line.contains("key") || !line["key"].is_string() || !line.contains("run") || !line["run"].is_object())
    throw Error(where + ": a result line needs 'key' and 'run'" + kRemove);
  if (const std::string key = key_of(line["run"]); line["key"] != key)
    throw Error(where + ": 'key' is " + shown(line["key"]) + ", but that of its run is \"" + key + "\"" + kRemove);
  check_types(line, where);
}

}  // namespace

const LineKind& result_lines() {
  // Before version 1 of this order a line began with "agreement", or with "axes" if its run had failed. A sweep's
  // document begins with "axes" too, so that proves nothing.
  static const LineKind kind{
      "results of `foretoken run`",
      {"schema", "key"},
      {"{\"schema\":" + std::to_string(kResultSchema) + ",\"key\":\"", "{\"agreement\":{\"compared\":"},
      check_result};
  return kind;
}

std::string key_of(const json& run) {
  const std::string text = run.dump(-1, ' ', true, json::error_handler_t::replace);  // keys of json are sorted
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(XXH3_64bits(text.data(), text.size())));
  return hex;
}

std::vector<json> load_results(const std::filesystem::path& file) {
  JsonLines found = read_json_lines(file, result_lines(), Pipes::opened);
  if (found.torn)
    std::fprintf(stderr,
                 "foretoken: the last line of %s is incomplete (a run was killed while writing); it is left out\n",
                 one_line(file.string()).c_str());
  std::vector<json> lines;
  for (JsonLine& line : found.lines) lines.push_back(std::move(line.value));
  return lines;
}

ResultsFile::ResultsFile(const std::filesystem::path& file, Identity identity)
    : identity_(std::move(identity)), path_(file), file_(file, result_lines()) {
  for (const JsonLine& line : file_.lines()) note(line.value);
  for (const JsonLine& line : file_.lines())
    if (!has(identity_(line.value["run"])))
      if (const std::string damage = damage_of(line.value); !damage.empty())
        std::fprintf(stderr, "foretoken: %s:%d: %s; its run is measured again\n", one_line(file.string()).c_str(),
                     line.number, one_line(damage).c_str());
}

void ResultsFile::discard(const std::string& key) {
  origins_.erase(key);
  discarded_.insert(key);
}

void ResultsFile::append(const json& line) {
  file_.append(line);
  note(line);
}

void ResultsFile::note(const json& line) {
  const std::string key = identity_(line["run"]);
  origins_.erase(key), discarded_.erase(key);  // the last line of a run counts
  if (line.contains("error") || !damage_of(line).empty()) return;
  json origin = json::object();
  for (const char* field : {"commit", "machine", "sources"}) origin[field] = line.value(field, json());
  origins_[key] = std::move(origin);
}

}  // namespace foretoken
