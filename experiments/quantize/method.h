// How the codes of a matrix are chosen. This module must not know how they are stored.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiments/quantize/dense_model.h"
#include "experiments/quantize/stored_form.h"
#include "kernels/formats/format.h"

namespace foretoken {

constexpr long kCalibrationTokens = 8192;

struct MethodOptions {
  std::string name = "rtn";           // of quantization_methods()
  std::string calibrate;              // a text, as documents_of() reads it; empty: none
  std::optional<long> tokens;         // of it, at most; absent: kCalibrationTokens
  std::optional<double> alpha;        // smoothquant: share of the inputs' range that weights take over; absent: 0.5
  bool act_order = false;             // gptq: columns in descending order of their inputs' squares
  std::optional<std::string> device;  // that reads the text; absent: "auto"
};

class Method {
 public:
  virtual ~Method() = default;
  // Called layer after layer, from the first that is to be rounded on. It may change the layer, whose matrices are
  // rounded next and whose other tensors are stored. `kept`: a folder for what a later process needs that goes on with
  // this layer.
  virtual void begin(int number, DenseLayer& layer, const std::filesystem::path& kept) {
    (void)number, (void)layer, (void)kept;
  }
  virtual Weight round(const std::string& module, const Weight& dense) = 0;
  // After all matrices of the layer, by module.
  virtual void end(int number, const std::map<std::string, Weight>& rounded, const std::filesystem::path& kept) {
    (void)number, (void)rounded, (void)kept;
  }
  // |y - y'| / |y| of the outputs y of the layer's products so far; unknown without a calibration text.
  virtual std::optional<double> output_error() const { return std::nullopt; }
  // What the checkpoint says besides its format.
  virtual SchemeFacts facts() const { return {}; }
};

std::vector<std::string> quantization_methods();
// `model` must outlive it. A text or an option that the method needs and does not get, or gets and does not need, is an
// Error.
std::unique_ptr<Method> make_method(const MethodOptions& options, const DenseModel& model, const WeightFormat& format);
// What the choice of codes depends on besides the model and the format.
nlohmann::json job_of(const MethodOptions& options);

namespace methods {

std::unique_ptr<Method> rtn(const WeightFormat& format);
std::unique_ptr<Method> gptq(const WeightFormat& format, const DenseModel& model, const MethodOptions& options);
// `format`: sparse24.
std::unique_ptr<Method> wanda(const WeightFormat& format, const DenseModel& model, const MethodOptions& options);
std::unique_ptr<Method> awq(const WeightFormat& format, const DenseModel& model, const MethodOptions& options);
// `format`: int8.
std::unique_ptr<Method> smoothquant(const WeightFormat& format, const DenseModel& model, const MethodOptions& options);

}  // namespace methods
}  // namespace foretoken
