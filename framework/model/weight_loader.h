// Brings tensors of a checkpoint to a device, in the type that is asked for: what every part of a model is loaded by.
// This module must not know how a tensor is used.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/model/tensor_source.h"
#include "kernels/backend.h"

namespace foretoken {

// Types of weights: "auto" (as stored), "f32", "bf16", and the names of precisions(), to which matrices are rounded
// when they are loaded, and their inputs when they are multiplied.
std::vector<std::string> weight_types();

// Matrices with the same inputs, one above the other: in one Weight, or in several where their formats differ, or how
// their inputs are rounded.
struct Products {
  std::vector<Weight> parts;
  DType type = DType::f32;  // of the products of several
  // linear(x, W) of all of them: x [rows, in] -> f32 [rows, sum of out].
  Tensor of(Backend& backend, const Tensor& x) const;
  // norm_linear(x, gain, epsilon, W) of all of them, in `type` where they are several.
  Tensor after_norm(Backend& backend, const Tensor& x, const Tensor& gain, float epsilon) const;
  std::int64_t bytes() const;  // Weight::bytes of all
};

class WeightLoader {
 public:
  // `shapes`: of all tensors that may be asked for, by name. `dtype`, `head_dtype`: TransformerOptions; an unknown one
  // is an Error. All of them must outlive the loader.
  WeightLoader(Backend& backend, std::map<std::string, Shape> shapes, const TensorSource& tensors, std::string dtype,
               std::string head_dtype);

  Backend& backend() const { return backend_; }
  bool has(const std::string& name) const { return shapes_.contains(name); }
  // f32, on the device. An Error where the source has no such tensor of the shape.
  Tensor vector(const std::string& name) const;
  // The same, or an absent Tensor where none has this name.
  Tensor vector_if(const std::string& name) const { return has(name) ? vector(name) : Tensor(); }
  // The matrices NAME.weight, one above the other, and their biases NAME.bias. Apart where a checkpoint stores them in
  // different formats, or rounds their inputs differently; then their dense copies are apart too, since a device may
  // add in another order where a matrix has more outputs.
  Products products(const std::vector<std::string>& names) const;
  Weight one(const std::string& name) const;
  // The same, as stored where `dtype` would round it: what chooses among experts.
  Weight unrounded(const std::string& name) const;
  // The numbers of the matrix NAME.weight on the host, dequantized where it has codes, f32 or bf16; and a matrix that
  // was made of such, prepared. Matrices that are multiplied from both sides are not rounded.
  Tensor numbers(const std::string& name) const;
  Weight made(const Tensor& matrix) const { return prepared(Weight::dense(matrix)); }
  // The matrices of each expert, one above the other. An Error where those of one expert cannot be stacked.
  ExpertWeights experts(const std::vector<std::vector<std::string>>& names) const;
  // The embedding `table` and the matrix `head`, named without ".weight"; "": they are tied. Tied ones are in memory
  // once: quantized ones as the head's codes, dense ones wherever the device multiplies the table as it was uploaded.
  std::pair<Weight, Weight> ends(const std::string& table, const std::string& head) const;
  // Of all matrices that were prepared so far, in the backend's format.
  std::int64_t bytes() const { return bytes_; }

 private:
  DType type_of(const std::vector<Weight>& parts) const;
  std::string head_type() const;
  Weight uploaded(const Tensor& t) const;
  Weight prepared(Weight w) const;
  std::vector<Weight> stacked(const std::vector<std::string>& names, const std::string& type) const;
  Weight matrix(const std::string& name, const std::string& type) const;
  Weight loaded(const std::string& name, const Weight& stored, const std::string& type) const;
  Tensor biases(std::span<const std::string> names, std::int64_t out) const;

  Backend& backend_;
  const std::map<std::string, Shape> shapes_;
  const TensorSource& tensors_;
  const std::string dtype_, head_dtype_;
  mutable std::int64_t bytes_ = 0;
};

// Bytes of an embedding whose head has memory of its own; 0 where they share it.
std::int64_t table_bytes(const Weight& embedding, const Weight& head);

}  // namespace foretoken
