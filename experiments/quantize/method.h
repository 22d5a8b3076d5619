// A model to be quantized, and how the codes of its matrices are chosen. This module must not know how they are stored.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiments/quantize/stored_form.h"
#include "framework/model/checkpoint.h"
#include "framework/model/config.h"
#include "kernels/formats/format.h"

namespace foretoken {

// A layer that is quantized. Methods may change it, as long as it computes the same.
struct DenseLayer {
  std::string prefix;                      // "model.layers.3."
  std::vector<std::string> modules;        // that have a matrix, within the layer: "mlp.up_proj"
  std::map<std::string, Weight> matrices;  // of these, f32 or bf16
  std::vector<StoredTensor> others;        // all other tensors, by their names in the model
};

class DenseModel {
 public:
  // A directory in Hugging Face form. One that is quantized already is an Error.
  explicit DenseModel(const std::filesystem::path& directory);

  const ModelConfig& config() const { return config_; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  const nlohmann::ordered_json& config_json() const { return json_; }
  const std::filesystem::path& directory() const { return directory_; }

  DenseLayer layer(int number) const;
  std::vector<StoredTensor> outside() const;  // of all layers

 private:
  std::filesystem::path directory_;
  nlohmann::ordered_json json_;
  ModelConfig config_;
  std::optional<Checkpoint> checkpoint_;
  std::map<std::string, Shape> shapes_;
};

constexpr long kCalibrationTokens = 8192;

struct MethodOptions {
  std::string name = "rtn";           // of quantization_methods()
  std::string calibrate;              // a text, as documents_of() reads it; empty: none
  std::optional<long> tokens;         // of it, at most; absent: kCalibrationTokens
  std::optional<double> alpha;        // smoothquant: share of the inputs' range that weights take over; absent: 0.5
  bool act_order = false;             // gptq: columns in descending order of their inputs' squares
  std::optional<std::string> device;  // that reads the text; absent: "auto"
};

// Rounding to nearest, and what other methods do.
class Method {
 public:
  Method(const WeightFormat& format, const DenseModel&, const MethodOptions&) : format_(format) {}
  virtual ~Method() = default;
  // Called layer after layer, from the first that is to be rounded on. It may change the layer, whose matrices are
  // rounded next and whose other tensors are stored. `kept`: a folder for what a later process needs that goes on with
  // this layer.
  virtual void begin(int, DenseLayer&, const std::filesystem::path& /*kept*/) {}
  virtual Weight round(const std::string& /*module*/, const Weight& dense) { return nearest(dense); }
  // After all matrices of the layer, by module.
  virtual void end(int, const std::map<std::string, Weight>& /*rounded*/, const std::filesystem::path& /*kept*/) {}
  // |y - y'| / |y| of the outputs y of the layer's products so far; unknown without a calibration text.
  virtual std::optional<double> output_error() const { return std::nullopt; }
  // What the checkpoint says besides its format.
  virtual SchemeFacts facts() const { return {}; }

 protected:
  Weight nearest(const Weight& dense) const;
  const WeightFormat& format_;
};

std::vector<std::string> quantization_methods();
// `model` must outlive it. A text or an option that the method needs and does not get, or gets and does not need, is an
// Error.
std::unique_ptr<Method> make_method(const MethodOptions& options, const DenseModel& model, const WeightFormat& format);
// What the choice of codes depends on besides the model and the format.
nlohmann::json job_of(const MethodOptions& options);

}  // namespace foretoken
