#include "experiments/program/commands.h"

#include <cstdio>
#include <filesystem>

#include <spdlog/spdlog.h>

#include "experiments/bench/bench.h"
#include "experiments/bench/bench_steps.h"
#include "experiments/conformance/check.h"
#include "experiments/conformance/laws.h"
#include "experiments/quality/quality.h"
#include "experiments/quantize/quantize.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/quickstart.h"
#include "experiments/sweep/rounds.h"
#include "experiments/sweep/soak.h"
#include "foretoken_version.h"
#include "framework/components/plugin.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

ordered_json described(const Option& o) {
  ordered_json option{{"name", o.name},
                      {"type", o.type},
                      {"needed", o.standard.is_null() && !o.optional},
                      {"default", o.standard},
                      {"meaning", o.meaning}};
  if (o.least > -1e300) option["least"] = o.least;
  if (o.most < 1e300) option["most"] = o.most;
  return option;
}

template <class T> ordered_json described(const Registry<T>& registry) {
  ordered_json all = ordered_json::array();
  for (const auto& [name, entry] : registry.entries()) {
    ordered_json options = ordered_json::array();
    for (const Option& o : entry.options) options.push_back(described(o));
    all.push_back({{"name", name}, {"summary", entry.summary}, {"source", entry.source}, {"options", options}});
    if (!entry.plugin.empty()) all.back()["plugin"] = entry.plugin;
  }
  return all;
}

std::string text_of(const std::string& title, const ordered_json& entries) {
  const auto text = [](const ordered_json& of, const char* key) { return of[key].get<std::string>(); };
  std::string s = title + "\n";
  for (const auto& e : entries) {
    s += "  " + text(e, "name") + ": " + text(e, "summary") +
         (e["source"] == "" ? "" : "  [" + text(e, "source") + "]") +
         (e.contains("plugin") ? "  from " + text(e, "plugin") : "") + "\n";
    for (const auto& o : e["options"])
      s += "      " + text(o, "name") + "  " + text(o, "type") + ", " +
           (o["needed"] ? "needed" : "default " + o["default"].dump()) + ": " + text(o, "meaning") + "\n";
  }
  return s;
}

}  // namespace

std::string list_registered(const Registries& registries, bool as_json) {
  const ordered_json drafters = described(registries.drafters), policies = described(registries.policies),
                     verifiers = described(registries.verifiers);
  if (as_json)
    return ordered_json{{"drafters", drafters}, {"policies", policies}, {"verifiers", verifiers}}.dump(2) + "\n";
  return text_of("drafters", drafters) + "\n" + text_of("length policies", policies) + "\n" +
         text_of("verifiers", verifiers);
}

void add_look(CLI::App& command, Look& look, bool latex) {
  std::vector<std::string> formats = {"terminal", "markdown", "csv", "json"};
  if (latex) formats.emplace_back("latex");
  add_shown(command, "--format", look.format, "how tables are written")->check(CLI::IsMember(formats));
  command.add_flag("--json", look.json, "the same for programs");
}

CLI::Option* add_repeatable(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                            const std::string& meaning) {
  return command.add_option(name, values, meaning)->allow_extra_args(false)->take_all();
}

CLI::Option* add_list_option(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                             const std::string& meaning) {
  return add_repeatable(command, name, values, meaning)->delimiter(',');
}

CLI::Option* add_numbers(CLI::App& command, const std::string& name, std::vector<int>& values, int least, int most,
                         const std::string& meaning) {
  return command.add_option(name, values, meaning)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->take_all()
      ->check(CLI::Range(least, most));
}

void add_plugins(CLI::App& command, std::vector<std::string>& plugins) {
  add_repeatable(command, "--plugin", plugins,
                 "a shared library with drafters, policies or verifiers; may be given again");
}

Registries with_plugins(const std::vector<std::string>& plugins) {
  Registries registries = conformance::all_registries();
  for (const auto& path : plugins) load_plugin(path, registries);
  return registries;
}

void add_tables(CLI::App& command, std::vector<std::string>& tables, const std::string& standard) {
  add_list_option(
      command, "--tables", tables,
      "which of main, theory, positions, categories, load, latency, phases, memory, best; or all (default: " +
          standard + ")");
}

std::vector<std::string> chosen_tables(const std::vector<std::string>& given,
                                       const std::vector<std::string>& standard) {
  if (given == std::vector<std::string>{"all"}) return {};
  return given.empty() ? standard : given;
}

std::vector<Run> SweepChoice::runs(Workbench& bench) {
  if (document.empty()) return {};
  const std::filesystem::path file = document;
  const auto read = read_document(file);
  if (std::exchange(stand_ins, false)) put_stand_ins(read, document, set);
  bench.load_plugins(read, file.parent_path());
  return expand(read, set, bench.registries(), file.string());
}

void put_stand_ins(const nlohmann::ordered_json& document, const std::string& file, std::vector<std::string>& set) {
  std::vector<std::string> all = stand_ins(document, file);
  if (all.empty())
    throw Error(
        file +
        " has no \"stand_ins\", which --stand-ins would apply; leave the option out, or change models with --set");
  all.insert(all.end(), set.begin(), set.end());
  set = std::move(all);
}

std::set<std::string> keys_of(const std::vector<Run>& runs) {
  std::set<std::string> keys;
  for (const Run& run : runs) keys.insert(run.key);
  return keys;
}

void add_sweep(CLI::App& command, SweepChoice& sweep, const std::string& meaning) {
  CLI::Option* const document = command.add_option("--sweep", sweep.document, meaning);
  add_repeatable(command, "--set", sweep.set, "/POINTER=VALUE, as it was given to run; may be given again")
      ->needs(document);
  command.add_flag("--stand-ins", sweep.stand_ins, "the document's \"stand_ins\", as they were given to run")
      ->needs(document);
  add_plugins(command, sweep.plugins);
}

void refuse_empty_values(CLI::App& app) {
  const CLI::Validator something(
      [](std::string& value) {
        return value.empty() ? std::string("the value is empty; give one, or leave the option out") : "";
      },
      "");
  for (CLI::App* const command : app.get_subcommands(nullptr))
    for (CLI::Option* const option : command->get_options(nullptr))
      if (option->get_items_expected_max() > 0) option->transform(something);  // before any other check
}

CLI::Validator number_within(double least, double most) {
  char range[80];
  std::snprintf(range, sizeof range, "a number from %.10g to %.10g", least, most);
  const auto check = [=, wanted = std::string(range)](std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) return "";
    return "'" + text + "' is not in range; give " + wanted;
  };
  return {check, range};
}

json json_object(const std::string& text, const std::string& option) {
  json value = json::parse(text, nullptr, false);
  if (!value.is_object()) throw Error(option + " takes a JSON object, not '" + text + "'");
  return value;
}

json component_config(const std::string& text, const std::string& option) {
  if (text.empty()) return nullptr;
  const json config = text.front() == '{' ? json_object(text, option) : json{{"name", text}};
  if (!config.contains("name") || !config["name"].is_string())
    throw Error(option + " '" + text + "' has no name; write it as " + option +
                " '{\"name\": NAME, ...}' with a name that foretoken list has");
  return config;
}

namespace {

struct Listing {
  std::vector<std::string> plugins;
  bool flag = false, models = false;
};

int run_quickstart(Shown<QuickstartOptions>& g) { return quickstart(g.whole()); }

int run_list(Listing& g) {
  print(g.models ? list_models(g.flag) : list_registered(with_plugins(g.plugins), g.flag));
  return 0;
}

int run_keys(Listing& g) {
  print(describe_keys(with_plugins(g.plugins), g.flag));
  return 0;
}

int run_options(Listing& g) {
  const Registries registries = with_plugins(g.plugins);
  print(conformance::option_tables(registries));
  for (const std::string& sentence : conformance::left_out({registries, nullptr, {{"name", "fixed"}}, nullptr}))
    spdlog::warn("without a column or table: {}", sentence);
  return 0;
}

int print_version(Listing&) {
  std::printf("foretoken %s, commit %s, %s, %s\n", kVersion, kCommit, kCompiler, kBuildType);
  return 0;
}

struct BenchFlags {
  BenchOptions products;
  StepsOptions steps;
  SoakOptions soak;
};

int run_any_bench(BenchFlags& g) {
  g.steps.json = g.soak.json = g.products.json;
  g.soak.results = g.products.results = g.steps.results;
  if (!g.soak.file.empty()) return run_soak(g.soak);
  return g.steps.file.empty() ? run_bench(g.products) : run_steps(g.steps);
}

// What is measured, where neither --steps nor --soak is given.
void add_product_options(CLI::App& command, BenchOptions& g) {
  command.add_option("--model", g.model,
                     "directory, GGUF file or published shape whose products to measure (default: the demo target)");
  add_shown(command, "--dtype", g.dtype, "of the weights: bf16, f32, or a weight format as of /target/dtype");
  add_shown(command, "--threads", g.threads, "0: as many as the machine has")->check(CLI::Range(0, 1024));
  command.add_option("--instructions", g.instructions,
                     "amx, avx512bf16, avx512vnni, avx512, avx2 or scalar (default: the best)");
  command.add_option("--rows", g.rows, "rows of the products, separated by commas (default: 1 to 64)")
      ->delimiter(',')
      ->check(CLI::Range(1, 8192));
  add_shown(command, "--repeats", g.repeats, "repeats of every measurement; medians are reported")
      ->check(CLI::Range(1, 1000000));
}

struct QualityFlags : Shown<QualityOptions> {
  CLI::App* command = nullptr;
};

int run_quality_of(QualityFlags& g) {
  if (!g.options.thinned.empty() && g.options.max_new_tokens > 0)
    for (const std::string option : {"--prompts", "--limit", "--max-new-tokens"})
      if (g.command->count(option) > 0)
        throw Error("--thin compares no outputs, so " + option + " has no use; leave one of them out");
  return run_quality(g.whole());
}

int run_quantize_here(QuantizeOptions& g) {
  g.width = terminal_columns(STDOUT_FILENO);
  return run_quantize(g);
}

}  // namespace

void add_quickstart(Commands& all) {
  const auto [c, given] = all.add_subcommand(
      "quickstart", "a first table of acceptance rates and speedups, in about three minutes", run_quickstart);
  QuickstartOptions& g = given.options;
  add_shown(c, "--results", g.results,
            "file of results; an older file is renamed to FILE.1, or to the next free number");
  add_shown(c, "--seconds", g.seconds, "seconds to measure for, where three alternations of each run take less")
      ->check(CLI::Range(1, 86400));
  add_shown(c, "--device", g.device, "auto, cpu, reference or cuda");
  add_repeatable(c, "--set", g.settings,
                 "/POINTER=VALUE, a change of the sweep, whose table then compares with no other");
  add_look(c, given.look);
}

void add_list(Commands& all) {
  const auto [c, g] =
      all.add_subcommand("list", "drafters, length policies and verifiers, with their options", run_list);
  add_plugins(c, g.plugins);
  c.add_flag("--json", g.flag, "the same for programs");
  c.add_flag("--models", g.models, "the families of models that are read, and the published shapes, instead");
}

void add_keys(Commands& all) {
  const auto [c, g] = all.add_subcommand("keys", "every key of a run document, with type, range and default", run_keys);
  add_plugins(c, g.plugins);
  c.add_flag("--markdown", g.flag, "print the Markdown tables of experiments/keys.md");
}

void add_options(Commands& all) {
  const auto [c, g] = all.add_subcommand(
      "options", "sampling options against drafters and verifiers: exact, or refused with the reason (Markdown)",
      run_options);
  add_plugins(c, g.plugins);
}

void add_bench(Commands& all) {
  const auto [c, g] = all.add_subcommand(
      "bench", "measure this machine's limits, and matrix products beside their roofline", run_any_bench);
  CLI::Option* const file = c.add_option(
      "--steps", g.steps.file,
      "measure whole steps of the engine instead: a JSON file of scenarios, as experiments/configs/steps.json");
  c.add_option("--only", g.steps.only, "only scenarios whose name contains this")->needs(file);
  c.add_option("--device", g.steps.device, "device of the scenarios: auto, cpu, reference or cuda")->needs(file);
  c.add_option("--results", g.steps.results, "a file to which JSON lines are appended");
  add_product_options(c, g.products);
  c.add_flag("--json", g.products.json, "the same for programs");
  CLI::Option* const endured =
      c.add_option("--soak", g.soak.file,
                   "serve thousands of queued requests of a run instead: experiments/configs/soak.json")
          ->excludes(file);
  for (const char* shapes : {"--model", "--dtype", "--threads", "--instructions", "--rows", "--repeats"})
    c.get_option(shapes)->excludes(file)->excludes(endured);
  add_shown(c, "--requests", g.soak.requests, "number of requests of --soak")
      ->check(CLI::Range(1, 100000000))
      ->needs(endured);
}

void add_version(Commands& all) { all.add_subcommand("version", "print version, commit and compiler", print_version); }

void add_quality(Commands& all) {
  const auto [c, given] = all.add_subcommand(
      "quality",
      "what a format of weights, or a type of the cache, costs besides time: perplexity, KL divergence, equal outputs",
      run_quality_of);
  given.command = &c;
  QualityOptions& g = given.options;
  c.add_option("--model", g.model, "Hugging Face directory, or a model as JSON, as in a run")->required();
  add_list_option(c, "--dtype", g.dtypes, "types of its weights, a row of the tables for each (default: as stored)");
  add_list_option(c, "--kv-dtype", g.kv_dtypes, "types of its cache as of /target/kv_dtype, likewise (default: auto)");
  add_list_option(c, "--thin", g.thinned,
                  "SINKS+WINDOW: read only so many first and last tokens of the cache, likewise, as 4+256; outputs are "
                  "not compared then");
  c.add_option("--reference", g.reference,
               "the model to compare with, likewise (default: where a type or --thin is given, the model as stored)");
  c.add_option("--text", g.text, "a text to predict, or .jsonl with a document a line (default: the demo prompts)");
  const auto count = CLI::Range(1, 100000000);
  c.add_option("--tokens", g.windows.predicted, "predict no more than so many tokens (default: all)")->check(count);
  c.add_option("--window", g.windows.window, "tokens that a prediction sees at most (default: 512, or the context)")
      ->check(count);
  c.add_option("--stride", g.windows.stride, "tokens between the beginnings of windows (default: half a window)")
      ->check(count);
  c.add_option("--prompts", g.prompts, "JSON lines whose greedy outputs are compared (default: the demo prompts)");
  add_shown(c, "--limit", g.limit, "prompts, spread over their categories; 0: all")->check(CLI::Range(0, 100000000));
  add_shown(c, "--max-new-tokens", g.max_new_tokens, "the most tokens of an output; 0: outputs are not compared")
      ->check(CLI::Range(0, 10000000));
  add_shown(c, "--device", g.device, "auto, cpu, reference or cuda");
  add_shown(c, "--numerics", g.numerics, "of the cuda device: fast or invariant");
  add_shown(c, "--threads", g.threads, "0: as many as the machine has");
  c.add_option("--results", g.results, "a file to which a JSON line is appended for each row");
  c.add_flag("--quiet", g.quiet, "no progress");
  add_look(c, given.look);
}

void add_quantize(Commands& all) {
  const auto [c, g] = all.add_subcommand("quantize", "write a model with quantized weights, as Transformers loads it",
                                         run_quantize_here);
  c.add_option("--model", g.model, "Hugging Face directory of a dense model")->required();
  c.add_option("--format", g.format, "of the weights: int4, nf4, fp8, sparse24, ...; another name lists all")
      ->required();
  add_shown(c, "--method", g.method.name,
            "rtn: each weight to the nearest number; by the inputs of a text: gptq, awq, smoothquant, wanda")
      ->check(CLI::IsMember(quantization_methods()));
  c.add_option("--calibrate", g.method.calibrate, "a text for the other methods, or .jsonl with a document a line");
  c.add_option("--tokens", g.method.tokens,
               "of that text, at most (default: " + std::to_string(kCalibrationTokens) + ")")
      ->check(CLI::Range(1, 100000000));
  c.add_option("--alpha", g.method.alpha, "of smoothquant, 0 to 1: how much of the inputs' range weights take (0.5)");
  c.add_flag("--act-order", g.method.act_order, "gptq: columns in the order of their inputs' squares");
  c.add_option("--device", g.method.device, "that reads the text (default: auto)")
      ->check(CLI::IsMember({"auto", "cpu", "reference", "cuda"}));
  c.add_option("--out", g.out, "the directory to write; DIR.partial keeps what is done if it is interrupted")
      ->required();
  c.add_flag("--quiet", g.quiet, "no progress");
  c.add_flag("--json", g.json, "the same for programs");
}

}  // namespace foretoken
