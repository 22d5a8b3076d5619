// The tensors in which a checkpoint stores one quantized matrix, checked against what they must be. This module must
// not know how a matrix is put together from them.
#pragma once
#include <span>
#include <string>

#include "framework/model/checkpoint.h"

namespace foretoken {

class Parts {
 public:
  // `module`: the name before ".weight". `shape`: [out, in] of the matrix.
  Parts(const Checkpoint& checkpoint, std::string module, const Shape& shape, std::string method)
      : out(shape[0]), in(shape[1]), checkpoint_(checkpoint), module_(std::move(module)), method_(std::move(method)) {}

  const std::int64_t out, in;

  const std::string& module() const { return module_; }
  bool has(const std::string& part) const { return checkpoint_.has(module_ + "." + part); }
  Tensor any(const std::string& part) const { return checkpoint_.tensor(module_ + "." + part); }
  // Of this type and shape, else an Error.
  Tensor of(const std::string& part, DType type, const Shape& shape) const;
  // Finite numbers of this shape, as f32: from F32, BF16 or F16. With `greatest` they are scales, see expect_finite().
  Tensor numbers(const std::string& part, const Shape& shape, float greatest = 0) const;
  // The same of one element, of any shape.
  Tensor number(const std::string& part, float greatest = 0) const;
  // Throws unless the scales that the part gives make finite weights. `greatest`: |number - zero| of a code, at most.
  void expect_finite(const std::string& part, std::span<const float> scales, float greatest) const;
  // Throws unless `group` divides the inputs. `key`: where the configuration has it.
  void expect_groups(std::int64_t group, const std::string& key) const;
  // Throws: "WHERE: tensor 'MODULE.PART' WHY".
  [[noreturn]] void refuse(const std::string& part, const std::string& why) const;

 private:
  void expect(const std::string& part, const Tensor& t, const std::string& types, bool known, const Shape& shape) const;

  const Checkpoint& checkpoint_;
  std::string module_, method_;
};

}  // namespace foretoken
