#include "experiments/report/result.h"

#include "experiments/report/date.h"
#include "experiments/report/result_fields.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

// What fields alone do not say.
void expect_whole(const Result& r) {
  const auto expect_date = [](const std::string& date, const std::string& at) {
    if (!is_date(date)) throw Error("'" + at + "' is \"" + date + "\", but must be a date, as 2026-11-21T08:00:00Z");
  };
  expect_date(r.date, "date");
  for (std::size_t i = 0; i < r.repeats.size(); ++i)
    if (r.repeats[i].began) expect_date(*r.repeats[i].began, "repeats/" + std::to_string(i) + "/began");
  if (r.failed()) return;
  const std::string without = "without an 'error' the line needs ";
  if (r.repeats.empty()) throw Error(without + "alternations in 'repeats'");
  if (!r.promise || !r.agreement) throw Error(without + "'promise' and 'agreement'");
}

}  // namespace

json to_json(const Result& result) { return described::written(result); }
json to_json(const MachineInfo& machine) { return described::written(machine); }
json to_json(const SideRecord& side) { return described::written(side); }

Result result_of(const json& line, const std::string& where) {
  try {
    Result result;
    described::read(line, result, {});
    expect_whole(result);
    return result;
  } catch (const Error& e) {
    throw Error(where + ": " + e.what() +
                "; the line was edited or is damaged: remove it, and its run is measured again");
  }
}

json result_schema() {
  json schema = described::schema_of<Result>();
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["title"] = "A line of a file of results of `foretoken run`";
  schema["properties"]["schema"]["const"] = kResultSchema;
  return schema;
}

}  // namespace foretoken
