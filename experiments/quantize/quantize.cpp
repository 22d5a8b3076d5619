#include "experiments/quantize/quantize.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <set>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "experiments/quality/quality.h"
#include "experiments/quantize/rounding_error.h"
#include "experiments/quantize/stored_form.h"
#include "experiments/report/table.h"
#include "experiments/report/terminal.h"
#include "experiments/session/interrupt.h"
#include "experiments/sweep/progress.h"
#include "experiments/sweep/provenance.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char *kList = "unfinished.json", *kLock = "lock";

// The same directory by a path whose last part is its name: of "new/" and "new/." "new".
fs::path named(const fs::path& directory) {
  const fs::path normal = directory.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

void write_json(const fs::path& file, const json& value) { write_whole(file, value.dump(2) + "\n"); }

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
  for (const auto& entry : fs::directory_iterator(model.directory()))
    if (entry.is_regular_file() && !holds_weights(entry.path()) && entry.path().filename() != "config.json")
      write_whole(work.folder() / entry.path().filename(),
                  read_bytes(entry.path(), entry.path().string(), "check its permissions"));
  nlohmann::ordered_json config = model.config_json();
  config["quantization_config"] = form.config(groups, facts);
  write_whole(work.folder() / "config.json", config.dump(2) + "\n");
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
    t.rows.emplace_back().cells = {Cell::of(e.layer, 0), Cell::of(e.error, 5), Cell::of(e.outputs, 5),
                                   Cell::of(e.worst, 5), Cell::of(e.matrix)};
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

UnfinishedCheckpoint::UnfinishedCheckpoint(const fs::path& out, const json& job, int shards)
    : out_(named(out)), folder_(out_.string() + ".partial"), job_(job), shards_(shards) {
  const auto expect_no_out = [&] {
    if (has_file(out_)) throw Error(out_.string() + " exists already; name another directory with --out, or remove it");
  };
  expect_no_out();
  try {
    make();
    lock();
    expect_no_out();  // another process may have finished meanwhile
    open();
  } catch (...) {
    if (std::error_code ignored; made_) fs::remove_all(folder_, ignored);
    throw;
  }
}

void UnfinishedCheckpoint::make() {
  std::error_code why;
  made_ = fs::create_directories(folder_, why);
  if (why)
    throw Error(folder_.string() + " cannot be made (" + why.message() +
                "); make room or correct the permissions, or name another --out");
  made_ |= fs::is_empty(folder_, why);  // a process was killed before it had its lock
  if (!made_ && !has_file(folder_ / kList) && !has_file(folder_ / kLock))
    throw Error(folder_.string() + " exists, but this command did not make it; remove it, or name another --out");
}

void UnfinishedCheckpoint::lock() {
  const fs::path file = folder_ / kLock;
  lock_.emplace(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (lock_->number() < 0)
    throw Error(file.string() + " cannot be written (" + std::strerror(errno) +
                "); make room or correct the permissions, then give the command again");
  // A file system without locks is used without. A file that is removed already was another process's to the end.
  struct stat found = {};
  const bool taken = ::flock(lock_->number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!taken && (::fstat(lock_->number(), &found) != 0 || found.st_nlink > 0)) return;
  made_ = false;
  throw Error("another process is writing " + folder_.string() + "; wait for its end, or name another --out");
}

// Reads the list, or begins one.
void UnfinishedCheckpoint::open() {
  if (const fs::path list = folder_ / kList; has_file(list)) {
    const json found = read_json(list);
    if (!found.is_object() || found.value("job", json()) != job_)
      throw Error(folder_.string() + " holds the unfinished work of another command; remove it, or name another --out");
    for (const auto& [name, done] : found["shards"].items()) {
      if (!has_file(folder_ / name)) continue;
      if (fs::file_size(folder_ / name) != done.value("file_bytes", std::uintmax_t(0)))
        throw Error((folder_ / name).string() + " is not as long as it was written; remove " + folder_.string() +
                    " and give the command again");
      shards_done_[name] = done;
    }
  } else {
    write_list();
  }
  fs::create_directories(scratch());
}

UnfinishedCheckpoint::~UnfinishedCheckpoint() {
  std::error_code ignored;
  if (made_ && shards_done_.empty()) fs::remove_all(folder_, ignored);
}

std::string UnfinishedCheckpoint::name_of(int shard) const {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", shard + 1, shards_);
  return name;
}

void UnfinishedCheckpoint::write_list() const {
  write_json(folder_ / kList, {{"job", job_}, {"shards", shards_done_}});
}

void UnfinishedCheckpoint::add(int shard, std::span<const StoredTensor> tensors, const json& facts) {
  write_safetensors(folder_ / name_of(shard), tensors);
  json bytes = json::object();
  for (const StoredTensor& t : tensors) bytes[t.name] = t.values.bytes();
  shards_done_[name_of(shard)] = {
      {"facts", facts}, {"bytes", bytes}, {"file_bytes", fs::file_size(folder_ / name_of(shard))}};
  write_list();
}

void UnfinishedCheckpoint::finish() {
  json map = json::object();
  std::int64_t bytes = 0;
  for (const auto& [shard, done] : shards_done_.items())
    for (const auto& [name, size] : done["bytes"].items()) {
      map[name] = shard;
      bytes += size.get<std::int64_t>();
    }
  write_json(folder_ / "model.safetensors.index.json", {{"metadata", {{"total_size", bytes}}}, {"weight_map", map}});
  fs::remove_all(scratch());
  fs::rename(folder_, out_);
  fs::remove(out_ / kList);
  fs::remove(out_ / kLock);
}

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
  if (!work.finished(layers)) work.add(layers, model.outside(), json::object());
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
