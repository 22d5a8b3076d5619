// How a checkpoint stores its matrices in few bits, as "quantization_config" of its config.json says. Every
// quant_method is a file beside this one, named in read_quantization(). This module must not know which layers a model
// has, on which device it runs, or what a run asks for.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/model/quantized/parts.h"
#include "framework/model/tensor_source.h"
#include "kernels/formats/format.h"

namespace foretoken {

class Fields;

// How the inputs of quantized matrices are rounded before they are multiplied.
struct Activations {
  int bits = 0;              // 0: they are not rounded
  bool integers = true;      // else floating point of so many bits
  bool dynamic = true;       // scales follow from the values, else they are stored beside the matrix
  std::string strategy;      // what shares a scale: "token", "tensor", "group"
  double outliers = 0;       // inputs of this magnitude and above are multiplied apart, unrounded; 0: none
  std::string text() const;  // "int8 (dynamic, a scale for each token)"
};

class Quantization {
 public:
  virtual ~Quantization() = default;
  virtual std::string method() const = 0;                        // quant_method
  virtual std::vector<const WeightFormat*> formats() const = 0;  // of the matrices
  virtual Activations activations() const { return {}; }
  // The tensors MODULE.PART of a quantized matrix: one of marks() tells that the module is quantized.
  virtual std::vector<std::string> marks() const = 0;
  virtual std::vector<std::string> other_parts() const = 0;
  // Whether the configuration says that a module is stored dense.
  virtual bool excludes(const std::string& module) const = 0;
  // Codes, scales, zero points and order of a matrix. Throws Error if the tensors are not what the configuration says.
  virtual Weight unpack(const Parts& parts) const = 0;
};

// `settings`: the object "quantization_config". What is not implemented is an Error that names the key and its value.
std::shared_ptr<const Quantization> read_quantization(const Fields& settings);

// The tensors of a dense model: those of the checkpoint, with MODULE.weight in place of the parts of each quantized
// matrix. Biases of quantized matrices that are all 0 are left out of names(): some quantizers add them everywhere.
std::shared_ptr<const TensorSource> quantized(std::shared_ptr<const Checkpoint> checkpoint,
                                              std::shared_ptr<const Quantization> quantization);

}  // namespace foretoken
