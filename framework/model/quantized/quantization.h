// How a checkpoint stores its matrices in few bits, as "quantization_config" of its config.json says. Every
// quant_method is a file beside this one, named in read_quantization(). This module must not know which layers a model
// has, on which device it runs, or what a run asks for.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/model/quantized/parts.h"
#include "framework/model/tensor_source.h"
#include "kernels/formats/activations/activation_format.h"

namespace foretoken {

class Fields;

// How the inputs of quantized matrices are rounded before they are multiplied.
struct Activations {
  int bits = 0;                           // 0: they are not rounded
  bool integers = true;                   // else floating point of so many bits
  bool dynamic = true;                    // scales follow from the values, else they are stored beside the matrix
  std::string strategy = {};              // what shares a scale: "token", "tensor", "group"
  double outliers = 0;                    // inputs of this magnitude and above are multiplied apart, unrounded; 0: none
  bool symmetric = true;                  // else with zero points
  const WeightFormat* weights = nullptr;  // that they multiply
  std::string text() const;               // "int8 (dynamic, a scale for each token)"
  // nullptr: they are not rounded, or that is not supported.
  const ActivationFormat* format() const;
};

class Quantization {
 public:
  virtual ~Quantization() = default;
  virtual std::string method() const = 0;  // quant_method
  // Of each kind of matrices its weights, and how their inputs are rounded.
  virtual std::vector<Activations> schemes() const = 0;
  std::vector<const WeightFormat*> formats() const;  // of the matrices
  // Of the matrices that round their inputs; of several kinds one that is not supported, if there is one.
  Activations activations() const;
  // The tensors MODULE.PART of a quantized matrix: one of marks() tells that the module is quantized.
  virtual std::vector<std::string> marks() const = 0;
  virtual std::vector<std::string> other_parts() const = 0;
  // Whether the configuration says that a module is stored dense.
  virtual bool excludes(const std::string& module) const = 0;
  // Whether it says that the matrix of a module of a layer is quantized.
  virtual bool covers(const std::string& module) const { return !excludes(module); }
  // Codes, scales, zero points and order of a matrix, and how its inputs are rounded where that is supported. Throws
  // Error if the tensors are not what the configuration says.
  virtual Weight unpack(const Parts& parts) const = 0;
};

// The weight, with inputs that are rounded where `a` is supported. The scale of static ones is the part input_scale, or
// activation_scale. Throws Error where that is no normal number above 0, or the zero point of inputs is not 0.
Weight with_rounded_inputs(Weight w, const Parts& parts, const Activations& a);

// `settings`: the object "quantization_config". What is not implemented is an Error that names the key and its value.
std::shared_ptr<const Quantization> read_quantization(const Fields& settings);

// The tensors of a dense model: those of the checkpoint, with MODULE.weight in place of the parts of each quantized
// matrix. Biases of quantized matrices that are all 0 are left out of names(): some quantizers add them everywhere.
std::shared_ptr<const TensorSource> quantized(std::shared_ptr<const Checkpoint> checkpoint,
                                              std::shared_ptr<const Quantization> quantization);

// The same tensors, whose matrices multiply inputs that are not rounded.
std::shared_ptr<const TensorSource> weights_alone(std::shared_ptr<const TensorSource> tensors);

}  // namespace foretoken
