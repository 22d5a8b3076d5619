#include "experiments/report/bench_file.h"

#include <filesystem>

#include "experiments/report/date.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

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
