// `foretoken merge`: the results of shards as one file.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>

#include <spdlog/spdlog.h>

#include "experiments/program/commands.h"
#include "experiments/quantize/safetensors_file.h"
#include "experiments/report/compressed.h"
#include "experiments/report/results.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/rounds.h"
#include "experiments/sweep/runner.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

namespace fs = std::filesystem;

namespace {

struct MergeFlags {
  std::vector<std::string> files;
  std::string out;
  SweepChoice sweep;
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

// Lines of the sweep in its order; without one all, as they were met.
std::string text_of(const MergedResults& merged, const std::vector<Run>& runs, bool of_sweep) {
  std::string text;
  for (const Run& run : runs)
    if (const Result* const result = merged.of(run.key)) text += text_of(to_json(*result), result_lines());
  if (!of_sweep)
    for (const Result& result : merged.lines()) text += text_of(to_json(result), result_lines());
  return text;
}

LineKind lines_of_out() {
  LineKind kind = result_lines();
  kind.choose = "name another file with --out";
  kind.busy = "another process is writing to it; wait, or " + kind.choose;
  return kind;
}

// Lines of runs that the sweep does not have: what only --out had is nowhere else, and is kept in a file beside it.
// `keys`: of the sweep.
void drop_others(const MergedResults& merged, const std::set<std::string>& keys, const std::set<std::string>& in_out,
                 const MergeFlags& g) {
  const std::string beside = g.out + ".dropped";
  std::optional<JsonLinesFile> dropped;
  int others = 0;
  for (const Result& line : merged.lines()) {
    if (keys.contains(line.key)) continue;
    ++others;
    if (!in_out.contains(line.key)) continue;
    if (!dropped) dropped.emplace(beside, lines_of_out());
    dropped->append(to_json(line));
  }
  if (others > 0)
    spdlog::warn("{} results are of no run of {} and dropped{}; foretoken show FILE --sweep {} lists such results",
                 others, g.sweep.document, dropped ? "; those that " + g.out + " had are in " + beside : "",
                 g.sweep.document);
}

// Null, with a warning, where a run writes to the file or nobody may: it was only to be read.
std::unique_ptr<JsonLinesFile> locked_if_free(const std::string& file) {
  try {
    return std::make_unique<JsonLinesFile>(file, result_lines());
  } catch (const Error&) {
    spdlog::warn("{} cannot be written to, or a run writes to it: what unfinished runs left beside it stays", file);
    return nullptr;
  }
}

// Alternations that this sweep left, of runs that it no longer has. `file` is locked.
void drop_orphans(const fs::path& file, const std::set<std::string>& keys, const MergeFlags& g) {
  Unfinished unfinished(file);
  const int count = unfinished.drop_orphans(sweep_name(g.sweep.document, g.sweep.set), keys);
  if (count > 0)
    spdlog::warn("{} alternations of runs that {} no longer has are removed from {}", count, g.sweep.document,
                 unfinished.folder().string());
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
                  runs.size(), g.sweep.document, g.out);
  return missing;
}

int merge(MergeFlags& g) {
  expect_new_plain_file(g);
  Workbench bench(g.sweep.plugins);
  const bool of_sweep = !g.sweep.document.empty();
  const std::vector<Run> runs = g.sweep.runs(bench);
  const std::set<std::string> keys = keys_of(runs);
  MergedResults merged;
  std::optional<JsonLinesFile> older;  // locked: no run may append to what is replaced
  std::set<std::string> in_out;        // keys
  if (has_file(g.out)) older.emplace(g.out, lines_of_out());
  if (older)
    for (Result& result : results_of(older->lines(), g.out)) {
      in_out.insert(result.key);
      merged.add(std::move(result));
    }
  for (const std::string& file : g.files)
    for (Result& result : load_results(file)) merged.add(std::move(result));
  if (of_sweep) drop_others(merged, keys, in_out, g);
  if (of_sweep && older) drop_orphans(g.out, keys, g);
  const std::string text = text_of(merged, runs, of_sweep);
  write_whole(g.out, text);
  std::printf("%s\n", g.out.c_str());
  spdlog::info("{} runs are in {}", std::ranges::count(text, '\n'), g.out);
  if (!of_sweep) return 0;
  const int missing = count_missing(merged, runs, g);
  for (const std::string& file : g.files)
    if (Unfinished(file).any())
      if (const auto locked = locked_if_free(file)) drop_orphans(file, keys, g);
  return missing > 0 ? 1 : 0;
}

}  // namespace

void add_merge(Commands& all) {
  const auto [c, g] = all.add_subcommand("merge", "join files of results, as of the shards of a sweep", merge);
  c.add_option("results", g.files, "files of results; of several lines of a run the newest counts")->required();
  c.add_option("--out", g.out, "the file to write; results that it has are kept, unless the files have newer ones")
      ->required();
  add_sweep(c, g.sweep, "the document of the sweep: results of other runs are dropped, runs without a result listed");
}

}  // namespace foretoken
