#include "experiments/python/arrays.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "experiments/python/calls.h"
#include "kernels/error.h"

namespace foretoken::python {
namespace {

PyObject* as_array = nullptr;  // numpy.asarray, for as long as the process lives

std::string kind_of(nb::handle h) { return said(nb::object(nb::handle(h.type()).attr("__name__"))); }

template <class T> nb::object matrix(const Tensor& t) {
  auto* const held = new Tensor(t);
  const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(t.data<T>(), {std::size_t(t.dim(0)), std::size_t(t.dim(1))}, owner));
}

std::string lengths_of(const nb::ndarray<nb::ro>& a) {
  std::string text = "[";
  for (std::size_t i = 0; i < a.ndim(); ++i) text += (i > 0 ? ", " : "") + std::to_string(a.shape(i));
  return text + "]";
}

// An array that Python gave, until the last tensor that reads it has gone.
class Borrowed {
 public:
  Borrowed(nb::handle given, nb::ndarray<nb::ro> array)
      : given_(nb::borrow(given)), array_(std::move(array)), frozen_(set_writable(false)) {}
  ~Borrowed() {
    const nb::gil_scoped_acquire gil;
    if (frozen_) set_writable(true);
    given_.reset();
    array_ = {};
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  void* data() const { return const_cast<void*>(static_cast<const void*>(array_.data())); }

 private:
  // Of a NumPy array; whether it was the other way before.
  bool set_writable(bool on) const {
    try {
      if (!nb::hasattr(given_, "flags") || !nb::hasattr(given_, "setflags")) return false;
      if (nb::cast<bool>(given_.attr("flags").attr("writeable")) == on) return false;
      given_.attr("setflags")(nb::arg("write") = on);
      return true;
    } catch (const std::exception&) {
      return false;  // a view of what may not be written
    }
  }

  nb::object given_;
  nb::ndarray<nb::ro> array_;
  bool frozen_;
};

}  // namespace

void load_numpy() { as_array = nb::object(nb::module_::import_("numpy").attr("asarray")).release().ptr(); }

nb::object array_of(const Tensor& tensor) {
  return tensor.dtype() == DType::f32 ? matrix<float>(tensor) : matrix<std::int32_t>(tensor);
}

Integers integers_of(nb::handle given, const std::string& what) {
  const nb::object array = nb::handle(as_array)(given);
  const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  const auto size = nb::cast<std::size_t>(array.attr("size"));
  if (kind != "i" && kind != "u" && size > 0)
    throw Error(what + " are no integers but " + said(nb::object(array.attr("dtype"))) + "; give an array of int32");
  const nb::object wide = array.attr("astype")("int64", nb::arg("order") = "C", nb::arg("copy") = false);
  const auto a = nb::cast<nb::ndarray<const std::int64_t, nb::c_contig, nb::device::cpu>>(wide);
  Integers found;
  for (std::size_t i = 0; i < a.ndim(); ++i) found.shape.push_back(a.shape(i));
  constexpr std::int64_t kLeast = std::numeric_limits<int>::min(), kMost = std::numeric_limits<int>::max();
  for (std::size_t i = 0; i < size; ++i) found.values.push_back(int(std::clamp(a.data()[i], kLeast, kMost)));
  return found;
}

Tensor floats_of(nb::handle given, const std::string& what) {
  nb::ndarray<nb::ro> array;
  if (!nb::ndarray_check(given) || !nb::try_cast(given, array, false))
    throw Error(what + " are no array but a " + kind_of(given) + "; give a NumPy array or a tensor of float32");
  if (array.dtype() != nb::dtype<float>() || array.ndim() != 2)
    throw Error(what + " have " + std::to_string(array.ndim()) + " dimensions of the type " +
                said(nb::object(given.attr("dtype"))) + "; give float32 with two dimensions");
  if (array.device_type() != nb::device::cpu::value)
    throw Error(what + " lie on a device; copy them to the host first (.cpu() in PyTorch)");
  const bool dense = array.size() == 0 || (array.stride(1) == 1 && array.stride(0) == std::int64_t(array.shape(1)));
  if (!dense) throw Error(what + ", " + lengths_of(array) + ", have gaps between them; give numpy.ascontiguousarray()");
  const Shape shape{std::int64_t(array.shape(0)), std::int64_t(array.shape(1))};
  const auto held = std::make_shared<Borrowed>(given, std::move(array));
  return {held, held->data(), shape, DType::f32};
}

}  // namespace foretoken::python
