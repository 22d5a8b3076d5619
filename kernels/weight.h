// One matrix of a model, whatever its precision. `linear` takes a Weight; a new quantized format is a new Format value
// and one more kernel file. This room must not know which layer a matrix belongs to.
#pragma once
#include <memory>

#include "kernels/tensor.h"

namespace foretoken {

// y = x W^T + b with W [out, in].
struct Weight {
  enum class Format : std::uint8_t {
    dense,       // values [out, in] in f32, bf16 or f16
    int8_groups  // values i8 [out, in]; w = scale * (q - zero), one scale and zero per group of `group` inputs
  };
  std::int64_t out = 0, in = 0;
  Format format = Format::dense;
  Tensor values;
  Tensor scales;                         // f32 [out, in / group]; absent for dense
  Tensor zeros;                          // f32 [out, in / group]; absent means 0
  Tensor bias;                           // f32 [out]; absent means 0
  int group = 0;                         // inputs that share a scale; divides `in`
  std::shared_ptr<const void> prepared;  // a backend's own rearrangement of `values`, made by Backend::prepare

  explicit operator bool() const { return bool(values) || prepared != nullptr; }
  // Bytes that a product must read, with the values as they are stored.
  std::int64_t bytes() const { return values.bytes() + scales.bytes() + zeros.bytes(); }

  static Weight dense(Tensor values) {  // [out, in]
    Weight w;
    w.out = values.dim(0), w.in = values.dim(1), w.values = std::move(values);
    return w;
  }
};

// Rounds a dense weight to int8 with one scale and zero per group of inputs (asymmetric, min and max of the group map
// to -128 and 127). `group` must divide the number of inputs.
Weight quantize_int8(const Weight& dense, int group);

}  // namespace foretoken
