#include "framework/model/quantized/parts.h"

#include <algorithm>
#include <cmath>

#include "framework/model/convert.h"
#include "kernels/error.h"
#include "kernels/formats/format.h"

namespace foretoken {
namespace {

constexpr const char* kAgain = "; download the checkpoint again, or quantize anew";

bool is_number(const Tensor& t) {
  return t.dtype() == DType::f32 || t.dtype() == DType::bf16 || t.dtype() == DType::f16;
}

}  // namespace

void Parts::refuse(const std::string& part, const std::string& why) const {
  throw Error(checkpoint_.where() + ": tensor '" + module_ + "." + part + "' " + why);
}

void Parts::expect(const std::string& part, const Tensor& t, const std::string& types, bool known,
                   const Shape& shape) const {
  if (known && t.shape() == shape) return;
  refuse(part, "is " + std::string(name_of(t.dtype())) + " " + t.shape().text() + ", but " + method_ + " of a matrix " +
                   Shape{out, in}.text() + " requires " + types + " " + shape.text() +
                   "; the file belongs to another config.json, or is incomplete: download both again");
}

Tensor Parts::of(const std::string& part, DType type, const Shape& shape) const {
  Tensor t = any(part);
  expect(part, t, name_of(type), t.dtype() == type, shape);
  return t;
}

Tensor Parts::numbers(const std::string& part, const Shape& shape, float greatest) const {
  const Tensor stored = any(part);
  expect(part, stored, "F32, BF16 or F16", is_number(stored), shape);
  const Tensor all = converted(stored, DType::f32);
  if (!std::ranges::all_of(all.values<float>(), [](float x) { return std::isfinite(x); }))
    refuse(part, std::string("holds a NaN or an infinity") + kAgain);
  expect_finite(part, all.values<float>(), greatest);
  return all;
}

void Parts::expect_finite(const std::string& part, std::span<const float> scales, float greatest) const {
  if (!std::ranges::all_of(scales, [&](float x) { return std::isfinite(weight_of(greatest, {x})); }))
    refuse(part, std::string("holds a number so large that weights become infinite") + kAgain);
}

Tensor Parts::number(const std::string& part, float greatest) const {
  const Tensor stored = any(part);
  expect(part, stored, "F32, BF16 or F16", is_number(stored), stored.elements() == 1 ? stored.shape() : Shape{1});
  return numbers(part, stored.shape(), greatest).reshaped({1});
}

void Parts::expect_groups(std::int64_t group, const std::string& key) const {
  if (group > 0 && in % group == 0) return;
  throw Error(checkpoint_.where() + ": the " + std::to_string(in) + " inputs of '" + module_ +
              "' do not divide into groups of " + std::to_string(group) + ", which " + key +
              " of config.json asks for; quantize anew with a group that divides them");
}

}  // namespace foretoken
