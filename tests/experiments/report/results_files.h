// Files of results for tests: complete but empty lines, and the program's reading of them.
#pragma once
#include <fstream>
#include <iterator>
#include <string>

#include "experiments/report/results.h"
#include "tests/experiments/report/made_results.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {

using nlohmann::json;

// The short result of a run identified by its name, which failed; it has numbers, words and multi-byte
// letters, so a line can be torn within each.
inline json empty_line_of(const std::string& name) {
  const json run{{"name", name}};
  return whole({{"schema", kResultSchema},
                {"key", key_of(run)},
                {"run", run},
                {"commit", "c\u00e9\n"},
                {"seconds", 1.5e-7},
                {"error", "no"},
                {"shared_baseline", true}});
}

// The same with a measurement of one request.
inline json line_of(const std::string& name) {
  const json side = measure({{0, nullptr, 2, 1, 1, 1, 1, 1.5e-7}}, {1}, {1}, {1}, {0, 1}, 1, 1);
  json line = empty_line_of(name);
  line.erase("error");
  line["repeats"] = {{{"baseline", side}, {"speculative", side}}};
  return whole(line);
}
inline std::string key(const std::string& name) { return line_of(name)["key"]; }
inline std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The bytes of a line as the program writes it.
inline std::string written(const json& line) {
  const TemporaryFolder folder;
  ResultsFile(folder.path() / "r.jsonl").append(result_of(line, "a line"));
  return bytes_of(folder.path() / "r.jsonl");
}

}  // namespace foretoken::test
