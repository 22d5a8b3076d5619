#include "experiments/quantize/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <set>

#include "experiments/quality/blocks.h"
#include "experiments/quantize/rounding_error.h"
#include "experiments/quantize/stored_form.h"
#include "experiments/quantize/unfinished_checkpoint.h"
#include "experiments/report/table.h"
#include "experiments/report/terminal.h"
#include "experiments/session/interrupt.h"
#include "experiments/sweep/progress.h"
#include "experiments/sweep/provenance.h"
#include "framework/text/regular_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

void expect_finite(const std::string& module, const Weight& w) {
  const auto finite = [](auto v) { return std::isfinite(float(v)); };
  if (w.kept ? std::ranges::all_of(w.values.values<bf16>(), finite)
             : std::ranges::all_of(w.scales.values<float>(), finite))
    return;
  throw Error("the matrix '" + module +
              "' holds numbers that are not finite, or too large "
              "for the format; its checkpoint is damaged, or needs another format");
}

// Rounds and writes one layer; what is known of it goes into the list of the unfinished checkpoint.
void write_layer(const DenseModel& model, Method& method, const StoredForm& form, int number,
                 UnfinishedCheckpoint& work) {
  DenseLayer layer = model.layer(number);
  method.begin(number, layer, work.scratch());
  std::vector<StoredTensor> tensors = std::move(layer.others);
  std::map<std::string, Weight> all_rounded;
  SquaredError all;
  json groups = json::object(), worst = {{"error", 0.0}, {"matrix", ""}};
  for (const std::string& module : layer.modules) {
    check_interrupt();
    const std::string name = layer.prefix + module;
    const Weight &dense = layer.matrices.at(module), rounded = method.round(module, dense);
    expect_finite(name, rounded);
    for (StoredTensor& t : form.tensors(name, rounded)) tensors.push_back(std::move(t));
    const SquaredError error = rounding_error(dense, rounded);
    all += error;
    groups[name] = rounded.group;
    if (error.relative() >= worst["error"].get<double>()) worst = {{"error", error.relative()}, {"matrix", module}};
    all_rounded.emplace(module, rounded);
  }
  const std::optional<double> outputs = method.output_error();
  method.end(number, all_rounded, work.scratch());
  work.add(number, tensors,
           {{"error", all.relative()},
            {"worst", worst},
            {"outputs", outputs ? json(*outputs) : json()},
            {"groups", groups}});
}

// Weights in any form, and what lists them.
bool holds_weights(const fs::path& file) {
  static const std::set<std::string> kEndings = {".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".gguf"};
  return kEndings.contains(file.extension().string()) || file.string().ends_with(".index.json");
}

// config.json with its quantization_config, and every other file of the model but its weights.
void write_other_files(const DenseModel& model, const StoredForm& form, const SchemeFacts& facts,
                       UnfinishedCheckpoint& work) {
  std::map<std::string, int> groups;
  for (int l = 0; l < model.config().layers; ++l)
    for (const auto& [module, size] : work.facts(l)["groups"].items()) groups[module] = size;
  const auto write = [&](const fs::path& name, const std::string& bytes) {
    const std::string_view piece = bytes;
    write_whole(work.folder() / name, {&piece, 1});
  };
  for (const auto& entry : fs::directory_iterator(model.directory()))
    if (entry.is_regular_file() && !holds_weights(entry.path()) && entry.path().filename() != "config.json")
      write(entry.path().filename(), read_bytes(entry.path(), entry.path().string(), "check its permissions"));
  nlohmann::ordered_json config = model.config_json();
  config["quantization_config"] = form.config(groups, facts);
  write("config.json", config.dump(2) + "\n");
}

LayerError error_of(int layer, const json& facts) {
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  return {layer, facts["error"], facts["outputs"].is_null() ? unknown : facts["outputs"].get<double>(),
          facts["worst"]["error"], facts["worst"]["matrix"]};
}

Table table_of(const std::vector<LayerError>& errors, const QuantizeOptions& o) {
  Table t{"Rounding to " + o.format + " by " + o.method.name,
          o.out.string(),
          {{"layer", "layer", ""},
           {"error", "error", "|W - W'| / |W| of the layer's matrices W, rounded to W'; Frobenius norms"},
           {"outputs", "outputs", "the same of the outputs of its products on the calibration text"},
           {"worst", "worst", "the greatest of one of its matrices"},
           {"matrix", "matrix", "that matrix", Column::Kind::text}},
          {}};
  for (const LayerError& e : errors)
    t.rows.push_back(
        {{Cell::of(e.layer, 0), Cell::of(e.error, 5), Cell::of(e.outputs, 5), Cell::of(e.worst, 5), Cell::of(e.matrix)},
         "",
         false});
  return t;
}

json json_of(const std::vector<LayerError>& errors, const QuantizeOptions& o) {
  json layers = json::array();
  for (const LayerError& e : errors)
    layers.push_back({{"layer", e.layer},
                      {"error", e.error},
                      {"outputs", std::isfinite(e.outputs) ? json(e.outputs) : json()},
                      {"worst", e.worst},
                      {"matrix", e.matrix}});
  return {{"format", o.format},
          {"method", o.method.name},
          {"model", o.model.string()},
          {"out", o.out.string()},
          {"layers", layers}};
}

}  // namespace

std::vector<LayerError> quantize_checkpoint(const QuantizeOptions& o,
                                            const std::function<void(int finished, int layers)>& done) {
  const StoredForm& form = stored_form(o.format);
  const WeightFormat& format = *find_format(o.format);
  const DenseModel model(o.model);
  const int layers = model.config().layers;
  expect_blocks(model.config(), format, "choose another --format, such as int8");
  const std::unique_ptr<Method> method = make_method(o.method, model, format);
  json job = job_of(o.method);
  job.update({{"format", o.format}, {"model", fingerprint(o.model)}});
  UnfinishedCheckpoint work(o.out, job, layers + 1);
  std::vector<LayerError> errors;
  for (int l = 0; l < layers; ++l) {
    done(l, layers);
    if (!work.finished(l)) write_layer(model, *method, form, l, work);
    errors.push_back(error_of(l, work.facts(l)));
  }
  if (!work.finished(layers)) work.add(layers, model.others(-1), json::object());
  write_other_files(model, form, method->facts(), work);
  work.finish();
  done(layers, layers);
  return errors;
}

int run_quantize(const QuantizeOptions& o) {
  watch_interrupts();
  std::optional<Progress> progress;
  const std::vector<LayerError> errors = quantize_checkpoint(o, [&](int finished, int layers) {
    if (!progress) progress.emplace("foretoken quantize", layers, 0, o.quiet, "layers");
    progress->show(finished, o.format);
    check_interrupt();
  });
  progress.reset();
  const Table table = table_of(errors, o);
  print(o.json ? json_of(errors, o).dump() : table.terminal(o.width) + "\n" + legend({table}, o.width, false));
  return 0;
}

}  // namespace foretoken
