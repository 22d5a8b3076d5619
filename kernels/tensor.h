// Data types, shapes, and a handle to a range of a device's memory. This module must not know what a tensor means: no
// tokens, no layers, no models.
#pragma once
#include <array>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

namespace foretoken {

enum class DType : std::uint8_t { f32, bf16, f16, i8, u8, i32, i64, u64, e4m3 };  // e4m3: FP8

inline std::int64_t size_of(DType t) {
  constexpr std::int64_t kBytes[] = {4, 2, 2, 1, 1, 4, 8, 8, 1};
  return kBytes[int(t)];
}
const char* name_of(DType t);

// bfloat16: the upper half of a float. Rounds to nearest even, as every device does; NaN stays NaN.
struct bf16 {
  std::uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float f) {
    std::uint32_t u;
    std::memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u)
      bits = std::uint16_t(u >> 16 | 0x40u);
    else
      bits = std::uint16_t((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
  }
  explicit operator float() const {
    const std::uint32_t u = std::uint32_t(bits) << 16;
    float f;
    std::memcpy(&f, &u, 4);
    return f;
  }
};

float float_from_f16(std::uint16_t bits);

struct Device {
  enum class Kind : std::uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

// Up to four dimensions, outermost first.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : rank_(int(dims.size())) {
    assert(dims.size() <= 4);
    int i = 0;
    for (auto d : dims) dims_[i++] = d;
  }
  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return dims_[i]; }
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  // The same with another first dimension.
  Shape with_rows(std::int64_t rows) const {
    Shape s = *this;
    s.dims_[0] = rows;
    return s;
  }
  bool operator==(const Shape&) const = default;
  std::string text() const;  // "[3, 384]"

 private:
  std::array<std::int64_t, 4> dims_{};
  int rank_ = 0;
};

// A handle to a range of a device's memory; copying copies the handle. Rows (dimension 0) may be strided; a row is
// contiguous. A default-constructed Tensor is absent: `if (t)`.
class Tensor {
 public:
  Tensor() = default;
  // `owner` keeps `data` alive. `row_stride` counts elements; -1 means dense.
  Tensor(std::shared_ptr<void> owner, void* data, Shape shape, DType dtype, Device device = {},
         std::int64_t row_stride = -1);

  // Host memory, 64-byte aligned, uninitialised.
  static Tensor host(Shape shape, DType dtype);
  // A host tensor of rank 1 that holds a copy of `values`.
  template <class T> static Tensor host_copy(std::span<const T> values, DType dtype) {
    assert(sizeof(T) == std::size_t(size_of(dtype)));
    Tensor t = host({std::int64_t(values.size())}, dtype);
    if (!values.empty()) std::memcpy(t.raw(), values.data(), values.size_bytes());
    return t;
  }

  explicit operator bool() const { return data_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  std::int64_t dim(int i) const { return shape_[i]; }
  std::int64_t elements() const { return shape_.elements(); }
  std::int64_t bytes() const { return elements() * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  std::int64_t row_stride() const { return row_stride_; }  // elements from one row to the next
  bool dense() const;

  void* raw() const { return data_; }
  const std::shared_ptr<void>& owner() const { return owner_; }  // for views that rows() and columns() cannot express
  template <class T> T* data() const { return static_cast<T*>(data_); }
  // Row i of a tensor whose memory this process can read.
  template <class T> T* row(std::int64_t i) const { return static_cast<T*>(data_) + i * row_stride_; }
  // All elements of a dense host tensor.
  template <class T> std::span<T> values() const {
    assert(dense() && device_.kind == Device::Kind::cpu && sizeof(T) == std::size_t(size_of(dtype_)));
    return {static_cast<T*>(data_), std::size_t(elements())};
  }

  Tensor rows(std::int64_t begin, std::int64_t count) const;     // a view of [begin, begin + count) of dimension 0
  Tensor columns(std::int64_t begin, std::int64_t count) const;  // rank 2: a view of some columns of every row
  Tensor reshaped(Shape shape) const;                            // dense only; same number of elements

 private:
  std::shared_ptr<void> owner_;
  void* data_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::f32;
  Device device_;
  std::int64_t row_stride_ = 0;
};

}  // namespace foretoken
