// Wanda (Sun et al. 2023, arXiv 2306.11695) layer by layer: of each four inputs of an output the two with the greatest
// |w| |x| stay, where |x| is the norm of the input over the text, as the pruned layers before give it. No weight
// changes.
#include <algorithm>
#include <cmath>

#include "experiments/quantize/calibration_text.h"
#include "experiments/quantize/method.h"
#include "experiments/quantize/output_error.h"
#include "framework/model/in_parallel.h"
#include "kernels/error.h"

namespace foretoken::methods {
namespace {

class Wanda final : public Method {
 public:
  Wanda(const DenseModel& model, const MethodOptions& o) : text_(model, o) {}

  void begin(int number, DenseLayer&, const std::filesystem::path& kept) override {
    outputs_ = {};
    inputs_.clear();
    text_.observe(number, kept, [&](std::size_t product, const Tensor& x) {
      inputs_.try_emplace(product, x.dim(1), text_.tokens()).first->second.add(x);
    });
    for (auto& [product, inputs] : inputs_) inputs.finish();
  }

  Weight round(const std::string& module, const Weight& dense) override {
    const Observed& inputs = inputs_.at(Calibration::product_of(module));
    Weight rounded = pruned(dense, inputs.norms, by_all_cores);
    outputs_ += foretoken::output_error(text_.device(), inputs.sample.rows(), dense, rounded);
    return rounded;
  }

  void end(int number, const std::map<std::string, Weight>& rounded, const std::filesystem::path& kept) override {
    inputs_.clear();
    if (!text_.last(number)) text_.finish(number, text_.outputs(number, rounded), kept);
  }

  std::optional<double> output_error() const override { return outputs_.relative(); }

 private:
  // Of one product.
  struct Observed {
    Observed(std::int64_t in, std::int64_t tokens) : squares(std::size_t(in), 0.0), sample(in, tokens) {}
    void add(const Tensor& x) {
      by_all_cores(x.dim(1), x.dim(0), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = 0; r < x.dim(0); ++r)
          for (std::int64_t i = begin; i < end; ++i)
            squares[std::size_t(i)] += double(x.row<float>(r)[i]) * double(x.row<float>(r)[i]);
      });
      sample.add(x);
    }
    void finish() {
      for (const double s : squares) norms.push_back(float(std::sqrt(s)));
      if (!std::ranges::all_of(norms, [](float n) { return std::isfinite(n); }))
        throw Error(
            "the inputs of a matrix are not finite while the model reads the calibration text; calibrate with another "
            "text, or correct the model");
    }
    std::vector<double> squares;
    std::vector<float> norms;
    RowSample sample;
  };

  CalibrationText text_;
  std::map<std::size_t, Observed> inputs_;  // by product
  SquaredError outputs_;
};

}  // namespace

std::unique_ptr<Method> wanda(const WeightFormat&, const DenseModel& model, const MethodOptions& options) {
  return std::make_unique<Wanda>(model, options);
}

}  // namespace foretoken::methods
