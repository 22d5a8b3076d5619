// `foretoken merge`: the results of shards as one file.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include <spdlog/spdlog.h>

#include "experiments/program/commands.h"
#include "experiments/quantize/safetensors_file.h"
#include "experiments/report/compressed.h"
#include "experiments/report/merge.h"
#include "experiments/report/results.h"
#include "experiments/sweep/run_document.h"
#include "experiments/sweep/runner.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

struct MergeFlags {
  std::vector<std::string> files, set, plugins;
  std::string out, sweep;
};

void expect_new_plain_file(const MergeFlags& g) {
  std::error_code ignored;
  if (has_compressed_name(g.out))
    throw Error("merge writes plain lines, not --out " + g.out +
                "; name a file without .gz or .xz, and compress it with gzip or xz");
  for (const std::string& file : g.files)
    if (fs::equivalent(file, g.out, ignored))
      throw Error(file + " is read, so --out " + g.out + " would overwrite it; name another file with --out");
}

std::vector<Run> runs_of_sweep(const MergeFlags& g, Workbench& bench) {
  const fs::path file = g.sweep;
  const auto document = read_document(file);
  bench.load_plugins(document, file.parent_path());
  return expand(document, g.set, bench.registries(), file.string());
}

// Lines of the sweep in its order, then others as they were met.
std::string text_of(const MergedResults& merged, const std::vector<Run>& runs) {
  std::set<std::string> written;
  std::string text;
  const auto add = [&](const json& line) {
    if (written.insert(line.at("key")).second) text += text_of(line, result_lines());
  };
  for (const Run& run : runs)
    if (const json* const line = merged.of(run.key)) add(*line);
  for (const json& line : merged.lines()) add(line);
  return text;
}

LineKind lines_of_out() {
  LineKind kind = result_lines();
  kind.choose = "name another file with --out";
  kind.busy = "another process is writing to it; wait, or " + kind.choose;
  return kind;
}

int count_missing(const MergedResults& merged, const std::vector<Run>& runs, const MergeFlags& g) {
  int missing = 0;
  for (const Run& run : runs) {
    if (merged.measured(run.key)) continue;
    ++missing;
    spdlog::warn("{}: {} (key {})", merged.of(run.key) ? "failed" : "missing", label_of(run), run.key);
  }
  if (missing > 0)
    spdlog::error("{} of {} runs of {} are missing; foretoken run with it and --results {} measures them", missing,
                  runs.size(), g.sweep, g.out);
  return missing;
}

int merge(const MergeFlags& g) {
  expect_new_plain_file(g);
  Workbench bench(g.plugins);
  const std::vector<Run> runs = g.sweep.empty() ? std::vector<Run>{} : runs_of_sweep(g, bench);
  MergedResults merged(
      [&](const json& run) { return identity_of(run, bench.registries()); });  // as the sweep knows them
  std::optional<JsonLinesFile> older;  // locked: no run may append to what is replaced
  if (has_file(g.out)) older.emplace(g.out, lines_of_out());
  if (older)
    for (const JsonLine& line : older->lines()) merged.add(line.value);
  for (const std::string& file : g.files)
    for (json& line : load_results(file)) merged.add(std::move(line));
  const std::string text = text_of(merged, runs);
  const std::string_view piece = text;
  write_whole(g.out, {&piece, 1});
  std::printf("%s\n", g.out.c_str());
  spdlog::info("{} runs are in {}", merged.lines().size(), g.out);
  return count_missing(merged, runs, g) > 0 ? 1 : 0;
}

}  // namespace

void add_merge(CLI::App& app, Action& action) {
  const auto g = std::make_shared<MergeFlags>();
  CLI::App* c = app.add_subcommand("merge", "join files of results, as of the shards of a sweep");
  c->add_option("results", g->files, "files of results; of several lines of a run the newest counts")->required();
  c->add_option("--out", g->out, "the file to write; results that it has are kept, unless the files have newer ones")
      ->required();
  CLI::Option* const sweep =
      c->add_option("--sweep", g->sweep, "the document of the sweep: runs without a result are listed");
  add_repeatable(*c, "--set", g->set, "/POINTER=VALUE, as it was given to run; may be given again")->needs(sweep);
  add_plugins(*c, g->plugins);
  c->callback([g, &action] { action = [g] { return merge(*g); }; });
}

}  // namespace foretoken
