#include "experiments/quality/quality.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <vector>

#include <spdlog/fmt/ranges.h>

#include "experiments/quality/quality_report.h"
#include "experiments/report/machine.h"
#include "experiments/report/results.h"
#include "experiments/report/terminal.h"
#include "experiments/session/interrupt.h"
#include "experiments/session/run_document.h"
#include "experiments/session/workbench.h"
#include "experiments/sweep/measure.h"
#include "experiments/sweep/progress.h"
#include "experiments/sweep/provenance.h"
#include "experiments/sweep/workload.h"
#include "foretoken_version.h"
#include "framework/cache/page_choices.h"
#include "framework/model/model_files.h"
#include "framework/model/model_tensors.h"
#include "framework/model/open_model.h"
#include "framework/model/quantized/quantization.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"
#include "kernels/formats/activations/activation_format.h"

namespace foretoken {
namespace {

using nlohmann::json;

constexpr int kOutputsAtOnce = 8;
constexpr const char* kPrompts = "experiments/prompts.jsonl";

// A model of an option: a path, or JSON.
json model_of(const std::string& option, const std::string& value) {
  return value.starts_with("{") ? parse_json(value, option) : json(value);
}

// The same model with its own types of numbers.
json as_stored(json model) {
  if (model.is_object())
    for (const char* key : {"dtype", "head_dtype", "kv_dtype"}) model.erase(key);
  return model;
}

// A complete run of plain decoding with this model.
json run_of(const QualityOptions& o, const json& model, const std::string& dtype, const std::string& kv_dtype,
            const Registries& registries) {
  const json document = {
      {"target", {{"model", model}, {"dtype", dtype}, {"kv_dtype", kv_dtype}}},
      {"engine", {{"device", o.device}, {"threads", o.threads}, {"numerics", o.numerics}, {"batch", kOutputsAtOnce}}},
      {"workload",
       {{"prompts", o.prompts.empty() ? kPrompts : o.prompts},
        {"limit", o.limit},
        {"max_new_tokens", std::max(1, o.max_new_tokens)}}}};
  return complete_run(document, registries, "quality");
}

// "w8a8", or "fp8_tensor, inputs fp8" where no dtype is called so. `inputs`: nullptr if they are not rounded.
std::string type_of(const WeightFormat& weights, const ActivationFormat* inputs) {
  const auto found = std::ranges::find_if(
      precisions(), [&](const Precision& p) { return p.weights == &weights && p.activations == inputs; });
  if (found != precisions().end()) return found->name;
  return weights.name() + (inputs ? ", inputs " + inputs->name() : "");
}

// "auto (int4; w8a8)": what tables call the type of weights of a model that is quantized as it is stored.
std::string stored_type(const OpenModel& open) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  const std::vector<const WeightFormat*> formats = open.tensors->formats();
  if (const auto& q = open.config.quantization; q && !formats.empty())
    for (const Activations& a : q->schemes()) add(type_of(*a.weights, a.format()));
  else
    for (const WeightFormat* format : formats) add(type_of(*format, nullptr));
  return names.empty() ? "auto" : fmt::format("auto ({})", fmt::join(names, "; "));
}

// The type of a run's weights, as tables have it. An Error: the model cannot be loaded with it, as far as its
// configuration tells.
std::string expect_type(const json& run) {
  const OpenModel open = open_model(target_of(run), [](const std::string& directory) {
    const std::filesystem::path path = locate(directory);
    expect_model(path);
    return path;
  });
  if (const Precision* precision = find_precision(open.dtype))
    expect_blocks(open.config, *precision->weights, "leave '" + open.dtype + "' out of --dtype");
  const std::string dtype = target_of(run).dtype;
  return dtype == "auto" ? stored_type(open) : dtype;
}

// What "4+256" means; nullptr: whole caches.
PageChoice choice_of(const std::string& thinned) {
  if (thinned.empty()) return {};
  static const std::regex form("([0-9]{1,8})\\+([0-9]{1,8})");
  std::smatch numbers;
  const int window = std::regex_match(thinned, numbers, form) ? std::stoi(numbers[2]) : 0;
  if (window < 1)
    throw Error("'" + thinned +
                "' of --thin does not say how many first and last tokens of the cache are read; give both, the second "
                "at least 1, as 4+256");
  return sinks_and_window(std::stoi(numbers[1]), window);
}

WindowOptions windows_for(const QualityOptions& o, const ModelInfo& model, const ModelInfo* reference) {
  constexpr int kWindow = 512;
  const int most = reference ? std::min(model.positions, reference->positions) : model.positions;
  WindowOptions w = o.windows;
  if (w.window == 0) w.window = std::min(kWindow, most);
  if (w.window > most)
    throw Error("a window of " + std::to_string(w.window) + " tokens is longer than the context of " +
                std::to_string(most) + " tokens; lower --window");
  if (w.stride == 0) w.stride = std::max(1, w.window / 2);
  return w;
}

// The text, the prompts, and the models of one row after another; what the reference wrote is kept for the next row.
class Measurement {
 public:
  // Reads and checks what needs no weights. `runs`: of the rows, which differ in the type of weights alone;
  // `reference`: a run, or null.
  Measurement(const QualityOptions& options, Workbench& bench, const std::vector<json>& runs, json reference)
      : o_(options), bench_(bench), reference_(std::move(reference)) {
    for (const json& run : runs) types_[target_of(run).dtype] = expect_type(run);
    for (const std::string& thinned : o_.thinned) (void)choice_of(thinned);
    const json& run = runs.front();
    const ModelInfo model = bench_.target_info(run, "");
    const std::optional<ModelInfo> other =
        compared() ? std::optional(bench_.target_info(reference_, "")) : std::nullopt;
    windows_ = windows_for(o_, model, other ? &*other : nullptr);
    text_.documents = documents_of(text_name(), "--text", *bench_.tokenizer(target_of(run), ""));
    text_.windows = windows_of(text_.documents, windows_);
    expect_vocabulary(text_, model, other ? &*other : nullptr);
    const json& w = run["workload"];
    if (writes()) prompts_ = choose_prompts(read_prompts(locate(w["prompts"])), {}, w["limit"], w["skip"]);
  }

  std::string text_name() const { return o_.text.empty() ? kPrompts : o_.text; }

  // `show` is called with what is done now and the share of the row that is done; it may throw to stop.
  QualityRow row(const json& run, const std::string& thinned,
                 const std::function<void(const std::string&, double)>& show) {
    Backend& backend = bench_.backend(run["engine"]);
    const auto model = bench_.target(run, ""), other = compared() ? bench_.target(reference_, "") : nullptr;
    Reading reading(backend, model, windows_.window, choice_of(thinned));
    const auto beside = other ? std::make_unique<Reading>(backend, other, windows_.window) : nullptr;
    const double share = writes() ? 0.5 : 1;
    const std::vector<TokenScore> scores =
        predict(text_, reading, beside.get(), [&](double d) { show("text", share * d); });
    QualityRow r{model->info().name,
                 types_.at(target_of(run).dtype),
                 target_of(run).kv_dtype + (thinned.empty() ? "" : ", " + thinned),
                 model->info().weight_bytes,
                 model->info().kv.bytes_per_row(),
                 compared() ? name_of(reference_) : "",
                 figures_of(text_, scores, compared()),
                 {}};
    if (!writes()) return r;
    if (outputs_.empty()) outputs_ = outputs(reference_, [&](double d) { show("outputs", 0.5 + 0.25 * d); });
    r.outputs = figures_of(outputs(run, [&](double d) { show("outputs", 0.75 + 0.25 * d); }), outputs_);
    return r;
  }

  json line(const QualityRow& row, const json& run, const std::string& thinned, double seconds) const {
    json sources = sources_of(run, bench_.registries(), "");
    if (compared()) sources.update(sources_of(reference_, bench_.registries(), ""));
    sources[text_name()] = fingerprint(locate(text_name()));
    json quality = {{"predictions", to_json(row.predictions)},
                    {"outputs", row.outputs ? to_json(*row.outputs) : json()},
                    {"weight_bytes", row.weight_bytes},
                    {"kv_bytes", row.kv_bytes},
                    {"thinned", thinned.empty() ? json() : json(thinned)},
                    {"text", text_name()},
                    {"window", windows_.window},
                    {"stride", windows_.stride}};
    return {{"quality", quality},      {"run", run},
            {"reference", reference_}, {"sources", sources},
            {"seconds", seconds},      {"machine", to_json(machine_of(bench_.backend(run["engine"])))},
            {"commit", kCommit},       {"version", kVersion},
            {"compiler", kCompiler},   {"date", utc_now()}};
  }

 private:
  bool compared() const { return !reference_.is_null(); }
  bool writes() const { return compared() && o_.max_new_tokens > 0 && o_.thinned.empty(); }

  static std::string name_of(const json& run) {
    const ModelChoice choice = target_of(run);
    return choice.text() + (choice.dtype == "auto" ? "" : " in " + choice.dtype) +
           (choice.head_dtype == "auto" ? "" : ", head in " + choice.head_dtype) +
           (choice.kv_dtype == "auto" ? "" : ", cache in " + choice.kv_dtype);
  }

  Outputs outputs(const json& run, const std::function<void(double)>& between) {
    const auto engine = bench_.engine(run, Side::baseline, "");
    const auto tokenizer = bench_.tokenizer(target_of(run), "");
    std::vector<Job> jobs;
    for (const Prompt& p : prompts_)
      jobs.push_back({request_of(run, engine->target().info(), tokenizer, {}, p, 0), p.number, p.category});
    Measured measured = measure(*engine, jobs, kOutputsAtOnce, between);
    for (std::size_t i = 0; i < jobs.size(); ++i)
      if (!measured.failures[i].empty())
        throw Error("prompt " + std::to_string(jobs[i].prompt + 1) + " of " +
                    run["workload"]["prompts"].get<std::string>() + ": " + measured.failures[i]);
    return std::move(measured.outputs);
  }

  const QualityOptions& o_;
  Workbench& bench_;
  const json reference_;
  WindowOptions windows_;
  Text text_;
  std::map<std::string, std::string> types_;  // what tables call a type of weights
  std::vector<Prompt> prompts_;
  Outputs outputs_;  // of the reference
};

}  // namespace

void expect_blocks(const ModelConfig& config, const WeightFormat& format, const std::string& remedy) {
  for (const auto& [name, shape] : tensors_of(config))
    if (shape.rank() == 2 && name.starts_with("model.layers."))
      blocks_of(format, shape[0], shape[1], 0, "the matrix '" + name + "'", remedy);
}

int run_quality(const QualityOptions& o) {
  BenchFile results(o.results, "quality", "foretoken quality");
  Workbench bench;
  const json model = model_of("--model", o.model);
  std::vector<json> runs;
  std::vector<std::string> thinned;  // of each
  const auto or_auto = [](const std::vector<std::string>& types) {
    return types.empty() ? std::vector<std::string>{"auto"} : types;
  };
  for (const std::string& dtype : or_auto(o.dtypes))
    for (const std::string& kv_dtype : or_auto(o.kv_dtypes))
      for (const std::string& pages : o.thinned.empty() ? std::vector<std::string>{""} : o.thinned) {
        runs.push_back(run_of(o, model, dtype, kv_dtype, bench.registries()));
        thinned.push_back(pages);
      }
  json reference;
  if (!o.reference.empty())
    reference = run_of(o, model_of("--reference", o.reference), "auto", "auto", bench.registries());
  else if (!o.dtypes.empty() || !o.kv_dtypes.empty() || !o.thinned.empty())
    reference = run_of(o, as_stored(model), "auto", "auto", bench.registries());
  watch_interrupts();
  Measurement measurement(o, bench, runs, reference);
  Progress progress("foretoken quality", int(runs.size()), 0, o.quiet, "models");
  std::vector<QualityRow> rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const json& run = runs[i];
    const auto start = std::chrono::steady_clock::now();
    rows.push_back(measurement.row(run, thinned[i], [&](const std::string& what, double share) {
      progress.show(int(rows.size()), what, share);
      check_interrupt();
    }));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const json line = measurement.line(rows.back(), run, thinned[i], seconds);
    results.append(line);
    progress.clear();
    if (o.format == "json") print(line.dump());
    bench.forget_unused();
  }
  if (o.format != "json") print(quality_tables(rows, measurement.text_name(), o.format, o.width));
  return 0;
}

}  // namespace foretoken
