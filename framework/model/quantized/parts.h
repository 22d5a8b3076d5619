// The tensors in which a checkpoint stores one quantized matrix, checked against what they must be. This module must
// not know how a matrix is put together from them.
#pragma once
#include <initializer_list>
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
  // Numbers of this shape whose products with codes are finite, as f32: from F32, BF16 or F16.
  Tensor numbers(const std::string& part, const Shape& shape) const;
  // A tensor of one element, of any shape.
  Tensor number(const std::string& part) const;
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
