#include "experiments/python/arrays.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "experiments/python/calls.h"
#include "kernels/error.h"

namespace foretoken::python {
namespace {

// numpy.asarray and numpy.ndarray, for as long as the process lives.
PyObject* as_array = nullptr;
PyObject* array_type = nullptr;

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

// The most references to an array that is an argument of a call and has one name: the argument's own, and the name's.
// More may be views, which stay writable when the array no longer is. Python 3.14 counts no argument of its own.
constexpr Py_ssize_t kOneName = PY_VERSION_HEX < 0x030E0000 ? 2 : 1;

// Whether all that can write to the memory is the array itself: it owns it, and nothing else knows it.
bool is_sole_owner(nb::handle given) {
  return Py_REFCNT(given.ptr()) <= kOneName && given.type().ptr() == array_type && given.attr("base").is_none() &&
         nb::cast<bool>(given.attr("flags").attr("owndata")) && nb::cast<bool>(given.attr("flags").attr("writeable"));
}

// A sole owner, read-only until the last tensor that reads it has gone.
class Borrowed {
 public:
  Borrowed(nb::handle given, nb::ndarray<nb::ro> array) : given_(nb::borrow(given)), array_(std::move(array)) {
    set_writable(false);
  }
  ~Borrowed() {
    const nb::gil_scoped_acquire gil;
    set_writable(true);
    given_.reset();
    array_ = {};
  }
  Borrowed(const Borrowed&) = delete;
  void* data() const { return const_cast<void*>(static_cast<const void*>(array_.data())); }

 private:
  void set_writable(bool on) const { given_.attr("setflags")(nb::arg("write") = on); }

  nb::object given_;
  nb::ndarray<nb::ro> array_;
};

// numpy.asarray; what makes none is an Error.
nb::object array_from(nb::handle given, const std::string& what, const char* remedy) {
  try {
    return nb::handle(as_array)(given);
  } catch (const nb::python_error& e) {
    if (!e.matches(PyExc_ValueError) && !e.matches(PyExc_TypeError)) throw;
    throw Error(what + " make no array of integers, since their rows differ in length; " + remedy);
  }
}

}  // namespace

void load_numpy() {
  const nb::module_ numpy = nb::module_::import_("numpy");
  as_array = nb::object(numpy.attr("asarray")).release().ptr();
  array_type = nb::object(numpy.attr("ndarray")).release().ptr();
}

nb::object array_of(const Tensor& tensor) {
  return tensor.dtype() == DType::f32 ? matrix<float>(tensor) : matrix<std::int32_t>(tensor);
}

Integers integers_of(nb::handle given, const std::string& what, const char* remedy) {
  const nb::object array = array_from(given, what, remedy);
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
  const bool sole = is_sole_owner(given);  // before anything here refers to it
  nb::ndarray<nb::ro> array;
  if (!nb::ndarray_check(given) || !nb::try_cast(given, array, false))
    throw Error(what + " are no array but " + kind_of(given) + "; give a NumPy array or a tensor of float32");
  if (array.dtype() != nb::dtype<float>() || array.ndim() != 2)
    throw Error(what + " have " + std::to_string(array.ndim()) + " dimensions of the type " +
                said(nb::object(given.attr("dtype"))) + "; give float32 with two dimensions");
  if (array.device_type() != nb::device::cpu::value)
    throw Error(what + " lie on a device; copy them to the host first (.cpu() in PyTorch)");
  const bool dense = array.size() == 0 || (array.stride(1) == 1 && array.stride(0) == std::int64_t(array.shape(1)));
  if (!dense) throw Error(what + ", " + lengths_of(array) + ", have gaps between them; give numpy.ascontiguousarray()");
  const Shape shape{std::int64_t(array.shape(0)), std::int64_t(array.shape(1))};
  if (!sole) {
    const Tensor copy = Tensor::host(shape, DType::f32);
    std::copy_n(static_cast<const float*>(array.data()), array.size(), copy.data<float>());
    return copy;
  }
  const auto held = std::make_shared<Borrowed>(given, std::move(array));
  return {held, held->data(), shape, DType::f32};
}

}  // namespace foretoken::python
