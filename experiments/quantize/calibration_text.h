// What methods share that read a text: the devices that multiply, the text's windows, and the states of the layers,
// which are kept so that a later process goes on. This module must not know how matrices are rounded.
#pragma once
#include <filesystem>
#include <memory>

#include "experiments/quantize/calibration.h"
#include "experiments/quantize/method.h"
#include "experiments/session/workbench.h"

namespace foretoken {

class CalibrationText {
 public:
  // `model` must outlive it. A text that is too short is an Error.
  CalibrationText(const DenseModel& model, const MethodOptions& options);

  Backend& device() { return device_; }
  // A device in host memory, for what is computed in f32: the same, where that is one.
  Backend& host() { return host_; }
  std::int64_t tokens() const { return text_.tokens(); }

  // The inputs of the products of a layer, as Calibration::observe gives them; the layers before it must be finished,
  // by this process or by one that kept its states there. Returns the layer's outputs.
  Tensor observe(int layer, const std::filesystem::path& kept, const Calibration::Observe& observe);
  bool last(int layer) const { return layer + 1 == layers_; }  // no layer reads its outputs
  // The layer's outputs with other matrices, after observe().
  Tensor outputs(int layer, const std::map<std::string, Weight>& matrices) { return text_.outputs(layer, matrices); }
  // A layer is finished: the next one reads these states.
  void finish(int layer, const Tensor& outputs, const std::filesystem::path& kept);

 private:
  Workbench bench_;
  Backend& device_;
  Backend& host_;
  Calibration text_;
  int layers_, at_ = 0;  // the layer that reads the states
};

}  // namespace foretoken
