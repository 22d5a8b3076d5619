#include <set>

#include "framework/model/convert.h"
#include "framework/model/in_parallel.h"
#include "framework/model/quantized/quantization.h"
#include "framework/model/quantized/unpacking.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr const char* kWeight = ".weight";

bool is_dense(DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f16; }

// Quantizers leave embeddings and head as they are, whether or not they say so.
bool is_of_a_layer(const std::string& name) { return name.find("layers.") != name.npos; }

class QuantizedTensors final : public TensorSource {
 public:
  QuantizedTensors(std::shared_ptr<const Checkpoint> checkpoint, std::shared_ptr<const Quantization> quantization)
      : checkpoint_(std::move(checkpoint)), quantization_(std::move(quantization)) {
    for (const std::string& name : checkpoint_->names())
      for (const std::string& mark : quantization_->marks())
        if (name.ends_with("." + mark)) add(name.substr(0, name.size() - mark.size() - 1), mark);
  }

  Tensor tensor(const std::string& name, const Shape& expected) const override {
    if (const std::string module = module_of(name); modules_.contains(module))
      return in_input_order(dequantized(unpacked(module, expected), by_all_cores)).values;
    Tensor t = checkpoint_->tensor(name, expected);
    if (!is_dense(t.dtype()))
      throw Error(where() + ": tensor '" + name + "' is " + name_of(t.dtype()) + ", but what " +
                  quantization_->method() + " stores beside it (" + listed_marks() +
                  ") is missing; download the checkpoint again");
    if (expected.rank() == 2 && is_of_a_layer(name) && quantization_->covers(module_of(name)))
      throw Error(where() + ": tensor '" + name + "' is dense (" + name_of(t.dtype()) +
                  "), but quantization_config of config.json says that " + quantization_->method() + " quantized '" +
                  module_of(name) + "'; name it there among the modules that are dense, or download both again");
    return t;
  }
  Weight matrix(const std::string& module, const Shape& expected) const override {
    return modules_.contains(module) ? unpacked(module, expected) : TensorSource::matrix(module, expected);
  }
  std::vector<const WeightFormat*> formats() const override { return quantization_->formats(); }
  std::vector<std::string> names() const override {
    std::set<std::string> all;
    for (const std::string& name : checkpoint_->names()) all.insert(name);
    for (const std::string& module : modules_) {
      for (const auto& parts : {quantization_->marks(), quantization_->other_parts()})
        for (const std::string& part : parts) all.erase(module + "." + part);
      all.insert(module + kWeight);
      if (const std::string bias = module + ".bias"; all.contains(bias) && is_zero(bias)) all.erase(bias);
    }
    return {all.begin(), all.end()};
  }
  std::string where() const override { return checkpoint_->where(); }

 private:
  void add(const std::string& module, const std::string& mark) {
    if (quantization_->excludes(module))
      throw Error(where() + ": tensor '" + module + "." + mark +
                  "' is of a quantized matrix, but quantization_config of "
                  "config.json says that '" +
                  module + "' is dense; download both again");
    modules_.insert(module);
  }
  std::string module_of(const std::string& name) const {
    return name.ends_with(kWeight) ? name.substr(0, name.size() - std::string(kWeight).size()) : "";
  }
  Weight unpacked(const std::string& module, const Shape& expected) const {
    if (expected.rank() != 2)
      throw Error(where() + ": '" + module + "' is quantized, but config.json requires " + expected.text() +
                  ", which is no matrix; they belong to different checkpoints: download both again");
    return quantization_->unpack({*checkpoint_, module, expected, quantization_->method()});
  }
  bool is_zero(const std::string& name) const {
    const Tensor t = checkpoint_->tensor(name);
    return is_dense(t.dtype()) && unpacking::all_zero(converted(t, DType::f32));
  }
  std::string listed_marks() const {
    std::string all;
    for (const std::string& mark : quantization_->marks()) all += (all.empty() ? "" : " or ") + mark;
    return all;
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::shared_ptr<const Quantization> quantization_;
  std::set<std::string> modules_;  // whose matrix is quantized
};

class WeightsAlone final : public TensorSource {
 public:
  explicit WeightsAlone(std::shared_ptr<const TensorSource> inner) : inner_(std::move(inner)) {}
  Tensor tensor(const std::string& name, const Shape& expected) const override {
    return inner_->tensor(name, expected);
  }
  Weight matrix(const std::string& module, const Shape& expected) const override {
    Weight w = inner_->matrix(module, expected);
    w.activations = nullptr, w.input_scale = 0;
    return w;
  }
  std::vector<const WeightFormat*> formats() const override { return inner_->formats(); }
  std::vector<std::string> names() const override { return inner_->names(); }
  std::string where() const override { return inner_->where(); }

 private:
  std::shared_ptr<const TensorSource> inner_;
};

}  // namespace

std::shared_ptr<const TensorSource> weights_alone(std::shared_ptr<const TensorSource> tensors) {
  return std::make_shared<WeightsAlone>(std::move(tensors));
}

std::shared_ptr<const TensorSource> quantized(std::shared_ptr<const Checkpoint> checkpoint,
                                              std::shared_ptr<const Quantization> quantization) {
  return std::make_shared<QuantizedTensors>(std::move(checkpoint), std::move(quantization));
}

}  // namespace foretoken
