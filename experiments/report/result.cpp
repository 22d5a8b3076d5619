#include "experiments/report/result.h"

#include <chrono>
#include <regex>

#include "experiments/report/described.h"
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

bool is_date(std::string_view text) {
  static const std::regex kForm(R"((\d{4})-(\d\d)-(\d\d)(T([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)Z)?)");
  std::cmatch parts;
  if (!std::regex_match(text.data(), text.data() + text.size(), parts, kForm)) return false;
  const auto part = [&](int i) { return unsigned(std::stoi(parts[i])); };
  return std::chrono::year_month_day(std::chrono::year(int(part(1))), std::chrono::month(part(2)),
                                     std::chrono::day(part(3)))
      .ok();
}

template <class V, Is<Result> T> void describe(V& v, T& t) {
  v("schema", t.schema, "version of this schema");
  v("run", t.run, "the complete run document, whose keys `foretoken keys` lists");
  v("axes", t.axes, "values of the sweep's axes, by JSON pointer into the run");
  describe(v, t.origin);
  T::fields(v, t);
}

json to_json(const Result& result) { return described::written(result); }
json to_json(const MachineInfo& machine) { return described::written(machine); }
json to_json(const Phases& phases) { return described::written(phases); }
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
