// One matrix of a model, whatever its precision. `linear` takes a Weight. Formats of few bits: kernels/formats/. This
// module must not know which layer a matrix belongs to.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/tensor.h"

namespace foretoken {

// What a backend's products read in place of a weight's values: the same matrix in another type, order or memory. Made
// by Backend::prepare, once; the derived class is known to that backend only.
class PreparedWeight {
 public:
  virtual ~PreparedWeight() = default;
  virtual std::int64_t bytes() const = 0;  // bytes that one product reads
};

// A dense matrix on a backend's device.
struct PreparedMatrix : PreparedWeight {
  explicit PreparedMatrix(Tensor m) : matrix(std::move(m)) {}
  std::int64_t bytes() const override { return matrix.bytes(); }
  Tensor matrix;  // [out, in]
};

class WeightFormat;
class ActivationFormat;

// y = x W^T + b with W [out, in].
struct Weight {
  std::int64_t out = 0, in = 0;
  const WeightFormat* format = nullptr;            // nullptr: dense
  Tensor values;                                   // [out, in], dense in f32, bf16 or f16, else codes (u8); absent
                                                   // where `prepared` holds all that products read
  Tensor kept;                                     // of 2:4 weights, whose `values` are those that are not left out,
                                                   // bf16 [out, in / 2]: u8 [out, (in + 7) / 8], bit i % 8 of byte
                                                   // i / 8 is set where input i has a value, two of each four
  Tensor scales;                                   // f32 [out, in / group]; absent for dense and 2:4
  Tensor zeros, minima;                            // the same; absent means 0
  int group = 0;                                   // inputs that share a scale; divides `in`
  Tensor order;                                    // i32 [in]: column j multiplies input order[j]; absent: j
  const ActivationFormat* activations = nullptr;   // to which inputs are rounded; nullptr: they are not
  float input_scale = 0;                           // of the rounded inputs of all rows; 0: each row has its own
  Tensor bias;                                     // f32 [out]; absent means 0
  std::shared_ptr<const PreparedWeight> prepared;  // made by Backend::prepare

  explicit operator bool() const { return bool(values) || prepared != nullptr; }
  // Bytes that one product reads. They depend on the backend: before Backend::prepare this is an estimate from the
  // stored values.
  std::int64_t bytes() const {
    const auto of = [](const Tensor& t) { return t ? t.bytes() : std::int64_t(0); };
    return (prepared ? prepared->bytes() : of(values) + of(kept) + of(scales) + of(zeros) + of(minima)) + of(bias);
  }

  // Leaves out what products no longer read once the weight is prepared; otherwise it would be in memory twice.
  void forget_stored() { values = {}, kept = {}, scales = {}, zeros = {}, minima = {}, order = {}; }

  static Weight dense(Tensor values) {  // [out, in]
    Weight w;
    w.out = values.dim(0), w.in = values.dim(1), w.values = std::move(values);
    return w;
  }
};

// Calls f(begin, end) for ranges that partition [0, n), in any order and possibly in parallel. `work`: elements
// processed for each of the n.
using ForShares = std::function<void(std::int64_t n, std::int64_t work,
                                     const std::function<void(std::int64_t begin, std::int64_t end)>& f)>;

}  // namespace foretoken
