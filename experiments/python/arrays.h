// Arrays between Python and tensors. What Python gets is NumPy's, without a copy where the memory is the host's, and
// keeps the memory alive; what it gives is anything with DLPack or the buffer protocol, so PyTorch too.
#pragma once
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "kernels/tensor.h"

namespace foretoken::python {

namespace nb = nanobind;

// A read-only NumPy array over memory that `owner` keeps alive.
template <class T> nb::object viewed(const T* data, std::initializer_list<std::size_t> shape, nb::handle owner) {
  return nb::cast(nb::ndarray<nb::numpy, const T>(data, shape, owner));
}
// One that owns what was a vector, of this shape.
template <class T> nb::object owned(std::vector<T> values, std::initializer_list<std::size_t> shape) {
  auto* const held = new std::vector<T>(std::move(values));
  const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(held->data(), shape, owner));
}
template <class T> nb::object owned(std::vector<T> values) {
  const std::size_t n = values.size();
  return owned(std::move(values), {n});
}
// A dense tensor of rank 2 on the host, f32 or i32.
nb::object array_of(const Tensor& tensor);

// Integers of any type, or lists of them, as far as they fit; `what` names them in messages ("the tokens of ..."). What
// is no array of integers is an Error, and rows of different lengths are one with this remedy.
struct Integers {
  std::vector<int> values;  // row by row
  std::vector<std::size_t> shape;
  std::size_t rank() const { return shape.size(); }
};
Integers integers_of(nb::handle given, const std::string& what, const char* remedy = "give rows of one length");
inline constexpr const char* kFillRows = "fill short rows up with -1";

// float32 [rows, columns], dense, on the host. Of a NumPy array that owns its memory and has one name, no view: that
// memory, and the array is read-only while the tensor lives, so that nobody writes to what is still to be read. Of
// another array: a copy. Anything else is an Error; `what` as above.
Tensor floats_of(nb::handle given, const std::string& what);

// To be called when the module is loaded: NumPy must not be imported later, where another thread may wait.
void load_numpy();

}  // namespace foretoken::python
