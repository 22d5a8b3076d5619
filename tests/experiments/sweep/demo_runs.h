// Runs of the demo models, for tests of how they are measured.
#pragma once
#include <numeric>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "experiments/report/results.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/runner.h"
#include "tests/experiments/sweep/demo_models.h"

namespace foretoken::test {

using nlohmann::json;

inline json demo(const json& changes) {
  json run = demo_models();
  run.merge_patch({{"policy", {{"length", 3}}},
                   {"engine", {{"batch", 2}, {"check", true}}},
                   {"workload", {{"max_new_tokens", 12}, {"lengths", "equal"}}},
                   {"measure", {{"repeats", 2}}}});
  run.merge_patch(changes);
  return run;
}

class Runs : public testing::Test {
 protected:
  foretoken::Run run_of(const json& changes = json::object()) {
    const json document = complete_run(demo(changes), bench.registries(), "test");
    return {document, json::object(), key_of(document)};
  }
  json measured(const json& changes = json::object()) {
    const json line = to_json(measure_run(run_of(changes), bench, "", [](double) {}));
    EXPECT_FALSE(line.contains("error")) << line["error"];
    return line;
  }
  std::string failure(const json& changes) {
    return to_json(measure_run(run_of(changes), bench, "", [](double) {})).value("error", "");
  }
  Workbench bench;
};

inline long sum(const json& counts) {
  return std::accumulate(counts.begin(), counts.end(), 0l, [](long n, const json& c) { return n + c.get<long>(); });
}
inline long sum(const json& requests, const char* key) {
  return std::accumulate(requests.begin(), requests.end(), 0l,
                         [&](long n, const json& r) { return n + r[key].get<long>(); });
}

}  // namespace foretoken::test
