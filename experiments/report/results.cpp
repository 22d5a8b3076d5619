#include "experiments/report/results.h"

#include <cstdio>
#include <filesystem>

#include <xxhash.h>

#include "experiments/report/result.h"
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

LineKind bench_lines(const std::string& measured, const std::string& command) {
  const std::string name = "lines with \"" + measured + "\" that `" + command + "` writes";
  const auto check = [measured, name](const json& line, const std::string& where) {
    const bool known = line.is_object() && line.contains(measured) && line.contains("machine") &&
                       line["machine"].is_object() && line.contains("commit") && line["commit"].is_string();
    if (!known) throw Error(where + ": this is not one of the " + name + "; name a file of these, or a new one");
    if (const json date = line.value("date", json());
        !date.is_null() && !(date.is_string() && is_date(std::string(date))))
      throw Error(where + ": 'date' is " + shown(date) +
                  ", but must be a date, as 2026-11-21T08:00:00Z; remove the line");
  };
  LineKind kind{name, {"commit", "date"}, "{\"commit\":\"", check};
  kind.full = "make room and measure again: whole lines are kept";
  return kind;
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

bool MergedResults::add(Result result) {
  const auto [place, fresh] = places_.try_emplace(result.key, lines_.size());
  if (fresh) {
    lines_.push_back(std::move(result));
    return true;
  }
  Result& known = lines_[place->second];
  if (to_json(result) == to_json(known)) return false;
  const auto worth = [](const Result& r) { return r.failed() ? 0 : r.unfinished ? 1 : 2; };
  // Dates sort as time does.
  if (worth(result) == worth(known) ? result.date < known.date : worth(result) < worth(known)) return false;
  known = std::move(result);
  return true;
}

const Result* MergedResults::of(const std::string& key) const {
  const auto found = places_.find(key);
  return found == places_.end() ? nullptr : &lines_[found->second];
}

bool MergedResults::measured(const std::string& key) const {
  const Result* const result = of(key);
  return result && !result->failed() && damage_of(*result).empty();
}

BenchFile::BenchFile(const std::string& file, const std::string& measured, const std::string& command) {
  if (file.empty()) return;
  if (const auto folder = std::filesystem::absolute(file).parent_path(); !std::filesystem::is_directory(folder))
    throw Error("the folder " + folder.string() + " of --results does not exist; make it, or name another file");
  file_.emplace(file, bench_lines(measured, command));
}

void BenchFile::append(const json& line) {
  if (file_) file_->append(line);
}

}  // namespace foretoken
