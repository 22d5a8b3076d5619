#include "experiments/report/results.h"

#include <cstdio>

#include <xxhash.h>

#include "experiments/report/summary.h"
#include "experiments/report/terminal.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

constexpr const char* kRemove = "; the line was edited or is damaged: remove it, and its run is measured again";

// Whose lines they are; the fields are read by result_of().
void check_result(const json& line, const std::string& where) {
  if (!line.is_object())
    throw Error(where + ": a result must be a JSON object, not " + shown(line) + "; name a results file, or a new one");
  const json schema = line.value("schema", json());
  if (schema.is_number_integer() && schema < kResultSchema && line.contains("run"))
    throw Error(where + ": a result line of schema " + schema.dump() + ", while this version reads schema " +
                std::to_string(kResultSchema) + "; write a file that it reads with `foretoken convert FILE --out NEW`");
  if (schema != kResultSchema)
    throw Error(where + ": not a result line of schema " + std::to_string(kResultSchema) +
                "; name a results file of this version");
  if (!line.contains("key") || !line["key"].is_string() || !line.contains("run") || !line["run"].is_object())
    throw Error(where + ": a result line needs 'key' and 'run'" + kRemove);
  if (const std::string key = key_of(line["run"]); line["key"] != key)
    throw Error(where + ": 'key' is " + shown(line["key"]) + ", but that of its run is \"" + key + "\"" + kRemove);
}

}  // namespace

const LineKind& result_lines() {
  static const LineKind kind{"results of `foretoken run`",
                             {"schema", "key"},
                             "{\"schema\":" + std::to_string(kResultSchema) + ",\"key\":\"",
                             check_result};
  return kind;
}

std::string key_of(const json& run) {
  const std::string text = run.dump(-1, ' ', true, json::error_handler_t::replace);  // keys of json are sorted
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(XXH3_64bits(text.data(), text.size())));
  return hex;
}

std::vector<Result> results_of(const std::vector<JsonLine>& lines, const std::filesystem::path& file) {
  std::vector<Result> results;
  for (const JsonLine& line : lines)
    results.push_back(result_of(line.value, file.string() + ":" + std::to_string(line.number)));
  return results;
}

std::vector<Result> load_results(const std::filesystem::path& file) {
  const JsonLines found = read_json_lines(file, result_lines(), Pipes::opened);
  if (found.torn)
    std::fprintf(stderr,
                 "foretoken: the last line of %s is incomplete (a run was killed while writing); it is left out\n",
                 one_line(file.string()).c_str());
  return results_of(found.lines, file);
}

ResultsFile::ResultsFile(const std::filesystem::path& file) : path_(file), file_(file, result_lines()) {
  const std::vector<Result> results = results_of(file_.lines(), file);
  for (const Result& result : results) note(result);
  for (std::size_t i = 0; i < results.size(); ++i)
    if (!has(results[i].key))
      if (const std::string damage = damage_of(results[i]); !damage.empty())
        std::fprintf(stderr, "foretoken: %s:%d: %s; its run is measured again\n", one_line(file.string()).c_str(),
                     file_.lines()[i].number, one_line(damage).c_str());
}

void ResultsFile::discard(const std::string& key) {
  origins_.erase(key);
  discarded_.insert(key);
}

void ResultsFile::append(const Result& result) {
  file_.append(to_json(result));
  note(result);
}

void ResultsFile::note(const Result& result) {
  discarded_.erase(result.key);  // the last line of a run counts
  if (result.failed() || !damage_of(result).empty())
    origins_.erase(result.key);
  else
    origins_[result.key] = result.origin;
}

}  // namespace foretoken
