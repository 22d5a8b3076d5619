// Methods that scale the inputs of a layer's products, AWQ and SmoothQuant. They read the text with the dense model, as
// their papers do.
#include <algorithm>
#include <cmath>

#include "experiments/quantize/awq.h"
#include "experiments/quantize/calibration_text.h"
#include "experiments/quantize/folding.h"
#include "experiments/quantize/method.h"
#include "experiments/quantize/output_error.h"
#include "experiments/quantize/smoothing.h"
#include "framework/model/in_parallel.h"
#include "kernels/error.h"
#include "kernels/formats/activations/activation_format.h"

namespace foretoken::methods {
namespace {

// What the methods need of the inputs of one product.
struct Inputs {
  Inputs(std::int64_t in, std::int64_t tokens)
      : sums(std::size_t(in), 0.0), largest(std::size_t(in), 0.0f), sample(in, tokens) {}

  void add(const Tensor& x) {
    by_all_cores(x.dim(1), x.dim(0), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = 0; r < x.dim(0); ++r)
        for (std::int64_t i = begin; i < end; ++i) {
          const float magnitude = std::abs(x.row<float>(r)[i]);
          sums[std::size_t(i)] += double(magnitude);
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

  std::vector<double> sums;    // of |x|
  std::vector<float> largest;  // of |x|
  RowSample sample;
  std::int64_t rows = 0;
};

void expect_finite(const std::vector<float>& means) {
  if (std::ranges::all_of(means, [](float m) { return std::isfinite(m); })) return;
  throw Error(
      "the inputs of a matrix are not finite while the model reads the calibration text; calibrate with another text, "
      "or correct the model");
}

// The inputs of a scaled product, before scales are folded and after.
Tensor divided(const Tensor& x, std::span<const float> scales) {
  const Tensor y = Tensor::host(x.shape(), DType::f32);
  for (std::int64_t r = 0; r < x.dim(0); ++r)
    for (std::int64_t i = 0; i < x.dim(1); ++i) y.row<float>(r)[i] = x.row<float>(r)[i] / scales[std::size_t(i)];
  return y;
}

class Scaling : public Method {
 public:
  Scaling(const WeightFormat& format, const DenseModel& model, const MethodOptions& o)
      : format_(format), folds_(folds_of(model.config())), text_(model, o) {}

  void begin(int number, DenseLayer& layer, const std::filesystem::path& kept) override {
    outputs_ = {};
    std::map<std::size_t, Inputs> inputs;  // by product
    next_ = text_.observe(number, kept, [&](std::size_t product, const Tensor& x) {
      inputs.try_emplace(product, x.dim(1), text_.tokens()).first->second.add(x);
    });
    samples_.clear();
    for (const auto& [product, found] : inputs) {
      expect_finite(found.means());
      samples_[product] = found.sample.rows();
    }
    for (const Fold& fold : folds_) {
      const std::vector<float> scales = scales_of(layer, fold, inputs.at(fold.product));
      if (scales.empty()) continue;
      fold_into(layer, fold, scales);
      samples_[fold.product] = divided(samples_[fold.product], scales);
    }
  }

  Weight round(const std::string& module, const Weight& dense) override {
    const Tensor& x = samples_.at(Calibration::product_of(module));
    Weight rounded = rounded_for(module, dense, x);
    outputs_ += foretoken::output_error(text_.device(), x, dense, rounded);
    return rounded;
  }

  void end(int number, const std::map<std::string, Weight>&, const std::filesystem::path& kept) override {
    text_.finish(number, next_, kept);
    samples_.clear(), next_ = {};
  }

  std::optional<double> output_error() const override { return outputs_.relative(); }

 protected:
  // That can be folded; none: the inputs stay as they are.
  virtual std::vector<float> scales_of(const DenseLayer& layer, const Fold& fold, const Inputs& inputs) = 0;
  virtual Weight rounded_for(const std::string& module, const Weight& dense, const Tensor& x) = 0;

  static std::vector<Weight> matrices_of(const DenseLayer& layer, const Fold& fold) {
    std::vector<Weight> all;
    for (const std::string& module : Calibration::products()[fold.product]) all.push_back(layer.matrices.at(module));
    return all;
  }

  const WeightFormat& format_;
  std::vector<Fold> folds_;
  CalibrationText text_;

 private:
  std::map<std::size_t, Tensor> samples_;  // by product, as the scaled matrices read them
  Tensor next_;                            // the outputs of the layer
  SquaredError outputs_;
};

class Awq final : public Scaling {
 public:
  using Scaling::Scaling;

 private:
  std::vector<float> scales_of(const DenseLayer& layer, const Fold& fold, const Inputs& inputs) override {
    return awq_scales(text_.device(), matrices_of(layer, fold), format_, inputs.means(), inputs.sample.rows(),
                      [&](std::span<const float> scales) { return foldable(layer, fold, scales); });
  }
  // Queries and keys are not cut: their outputs are multiplied by each other, so an error of them says little (as in
  // the authors' program).
  Weight rounded_for(const std::string& module, const Weight& dense, const Tensor& x) override {
    if (module == "self_attn.q_proj" || module == "self_attn.k_proj") return quantize(dense, format_, 0, by_all_cores);
    return awq_rounded(text_.host(), dense, format_, x);
  }
};

// Scales are folded into norms alone, as in the paper; outputs and the inputs of `down` are rounded as they are.
class SmoothQuant final : public Scaling {
 public:
  SmoothQuant(const WeightFormat& format, const DenseModel& model, const MethodOptions& o)
      : Scaling(format, model, o), alpha_(o.alpha.value_or(0.5)) {}
  SchemeFacts facts() const override { return {.rounds_inputs = true}; }

 private:
  std::vector<float> scales_of(const DenseLayer& layer, const Fold& fold, const Inputs& inputs) override {
    if (layer.matrices.contains(fold.maker)) return {};
    return foldable(layer, fold, smoothing_scales(matrices_of(layer, fold), inputs.largest, alpha_));
  }
  // As the checkpoint says that it is read: inputs are rounded too.
  Weight rounded_for(const std::string&, const Weight& dense, const Tensor&) override {
    return with_activations(quantize(dense, format_, 0, by_all_cores), formats::int8_rows());
  }

  double alpha_;
};

}  // namespace

std::unique_ptr<Method> awq(const WeightFormat& format, const DenseModel& model, const MethodOptions& options) {
  return std::make_unique<Awq>(format, model, options);
}

std::unique_ptr<Method> smoothquant(const WeightFormat& format, const DenseModel& model, const MethodOptions& options) {
  if (format.name() != "int8")
    throw Error("the method smoothquant rounds weights and inputs to 8-bit integers, not to " + format.name() +
                "; give --format int8");
  return std::make_unique<SmoothQuant>(format, model, options);
}

}  // namespace foretoken::methods
