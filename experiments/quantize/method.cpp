#include "experiments/quantize/method.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "experiments/quantize/calibration.h"
#include "experiments/quantize/gptq.h"
#include "experiments/quantize/rounding_error.h"
#include "experiments/quantize/scaling.h"
#include "experiments/session/workbench.h"
#include "experiments/sweep/provenance.h"
#include "experiments/sweep/workload.h"
#include "framework/model/convert.h"
#include "framework/model/in_parallel.h"
#include "framework/model/model_files.h"
#include "framework/model/model_tensors.h"
#include "framework/model/safetensors.h"
#include "framework/text/json_file.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"
#include "kernels/formats/activations/activation_format.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStates = "states";

std::string prefix_of(int layer) { return "model.layers." + std::to_string(layer) + "."; }

fs::path states_file(const fs::path& folder, int layer) {
  return folder / ("states-" + std::to_string(layer) + ".safetensors");
}

Backend& backend_of(Workbench& bench, const std::string& device) {
  return bench.backend({{"device", device}, {"threads", 0}, {"numerics", "fast"}});
}

// The inputs of one product over the text.
struct Inputs {
  Inputs(std::int64_t in, std::int64_t tokens)
      : sums(std::size_t(in), 0.0), squares(sums), largest(std::size_t(in), 0.0f), sample(in, tokens) {}

  void add(const Tensor& x) {
    by_all_cores(x.dim(1), x.dim(0), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = 0; r < x.dim(0); ++r)
        for (std::int64_t i = begin; i < end; ++i) {
          const float magnitude = std::abs(x.row<float>(r)[i]);
          sums[std::size_t(i)] += double(magnitude);
          squares[std::size_t(i)] += double(magnitude) * double(magnitude);
          largest[std::size_t(i)] = std::max(largest[std::size_t(i)], magnitude);
        }
    });
    sample.add(x);
    rows += x.dim(0);
  }
  std::vector<float> means() const {
    std::vector<float> all;
    for (const double s : sums) all.push_back(float(s / double(rows)));
    return all;
  }
  std::vector<float> norms() const {
    std::vector<float> all;
    for (const double s : squares) all.push_back(float(std::sqrt(s)));
    return all;
  }

  std::vector<double> sums, squares;  // of |x|, of x^2
  std::vector<float> largest;         // |x|
  RowSample sample;
  std::int64_t rows = 0;
  Tensor x{};                               // of the sample, as the matrices read them that are rounded
  std::optional<InputProducts> products{};  // gptq
  std::optional<GptqFactor> factor{};
};

// Methods that read a text. What differs is how its inputs scale a layer and how a matrix is rounded for them. The
// states of the layers are kept, so that a later process goes on.
class Calibrated : public Method {
 public:
  Calibrated(const WeightFormat& format, const DenseModel& model, const MethodOptions& o)
      : Method(format, model, o),
        device_(backend_of(bench_, o.device.value_or("auto"))),
        host_(device_.device().kind == Device::Kind::cpu ? device_ : backend_of(bench_, "cpu")),
        layers_(model.config().layers),
        folds_(folds_of(model.config())),
        text_(device_, model.config(), model.checkpoint(), calibration_windows(model, o)) {}

  // The layers before it are finished, by this process or by one that kept its states there.
  void begin(int number, DenseLayer& layer, const fs::path& kept) override {
    if (const auto file = states_file(kept, number); at_ != number && number > 0) {
      if (!has_file(file))
        throw Error(file.string() + ", which going on needs, is missing; remove " + kept.parent_path().string() +
                    " and give the command again");
      text_.set_states(map_safetensors(file).at(kStates));
    }
    at_ = number;
    outputs_ = {};
    inputs_.clear();
    const Tensor next = text_.observe(number, [&](std::size_t product, const Tensor& x) {
      Inputs& inputs = inputs_.try_emplace(product, x.dim(1), text_.states().dim(0)).first->second;
      inputs.add(x);
      observe(inputs, x, layer.matrices.at(Calibration::products()[product].front()).values.dtype());
    });
    if (!reads_rounded()) next_ = next;
    for (auto& [product, inputs] : inputs_) {
      if (!std::ranges::all_of(inputs.norms(), [](float n) { return std::isfinite(n); })) refuse_inputs();
      inputs.x = inputs.sample.rows();
    }
    for (const Fold& fold : folds_) {
      Inputs& inputs = inputs_.at(fold.product);
      const std::vector<float> scales = scales_of(layer, fold, inputs);
      if (scales.empty()) continue;
      fold_into(layer, fold, scales);
      inputs.x = f32_copy(inputs.x);
      for (std::int64_t r = 0; r < inputs.x.dim(0); ++r)
        for (std::size_t i = 0; i < scales.size(); ++i) inputs.x.row<float>(r)[i] /= scales[i];
    }
  }

  Weight round(const std::string& module, const Weight& dense) override {
    Inputs& inputs = inputs_.at(Calibration::product_of(module));
    Weight rounded = rounded_for(module, dense, inputs);
    outputs_ += foretoken::output_error(device_, inputs.x, dense, rounded);
    return rounded;
  }

  void end(int number, const std::map<std::string, Weight>& rounded, const fs::path& kept) override {
    inputs_.clear();
    if (number + 1 == layers_) return;  // no layer reads its outputs
    text_.set_states(reads_rounded() ? text_.outputs(number, rounded) : next_);
    const StoredTensor states = stored_tensor(kStates, text_.states());
    write_safetensors(states_file(kept, number + 1), {&states, 1});
    at_ = number + 1;
    fs::remove(states_file(kept, number - 1));  // the layer before this is finished
  }

  std::optional<double> output_error() const override { return outputs_.relative(); }

 protected:
  virtual Weight rounded_for(const std::string& module, const Weight& dense, Inputs& inputs) = 0;
  // Scales that can be folded; none: the inputs stay as they are.
  virtual std::vector<float> scales_of(const DenseLayer&, const Fold&, const Inputs&) { return {}; }
  // What else is summed of the inputs. `type`: of the matrices.
  virtual void observe(Inputs&, const Tensor& /*x*/, DType /*type*/) {}
  // Whether the inputs of a layer are those that the rounded layers before it give, or the dense ones.
  virtual bool reads_rounded() const { return false; }

  static std::vector<Weight> matrices_of(const DenseLayer& layer, const Fold& fold) {
    std::vector<Weight> all;
    for (const std::string& module : Calibration::products()[fold.product]) all.push_back(layer.matrices.at(module));
    return all;
  }

  Workbench bench_;
  Backend& device_;
  Backend& host_;  // in host memory, for what is computed in f32: the same, where that is one

 private:
  int layers_, at_ = 0;  // the layer that reads the states
  std::vector<Fold> folds_;
  Calibration text_;
  std::map<std::size_t, Inputs> inputs_;  // by product
  Tensor next_;                           // the outputs of the dense layer
  SquaredError outputs_;
};

class Gptq final : public Calibrated {
 public:
  Gptq(const WeightFormat& format, const DenseModel& model, const MethodOptions& o)
      : Calibrated(format, model, o), by_size_(o.act_order) {}
  SchemeFacts facts() const override { return {.ordered_columns = by_size_}; }

 private:
  void observe(Inputs& inputs, const Tensor& x, DType type) override {
    if (!inputs.products) inputs.products.emplace(device_, x.dim(1), type);
    inputs.products->add(x);
  }
  Weight rounded_for(const std::string&, const Weight& dense, Inputs& inputs) override {
    constexpr double kDamping = 0.01;
    if (!inputs.factor) inputs.factor.emplace(host_, inputs.products->sums(), kDamping, by_size_);
    return gptq(host_, dense, format_, *inputs.factor, by_all_cores);
  }
  bool reads_rounded() const override { return true; }

  bool by_size_;
};

// Wanda (Sun et al. 2023, arXiv 2306.11695): of each four inputs of an output the two with the greatest |w| |x| stay,
// where |x| is the norm of the input over the text. No weight changes.
class Wanda final : public Calibrated {
 public:
  using Calibrated::Calibrated;

 private:
  Weight rounded_for(const std::string&, const Weight& dense, Inputs& inputs) override {
    return pruned(dense, inputs.norms(), by_all_cores);
  }
  bool reads_rounded() const override { return true; }
};

// AWQ and SmoothQuant read the text with the dense model, as their papers do.
class Awq final : public Calibrated {
 public:
  using Calibrated::Calibrated;

 private:
  std::vector<float> scales_of(const DenseLayer& layer, const Fold& fold, const Inputs& inputs) override {
    return awq_scales(device_, matrices_of(layer, fold), format_, inputs.means(), inputs.sample.rows(),
                      [&](std::span<const float> scales) { return foldable(layer, fold, scales); });
  }
  // Queries and keys are not cut: their outputs are multiplied by each other, so an error of them says little (as in
  // the authors' program).
  Weight rounded_for(const std::string& module, const Weight& dense, Inputs& inputs) override {
    if (module == "self_attn.q_proj" || module == "self_attn.k_proj") return nearest(dense);
    return awq_rounded(host_, dense, format_, inputs.x);
  }
};

// Scales are folded into norms alone, as in the paper; outputs and the inputs of `down` are rounded as they are.
class SmoothQuant final : public Calibrated {
 public:
  SmoothQuant(const WeightFormat& format, const DenseModel& model, const MethodOptions& o)
      : Calibrated(format, model, o), alpha_(o.alpha.value_or(0.5)) {}
  SchemeFacts facts() const override { return {.rounds_inputs = true}; }

 private:
  std::vector<float> scales_of(const DenseLayer& layer, const Fold& fold, const Inputs& inputs) override {
    if (layer.matrices.contains(fold.maker)) return {};
    return foldable(layer, fold, smoothing_scales(matrices_of(layer, fold), inputs.largest, alpha_));
  }
  // As the checkpoint says that it is read: inputs are rounded too.
  Weight rounded_for(const std::string&, const Weight& dense, Inputs&) override {
    return with_activations(nearest(dense), formats::int8_rows());
  }

  double alpha_;
};

template <class M>
std::unique_ptr<Method> made(const WeightFormat& format, const DenseModel& model, const MethodOptions& o) {
  return std::make_unique<M>(format, model, o);
}

struct Known {
  const char* name;
  std::unique_ptr<Method> (*make)(const WeightFormat&, const DenseModel&, const MethodOptions&);
  bool reads_text;
  bool codes, sparse;  // the formats to which it rounds: those of codes, 2:4
};

constexpr Known kMethods[] = {{"rtn", made<Method>, false, true, true},
                              {"gptq", made<Gptq>, true, true, false},
                              {"awq", made<Awq>, true, true, false},
                              {"smoothquant", made<SmoothQuant>, true, true, false},
                              {"wanda", made<Wanda>, true, false, true}};

void expect_options(const MethodOptions& o, const Known& method) {
  const std::string name = method.name;
  if (method.reads_text && o.calibrate.empty())
    throw Error("the method " + name +
                " needs a calibration text; name one with --calibrate, as experiments/prompts.jsonl");
  if (!method.reads_text && !o.calibrate.empty())
    throw Error("the method " + name + " reads no calibration text; leave --calibrate out");
  if (!method.reads_text && o.tokens)
    throw Error("the method " + name + " reads no calibration text; leave --tokens out");
  if (!method.reads_text && o.device)
    throw Error("the method " + name + " reads no calibration text, for which --device is; leave --device out");
  if (o.alpha && name != "smoothquant")
    throw Error("the method " + name + " has no alpha to be given (awq searches for it); leave --alpha out");
  if (o.alpha && !(*o.alpha >= 0 && *o.alpha <= 1))
    throw Error("alpha is " + std::to_string(*o.alpha) + "; give one from 0 to 1 with --alpha");
  if (o.act_order && name != "gptq")
    throw Error("the method " + name + " rounds columns in no order; leave --act-order out");
}

void expect_format(const WeightFormat& format, const Known& method) {
  const bool sparse = format.coding() == Coding::sparse;
  const std::string name = method.name;
  if (name == "smoothquant" && !sparse && format.name() != "int8")
    throw Error("the method smoothquant rounds weights and inputs to 8-bit integers, not to " + format.name() +
                "; give --format int8");
  if (sparse ? method.sparse : method.codes) return;
  throw Error(sparse ? "the method " + name + " chooses codes, which the format " + format.name() + " (" +
                           format.meaning() + ") does not have; choose --method rtn or wanda"
                     : "the method wanda chooses the inputs that stay, and the format " + format.name() +
                           " leaves none out; choose --format sparse24, or another --method");
}

}  // namespace

DenseModel::DenseModel(const std::filesystem::path& directory) : directory_(directory) {
  if (is_one_file(directory))
    throw Error(directory.string() +
                " is a file, but only directories in Hugging Face form are quantized; name the directory from which it "
                "was made, or run the file as it is");
  expect_model_directory(directory);
  json_ = nlohmann::ordered_json::parse(read_file(directory / "config.json"), nullptr, false);
  if (json_.is_object() && json_.contains("quantization_config") && !json_["quantization_config"].is_null())
    throw Error(directory.string() +
                " is quantized already (its config.json has quantization_config); name a model with "
                "dense weights");
  config_ = ModelConfig::load(directory);
  if (config_.mixture)
    throw Error(directory.string() + " is a mixture of experts (" + config_.architecture +
                "), which foretoken quantize does not round; load it with \"dtype\", or name a dense model");
  if (config_.vision)
    throw Error(directory.string() + " has a vision tower (" + config_.architecture +
                "), which foretoken quantize does not round; load it with \"dtype\", or name a model of text alone");
  if (config_.latent)
    throw Error(directory.string() + " has latent attention (" + config_.architecture +
                "), whose matrices foretoken quantize does not round; load it with \"dtype\", or name another model");
  checkpoint_.emplace(Checkpoint::open(directory));
  expect_no_other_tensors(config_, *checkpoint_);
  shapes_ = tensors_of(config_);
}

DenseLayer DenseModel::layer(int number) const {
  constexpr std::string_view kWeight = ".weight";
  DenseLayer found;
  found.prefix = prefix_of(number);
  std::set<std::string> matrices;
  for (const auto& [name, shape] : shapes_) {
    if (!name.starts_with(found.prefix) || !name.ends_with(kWeight) || shape.rank() != 2) continue;
    const Tensor values = checkpoint_->tensor(name, shape);
    found.modules.push_back(name.substr(found.prefix.size(), name.size() - found.prefix.size() - kWeight.size()));
    found.matrices[found.modules.back()] =
        Weight::dense(values.dtype() == DType::bf16 ? values : converted(values, DType::f32));
    matrices.insert(name);
  }
  for (const std::string& name : checkpoint_->names())
    if (name.starts_with(found.prefix) && !matrices.contains(name))
      found.others.push_back(stored_tensor(name, checkpoint_->tensor(name)));
  return found;
}

std::vector<StoredTensor> DenseModel::outside() const {
  std::vector<StoredTensor> found;
  for (const std::string& name : checkpoint_->names()) {
    bool within = false;
    for (int l = 0; l < config_.layers; ++l) within |= name.starts_with(prefix_of(l));
    if (!within) found.push_back(stored_tensor(name, checkpoint_->tensor(name)));
  }
  return found;
}

Weight Method::nearest(const Weight& dense) const { return quantize(dense, format_, 0, by_all_cores); }

std::vector<std::string> quantization_methods() { return names_of(kMethods); }

std::unique_ptr<Method> make_method(const MethodOptions& o, const DenseModel& model, const WeightFormat& format) {
  const Known* const method = std::ranges::find(kMethods, o.name, &Known::name);
  if (method == std::end(kMethods)) unknown_name("method", o.name, quantization_methods());
  expect_options(o, *method);
  expect_format(format, *method);
  return method->make(format, model, o);
}

nlohmann::json job_of(const MethodOptions& o) {
  if (o.calibrate.empty()) return {{"method", o.name}};
  return {{"method", o.name},
          {"calibrate", fingerprint(locate(o.calibrate))},
          {"tokens", o.tokens.value_or(kCalibrationTokens)},
          {"alpha", o.alpha ? nlohmann::json(*o.alpha) : nlohmann::json()},
          {"act_order", o.act_order},
          {"device", o.device.value_or("auto")}};
}

}  // namespace foretoken
