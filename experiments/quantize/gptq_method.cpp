// GPTQ layer by layer: the inputs of a layer are those that the rounded layers before it give.
#include "experiments/quantize/calibration_text.h"
#include "experiments/quantize/gptq.h"
#include "experiments/quantize/input_products.h"
#include "experiments/quantize/method.h"
#include "experiments/quantize/output_error.h"
#include "framework/model/in_parallel.h"
#include "kernels/error.h"

namespace foretoken::methods {
namespace {

constexpr double kDamping = 0.01;

class Gptq final : public Method {
 public:
  Gptq(const WeightFormat& format, const DenseModel& model, const MethodOptions& o)
      : format_(format), by_size_(o.act_order), text_(model, o) {}

  void begin(int number, DenseLayer& layer, const std::filesystem::path& kept) override {
    outputs_ = {};
    inputs_.clear();
    text_.observe(number, kept, [&](std::size_t product, const Tensor& x) {
      const DType type = layer.matrices.at(Calibration::products()[product].front()).values.dtype();
      Inputs& inputs = inputs_.try_emplace(product, text_, x.dim(1), type).first->second;
      inputs.products.add(x), inputs.sample.add(x);
    });
  }

  Weight round(const std::string& module, const Weight& dense) override {
    Inputs& inputs = inputs_.at(Calibration::product_of(module));
    if (!inputs.factor) inputs.factor.emplace(text_.host(), inputs.products.sums(), kDamping, by_size_);
    Weight rounded = foretoken::gptq(text_.host(), dense, format_, *inputs.factor, by_all_cores);
    outputs_ += foretoken::output_error(text_.device(), inputs.sample.rows(), dense, rounded);
    return rounded;
  }

  void end(int number, const std::map<std::string, Weight>& rounded, const std::filesystem::path& kept) override {
    inputs_.clear();
    if (!text_.last(number)) text_.finish(number, text_.outputs(number, rounded), kept);
  }

  std::optional<double> output_error() const override { return outputs_.relative(); }
  SchemeFacts facts() const override { return {.ordered_columns = by_size_}; }

 private:
  // Of the matrices of one product.
  struct Inputs {
    Inputs(CalibrationText& text, std::int64_t in, DType type)
        : products(text.device(), in, type), sample(in, text.tokens()) {}
    InputProducts products;
    RowSample sample;
    std::optional<GptqFactor> factor;
  };

  const WeightFormat& format_;
  bool by_size_;
  CalibrationText text_;
  std::map<std::size_t, Inputs> inputs_;  // by product
  SquaredError outputs_;
};

}  // namespace

std::unique_ptr<Method> gptq(const WeightFormat& format, const DenseModel& model, const MethodOptions& options) {
  return std::make_unique<Gptq>(format, model, options);
}

}  // namespace foretoken::methods
