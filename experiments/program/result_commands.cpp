// The commands that read files of results and show them, or write them in another form.
#include <algorithm>
#include <cstdio>
#include <set>

#include <spdlog/fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "experiments/costs/costs_file.h"
#include "experiments/costs/predicted_lengths.h"
#include "experiments/program/commands.h"
#include "experiments/quantize/safetensors_file.h"
#include "experiments/report/page.h"
#include "experiments/report/published.h"
#include "experiments/report/report.h"
#include "experiments/report/results.h"
#include "experiments/report/summary.h"
#include "experiments/report/tune.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/convert.h"
#include "experiments/sweep/rounds.h"
#include "experiments/sweep/runner.h"
#include "framework/decode/draft_tree.h"
#include "framework/text/json_file.h"
#include "framework/text/known_names.h"
#include "framework/text/regular_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

// --where, repeatable: the conditions of select().
CLI::Option* add_where(CLI::App& command, std::vector<std::string>& where) {
  return add_repeatable(command, "--where", where,
                        "/POINTER=VALUE: only runs with this value, as /drafter/name=ngram; may be given again");
}

// The results of some files, of runs that are not finished too, that meet the conditions.
std::vector<Result> selected_results(const std::vector<std::string>& files, const std::vector<std::string>& where) {
  std::vector<std::vector<Result>> all;
  for (const std::string& file : files) all.push_back(load_with_unfinished(file));
  std::vector<Result> results = joined(std::move(all));
  select(where, {&results});
  return results;
}

// Whether lines of files of results have no figures, each of which is an error message.
bool report_damages(const std::vector<std::string>& files, const std::vector<Result>& lines) {
  const auto damages = damages_of(lines);
  for (const std::string& damage : damages) spdlog::error("a line of {} has no figures: {}", listed(files), damage);
  return !damages.empty();
}

struct ShowFlags : Shown<ShowOptions> {
  std::vector<std::string> files, where;
  SweepChoice sweep;
};

// Results of other runs than the sweep's leave the lines and are listed.
void leave_out_others(ShowFlags& g, std::vector<Result>& lines) {
  if (g.sweep.document.empty()) return;
  Workbench bench(g.sweep.plugins);
  const std::set<std::string> keys = keys_of(g.sweep.runs(bench));
  const auto others =
      std::ranges::stable_partition(lines, [&](const Result& result) { return keys.contains(result.key); });
  for (const Result& other : others)
    spdlog::warn("not of {}: {} (key {}, measured {})", g.sweep.document, label_of({other.run, other.axes, other.key}),
                 other.key, other.date);
  const std::string files = fmt::format("{}", fmt::join(g.files, " "));
  if (!others.empty())
    spdlog::warn("{} of {} results in {} are of no run of {}; foretoken merge {} --sweep {} --out FILE leaves them out",
                 others.size(), lines.size(), files, g.sweep.document, files, g.sweep.document);
  if (others.size() == lines.size() && !lines.empty())
    throw Error("none of the " + std::to_string(lines.size()) + " results in " + files + " is of a run of " +
                g.sweep.document + "; leave out --sweep to see them");
  lines.erase(others.begin(), others.end());
}

int show_results(ShowFlags& g) {
  std::vector<Result> lines = selected_results(g.files, g.where);
  leave_out_others(g, lines);
  g.options.tables = chosen_tables(g.options.tables, {});
  print(show(lines, g.whole()));
  return report_damages(g.files, lines) ? 1 : 0;
}

// A file named by mistake is not replaced.
void expect_replaceable(const std::filesystem::path& out) {
  if (!has_file(out)) return;
  const std::string bytes = read_bytes(out, out.string(), "name another file with --out");
  if (!bytes.empty() && !is_page(bytes))
    throw Error(out.string() + " exists and is no page of foretoken report; name another file with --out");
}

int write_page(PageFiles& g) {
  const auto lines = selected_results(g.results, g.where);
  const std::string text = page(lines, g);
  expect_replaceable(g.out);
  write_whole(g.out, text);
  std::printf("%s\n", g.out.c_str());
  return report_damages(g.results, lines) ? 1 : 0;
}

struct CompareFlags : Shown<CompareOptions> {
  std::vector<std::string> where, set, plugins;
  bool published = false;
};

// The document with its runs, and what its names stand for: as they are, its stand-ins, and after --set.
PublishedDocument published_document(const CompareFlags& g) {
  const std::filesystem::path file = g.options.name_b;
  const auto document = read_document(file);
  std::optional<Published> published = published_of(document, file.string());
  if (!published)
    throw Error(file.string() + " has no \"published\" figures; those in experiments/configs/published/ have them");
  Workbench bench(g.plugins);
  bench.load_plugins(document, file.parent_path());
  PublishedDocument found{.name = file.string(), .published = std::move(*published), .runs = {}, .names = {}};
  for (Run& run : expand(document, {}, bench.registries(), file.string()))
    found.runs.push_back(std::move(run.document));
  std::vector<std::string> settings = stand_ins(document, file.string());
  found.names = {named_values(document, {}, file.string()), named_values(document, settings, file.string()),
                 named_values(document, g.set, file.string())};
  settings.insert(settings.end(), g.set.begin(), g.set.end());
  found.names.push_back(named_values(document, settings, file.string()));
  return found;
}

int compare_with_paper(const CompareFlags& g) {
  const PublishedDocument document = published_document(g);
  std::vector<Result> results = load_results(g.options.name_a);
  select(g.where, {&results});
  print(compare_published(results, document,
                          {.format = g.options.format, .results = g.options.name_a, .width = g.options.width}));
  return report_damages({g.options.name_a}, results) ? 1 : 0;
}

int compare_results(CompareFlags& g) {
  const CompareOptions& o = g.whole();
  if (g.published) return compare_with_paper(g);
  std::vector<Result> a = load_results(o.name_a), b = load_results(o.name_b);
  select(g.where, {&a, &b});
  print(compare(a, b, o));
  const bool damaged = report_damages({o.name_a}, a);  // both files are reported
  return report_damages({o.name_b}, b) || damaged ? 1 : 0;
}

struct TreeShapeFlags : Shown<TreeShapeOptions> {
  std::string file, costs;
  int batch = 1;
};

int print_tree_shape(TreeShapeFlags& g) {
  if (g.costs.empty() && g.options.nodes == 0)
    throw Error("tree-shape needs --nodes, the most nodes of the tree, or --costs, by which it chooses how many");
  if (!g.costs.empty()) {
    const CostsFile costs = CostsFile::read(g.costs);
    g.options.costs = TreeCosts{.model = std::make_shared<const CostModel>(costs.costs),
                                .document = costs.document,
                                .file = costs.file,
                                .machine = costs.machine(),
                                .batch = g.batch};
  }
  print(tree_shape(load_results(g.file), g.whole()));
  return 0;
}

struct TuneFlags : Shown<TuneOptions> {
  std::vector<std::string> files, where;
  std::string out;
  PredictedLengthsOptions predicted;
};

// An older file is replaced, and no other.
void expect_tuned(const std::string& out) {
  if (out.empty() || !has_file(out)) return;
  const nlohmann::json older = nlohmann::json::parse(read_file(out), nullptr, false);
  if (!older.is_object() || older.value("kind", nlohmann::json()) != kTunedKind)
    throw Error(out + " exists and is no file of foretoken tune; name another file with --out");
}

// From costs, without measuring.
Tuned predict_lengths(TuneFlags& g) {
  if (g.files.size() > 1) throw Error("tune --costs takes one document of a run or a sweep, not several files");
  g.predicted.file = g.files.front();
  return predicted_lengths(g.predicted, g.whole());
}

int tune_lengths(TuneFlags& g) {
  expect_tuned(g.out);
  const bool measured = g.predicted.costs.empty();
  const std::vector<Result> lines = measured ? selected_results(g.files, g.where) : std::vector<Result>{};
  const Tuned tuned = measured ? tune(lines, g.whole()) : predict_lengths(g);
  if (!g.out.empty()) write_whole(g.out, tuned.document.dump(1) + "\n");
  print(tuned.text);
  if (!g.out.empty())
    spdlog::info("the lengths are in {}: \"policy\": {{\"name\": \"table\", \"file\": \"{}\"}}", g.out, g.out);
  return report_damages(g.files, lines) ? 1 : 0;
}

struct ConvertFlags {
  std::string file, out;
  std::vector<std::string> plugins;
};

int convert_results(ConvertFlags& g) {
  if (has_file(g.out)) throw Error("--out " + g.out + " exists; name a new file");
  const Workbench bench(g.plugins);
  LineKind kind = result_lines();
  kind.opening = "{\"schema\":";
  kind.check = [](const nlohmann::json&, const std::string&) {};  // converted() says what is wrong
  const JsonLines found = read_json_lines(g.file, kind, Pipes::opened);
  if (found.torn) spdlog::warn("the last line of {} is incomplete; it is left out", g.file);
  std::string text;
  for (const JsonLine& line : found.lines) {
    const Result result = converted(line.value, bench.registries(), g.file + ":" + std::to_string(line.number));
    text += text_of(to_json(result), result_lines());
  }
  write_whole(g.out, text);
  spdlog::info("{} lines are in {}", found.lines.size(), g.out);
  return 0;
}

struct Nothing {};

int print_schema(Nothing&) {
  print(result_schema().dump(2));
  return 0;
}

}  // namespace

void add_show(Commands& all) {
  const auto [c, g] = all.add_subcommand("show", "tables of stored results", show_results);
  c.add_option("results", g.files, "files of results; of several lines of a run the newest counts")->required();
  add_where(c, g.where);
  add_repeatable(c, "--by", g.options.by,
                 "/POINTER: tables for each of its values, as /engine/batch; may be given again");
  add_sweep(c, g.sweep, "the document of a sweep: tables of its runs alone; other results are listed");
  add_tables(c, g.options.tables);
  CLI::Option* const across = c.add_option(
      "--across", g.options.across, "/POINTER: one table with a column for each of its values, as /engine/batch");
  add_list_option(c, "--figures", g.options.figures, "its figures, by their names in --format csv")
      ->needs(across)
      ->default_str("tau,speedup");
  add_look(c, g.look, true);
}

void add_report(Commands& all) {
  const auto [c, g] =
      all.add_subcommand("report", "stored results as one HTML page with plots, which needs no network", write_page);
  c.add_option("results", g.results, "files of results; of several lines of a run the newest counts")->required();
  add_where(c, g.where);
  add_shown(c, "--out", g.out, "the page; an older one is replaced, any other file is not");
  c.add_option("--x", g.plot.x, "a plot of your own first: over /POINTER, of numbers, as /engine/batch");
  c.add_option("--y", g.plot.y, "its figure, by its name in show --format csv (default: speedup)");
  c.add_option("--colour", g.plot.colour, "/POINTER whose values are its colours (default: methods)");
  c.add_option("--columns", g.plot.columns, "/POINTER whose values are its panels (default: conditions)");
}

void add_compare(Commands& all) {
  const auto [c, g] = all.add_subcommand(
      "compare", "compare two files of results, run by run, or one with the figures of a paper", compare_results);
  c.add_option("a", g.options.name_a, "a file of results")->required();
  c.add_option("b", g.options.name_b, "another; with --published a document of a sweep that has a paper's figures")
      ->required();
  CLI::Option* const ignore = add_list_option(c, "--ignore", g.options.ignore,
                                              "JSON pointers into the run whose values may differ, as /engine/device");
  CLI::Option* const published =
      c.add_flag("--published", g.published,
                 "put the results beside the figures of a paper, each by the paper's definition, and say what differs");
  published->excludes(ignore);
  add_repeatable(c, "--set", g.set,
                 "with --published: /names/NAME=VALUE, as `run` was given it; stand-ins are known already")
      ->needs(published);
  add_plugins(c, g.plugins);
  add_where(c, g.where);
  add_look(c, g.look, true);
}

void add_tree_shape(Commands& all) {
  const auto [c, g] = all.add_subcommand(
      "tree-shape",
      "the best shape of a draft tree, from the acceptance and the step times of stored results, or from costs",
      print_tree_shape);
  c.add_option("results", g.file, "a file of results with runs of a drafter that has a \"shape\"")->required();
  c.add_option("--nodes", g.options.nodes,
               "the most nodes of the tree, the root included (with --costs the default is what the costs know)")
      ->check(CLI::Range(2, kMaxNodes));
  CLI::Option* const costs =
      c.add_option("--costs", g.costs,
                   "step times of a file that foretoken calibrate wrote, or of a published table in its form, in place "
                   "of those of the results");
  add_shown(c, "--batch", g.batch, "with --costs: the sequences of a step")->check(CLI::Range(1, 4096))->needs(costs);
  add_repeatable(c, "--where", g.options.where, "/POINTER=VALUE: only runs with this value; may be given again");
  add_look(c, g.look);
}

void add_tune(Commands& all) {
  const auto [c, g] = all.add_subcommand(
      "tune", "the draft length for each size of the batch, from stored results or costs: a file for the policy table",
      tune_lengths);
  c.add_option("file", g.files,
               "files of results of a sweep over /policy/length and /engine/batch; with --costs the JSON document of "
               "a run or a sweep")
      ->required();
  CLI::Option* const where = add_where(c, g.where);
  PredictedLengthsOptions& from = g.predicted;
  CLI::Option* const costs =
      c.add_option("--costs", from.costs,
                   "predict instead: a file that foretoken calibrate wrote, or a published table in its form");
  CLI::Option* const acceptance =
      c.add_option("--acceptance", from.acceptance,
                   "with --costs: a number from 0 to 1, or one for each level, as 0.8,0.7; or results of the same "
                   "target and drafter");
  costs->excludes(where)->needs(acceptance);
  acceptance->needs(costs);
  add_numbers(c, "--batches", from.batches, 1, 4096, "with --costs: sizes of the batch (default: up to the costs')")
      ->needs(costs);
  add_numbers(c, "--lengths", from.lengths, 1, kMaxPath, "with --costs: lengths to try (default: up to the costs')")
      ->needs(costs);
  add_repeatable(c, "--set", from.set, "with --costs: /POINTER=VALUE, a change of the run; may be given again")
      ->needs(costs);
  add_plugins(c, from.plugins);
  c.add_option("--out", g.out, "the file to write; an older one is replaced, any other file is not");
  add_look(c, g.look);
}

void add_schema(Commands& all) {
  all.add_subcommand("schema", "the JSON Schema (2020-12) of a line of results, with units", print_schema);
}

void add_convert(Commands& all) {
  const auto [c, g] =
      all.add_subcommand("convert", "results of an earlier schema as those that this version reads", convert_results);
  c.add_option("results", g.file, "a file of results, also a compressed one")->required();
  c.add_option("--out", g.out, "the file to write, which must not exist")->required();
  add_plugins(c, g.plugins);
}

}  // namespace foretoken
