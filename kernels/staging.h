// Arrays that the host fills and the device reads: laid out one after another in one mirror, so that one copy moves
// them all. The same sequence of arrays of the same sizes lies at the same addresses every time, which is what a replay
// needs. This module must not know what the arrays mean.
#pragma once
#include <cstdint>

#include "kernels/backend.h"

namespace foretoken {

class Staging {
 public:
  explicit Staging(Backend& backend) : backend_(backend) {}

  // Forgets the arrays of the last time and makes room for at least `bytes` bytes (kAlignment more for each array).
  void begin(std::int64_t bytes);
  // An array for the host to fill, uninitialised, and its image: shape and dtype as asked for.
  struct Array {
    Tensor host, device;
  };
  Array array(Shape shape, DType dtype);
  // Makes everything that was filled since begin() visible to the device.
  void push() { backend_.push(mirror_, used_); }
  // Where the images lie: arrays of the same sizes in the same order lie at the same addresses as long as this is the
  // same.
  const void* place() const { return mirror_.device.raw(); }

  static constexpr std::int64_t kAlignment = 64;

 private:
  Backend& backend_;
  Mirror mirror_;
  std::int64_t used_ = 0;
};

}  // namespace foretoken
